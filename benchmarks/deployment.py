"""Try to deploy each kind of network by each route, and store the outcomes for the page Use it.

This takes about ten minutes on two cores, so the page reads the stored outcomes instead of
repeating them. Prints the outcomes; with --write it also stores them, with the date, the versions
and the hardware, in benchmarks/results/deployment.json.

Usage: python benchmarks/deployment.py [--write]
"""

import argparse
import json
from datetime import date

import torch

from companion.runs.record import provenance
from companion.studies.deployment import STORED, deployment_rows

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"store the outcomes in {STORED.name}")
    given = parser.parse_args()
    rows = deployment_rows()
    for row in rows:
        print(row)
    if given.write:
        about = provenance(torch.device("cpu"), processes=1)
        content = {"date": date.today().isoformat(), **about, "rows": rows}
        STORED.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
