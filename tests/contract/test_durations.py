"""How `make test` deals its files: one whose tests are called otherwise in each process is named."""

from __future__ import annotations

import pytest

from tests.durations import refuse_divided

COLLECTED = [["a.py::one", "b.py::one"], ["a.py::one", "c.py::gw1"], ["a.py::one", "c.py::gw2"]]


def test_files_that_some_process_has_whole_are_dealt() -> None:
    refuse_divided({"a.py": ["a.py::one"], "b.py": ["b.py::one"]}, COLLECTED)


def test_a_file_that_no_process_has_whole_is_named() -> None:
    with pytest.raises(pytest.UsageError, match=r"^the tests of c\.py have other names in each process$"):
        refuse_divided({"a.py": ["a.py::one"], "c.py": ["c.py::gw1", "c.py::gw2"]}, COLLECTED)
