"""Tests of the package's structure, without torch: `python test_perf_simple.py [PYTEST_OPTION...]`.

Which room imports which, what is installed, that options, yaml keys and pages agree. All tests: `make test`.
"""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = ("test_house.py", "test_options.py", "test_options_page.py", "test_phases_page.py")

if __name__ == "__main__":
    try:
        import pytest
    except ImportError:
        sys.exit("pytest is not installed\nmake venv, then .venv/bin/python test_perf_simple.py")
    sys.modules["torch"] = None  # type: ignore[assignment]  # what imports it fails, where there is one, too
    contract = Path(__file__).parent / "tests" / "contract"
    sys.exit(pytest.main([*(str(contract / name) for name in TESTS), *sys.argv[1:]]))
