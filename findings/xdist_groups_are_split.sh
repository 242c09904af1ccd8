#!/usr/bin/env bash
# pytest-xdist 3.8.0 with pytest 9.2.0: `--dist loadgroup` deals the tests of one xdist_group to several workers, so that what a group shares (a
# module's fixture, a started service) is made once in each of them.
#
# Guess before the run: tests with the same xdist_group run in one worker, as its documentation says.
# Seen: six tests of one group beside six of none, -n 2: three of the group in each worker. pytest 8.4.2 with the same pytest-xdist: all six in one.
#
# Installs both into a temporary directory. Exit status 0: as stated here; 1: it has changed.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir "$work/tests"
cat > "$work/tests/test_group.py" <<'PYTHON'
import os
import time

import pytest


@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(6))
def test_of_the_group(number):
    time.sleep(0.2)
    with open(os.environ["WORKERS"], "a") as said:
        said.write(os.environ["PYTEST_XDIST_WORKER"] + "\n")


@pytest.mark.parametrize("number", range(6))
def test_of_none(number):
    time.sleep(0.2)
PYTHON
workers_with() {
    python3 -m venv "$work/$1"
    "$work/$1/bin/pip" install --quiet --disable-pip-version-check "pytest==$1" pytest-xdist==3.8.0
    (cd "$work/tests" && WORKERS="$work/$1.txt" "$work/$1/bin/python" -m pytest -q -p no:cacheprovider -n 2 --dist loadgroup . >/dev/null)
    sort -u "$work/$1.txt" | wc -l
}
new=$(workers_with 9.2.0)
old=$(workers_with 8.4.2)
echo "workers that ran tests of the one group: pytest 9.2.0: $new, pytest 8.4.2: $old"
[ "$new" -eq 2 ] && [ "$old" -eq 1 ]
