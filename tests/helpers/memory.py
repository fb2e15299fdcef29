"""Peak memory of code that runs in a process of its own."""

from .fresh import run_fresh

# Not `ru_maxrss`: on Linux a new process starts with its parent's peak there, and a worker that
# runs many tests has a high one.
PEAK = """
def _peak():
    import pathlib, re, resource, sys
    status = pathlib.Path("/proc/self/status")
    found = status.exists() and re.search(r"VmHWM:\\s*(\\d+) kB", status.read_text())
    if found:
        return int(found[1]) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)
print(_peak())
"""


def run_alone(code: str) -> tuple[list[str], float]:
    """The words that `code` prints, and its process's peak of resident memory in GiB."""
    run = run_fresh(code + PEAK)
    assert run.returncode == 0, run.stderr
    *printed, peak = run.stdout.split()
    return printed, float(peak)
