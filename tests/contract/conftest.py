"""Fixtures of the contract tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import RunPython
from tests.package_copy import PackageCopy


@pytest.fixture
def package_copy(run_python: RunPython, tmp_path: Path) -> PackageCopy:
    """A scratch copy of the package, to be changed as CONTRIBUTING.md says."""
    return PackageCopy(tmp_path / "copy", run_python)
