#!/usr/bin/env bash
# Subject: tests of one group in pytest-xdist.
# On: pytest 9.1.1 and 9.2.0, pytest-xdist 3.8.0.
# Most expect: with --dist loadgroup, all tests that are marked with the same xdist_group run in one worker.
# Observed: with pytest 9.2.0, the mark has no effect and no message says so; the tests run in both workers.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
cat > "$folder/test_group.py" <<'PYTHON'
import time

import pytest


@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(6))
def test_in_one_worker(number, worker_id):
    time.sleep(0.3)
    print(f"ran in {worker_id}")
PYTHON
touch "$folder/pytest.ini"
workers() {
    "$folder/venv/bin/python" -m pip install --quiet pytest=="$1" pytest-xdist==3.8.0
    (cd "$folder" && venv/bin/python -m pytest -n 2 --dist loadgroup -rP test_group.py) | grep "^ran in" | sort -u | wc -l
}
before=$(workers 9.1.1)
after=$(workers 9.2.0)
echo "workers that ran the tests of one group: $before with pytest 9.1.1, $after with pytest 9.2.0"
[ "$before" -eq 1 ] && [ "$after" -eq 2 ]
