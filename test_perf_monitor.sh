#!/usr/bin/env bash
# The integration test: FlagScale's own script trains two iterations with the monitor on, and it fails unless the monitor's log shows them.
# Usage: ./test_perf_monitor.sh [RUN_PY_OVERRIDE...], for example train.system.perf_breakdown=true. PYTHON names another interpreter than .venv's.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-$here/.venv/bin/python}
if ! command -v "$python" >/dev/null; then
    echo "$python is not there; make venv first, or name an interpreter beside FlagScale: PYTHON=python3 ./test_perf_monitor.sh" >&2
    exit 2
fi
exec "$python" "$here/run.py" action=test "$@"
