"""Option of the fault suite."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record",
        action="store_true",
        help="put the figures into tests/faults/last_run.json and docs/operations.md",
    )
