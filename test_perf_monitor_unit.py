"""The unit tests, some with torch: `python test_perf_monitor_unit.py [PYTEST_OPTION...]`."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    try:
        import pytest
    except ImportError:
        sys.exit("pytest is not installed\nmake venv, then .venv/bin/python test_perf_monitor_unit.py")
    sys.exit(pytest.main([str(Path(__file__).parent / "tests" / "unit"), *sys.argv[1:]]))
