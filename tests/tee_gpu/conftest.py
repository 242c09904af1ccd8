"""The example's packages are importable here, and in what these tests start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EXAMPLE = str(HERE.parents[1] / "examples/tee_gpu")
sys.path.insert(0, EXAMPLE)


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Not even collected where none of them runs: what they import takes seconds."""
    return True if "not rpc" in config.getoption("markexpr") else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test-rpc` runs these, and `make test` does not: pytest.mark.rpc."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("rpc")


@pytest.fixture(autouse=True, scope="session")
def importable() -> Iterator[None]:
    path = os.environ.get("PYTHONPATH")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (EXAMPLE, path))))
        yield
