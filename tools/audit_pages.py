"""Audit pages of the built book with Lighthouse, as a phone and as a desktop.

The pages are served from this machine, compressed with gzip as GitHub Pages serves them, and
Lighthouse simulates its standard phone and desktop and their networks. The record,
benchmarks/results/lighthouse.json, has the versions, the date and, for each page and device, the
scores in percent, the compressed size in KB (1000 bytes) of all that is loaded before a reader does
anything, the times on which the score for performance mainly depends, in milliseconds, and the
audits of the other categories that failed. Of several runs, the one with the median performance is
recorded.

Needs `make book`, Chromium, and Lighthouse (`npm install lighthouse@12.8`, in any folder).

Usage: python tools/audit_pages.py PATH/TO/node_modules/.bin/lighthouse [--runs N] [--output FILE]
"""

import argparse
import gzip
import json
import os
import subprocess
import tempfile
import threading
from datetime import UTC, datetime
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from chromium import MISSING, find_chromium

from companion.runs.record import processor

ROOT = Path(__file__).parents[1]
HTML = ROOT / "_build/html"
RECORD = ROOT / "benchmarks/results/lighthouse.json"
PAGES = ("book/intro", "book/explore", "book/report", "book/theorem", "notebooks/05-theorem-1")
DEVICES = {"phone": (), "desktop": ("--preset=desktop",)}
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
TIMES = ("first-contentful-paint", "largest-contentful-paint", "total-blocking-time")
COMPRESSED = (".html", ".css", ".js", ".json", ".svg", ".inv", ".xml", ".txt")


@cache
def compressed(path, modified):
    """Return the content of a file as gzip sends it."""
    return gzip.compress(Path(path).read_bytes(), compresslevel=6)


class Handler(SimpleHTTPRequestHandler):
    """Send text files compressed, and let browsers keep files for ten minutes, as GitHub does."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = Path(self.translate_path(self.path))
        if path.suffix not in COMPRESSED or not path.is_file():
            return super().do_GET()
        content = compressed(str(path), path.stat().st_mtime)
        self.send_response(200)
        self.send_header("Content-Type", f"{self.guess_type(path)}; charset=utf-8")
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def end_headers(self):
        self.send_header("Cache-Control", "max-age=600")
        super().end_headers()

    def log_message(self, *arguments):
        pass


def audit(lighthouse, address, options):
    """Return what Lighthouse reports on a page."""
    flags = "--headless=new --no-sandbox"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [lighthouse, address, "--quiet", f"--chrome-flags={flags}", *options]
        command += ["--output=json", f"--output-path={report}"]
        environment = os.environ | {"CHROME_PATH": find_chromium()}
        subprocess.run(command, env=environment, check=True, timeout=300)
        return json.loads(report.read_text())


def summary(report):
    """Return the scores, size and times of a report."""
    audits = report["audits"]
    scores = {name: round(100 * report["categories"][name]["score"]) for name in CATEGORIES}
    counted = {
        each["id"]
        for name in CATEGORIES[1:]
        for each in report["categories"][name]["auditRefs"]
        if each["weight"]
    }
    failed = [name for name in sorted(counted) if (audits[name]["score"] or 0) < 0.9]
    failed = [name for name in failed if audits[name]["score"] is not None]
    size = {"kilobytes": round(audits["total-byte-weight"]["numericValue"] / 1000)}
    times = {name: round(audits[name]["numericValue"]) for name in TIMES}
    shift = {"layout-shift": round(audits["cumulative-layout-shift"]["numericValue"], 3)}
    return scores | size | times | shift | {"failed": failed}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lighthouse", help="the command that npm installed")
    parser.add_argument("--runs", type=int, default=3, help="runs of each page and device")
    parser.add_argument("--output", type=Path, default=RECORD)
    options = parser.parse_args()
    if not find_chromium():
        raise SystemExit(MISSING)
    pages = {}
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=HTML)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for page in PAGES:
            for device, settings in DEVICES.items():
                address = f"http://127.0.0.1:{server.server_port}/{page}.html"
                reports = [
                    audit(options.lighthouse, address, settings) for _ in range(options.runs)
                ]
                found = sorted(map(summary, reports), key=lambda each: each["performance"])
                pages.setdefault(page, {})[device] = found[len(found) // 2]
                print(page, device, json.dumps(pages[page][device]), flush=True)
        server.shutdown()
    made = {
        "date": datetime.now(UTC).date().isoformat(),
        "lighthouse": reports[0]["lighthouseVersion"],
        "browser": reports[0]["environment"]["hostUserAgent"].split()[-2],
        "processor": f"{processor()}, {os.cpu_count()} cores",
        "runs": options.runs,
        "compression": "gzip",
        "pages": pages,
    }
    options.output.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
