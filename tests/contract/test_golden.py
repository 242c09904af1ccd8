"""`make golden`: a mismatch says what to do, and renewing writes what the code made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.golden
from tests.golden import Golden, explain_mismatch, golden
from tests.golden.__main__ import summary


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Golden files of this test alone; renewing is off again at its end."""
    monkeypatch.setattr(tests.golden, "HERE", tmp_path)
    monkeypatch.setattr(Golden, "renewed", None)
    (tmp_path / "watch.txt").write_text("step 10\n41 ms\n")
    return tmp_path


def test_a_text_is_compared_on_either_side_and_within_a_tuple(directory: Path) -> None:
    assert golden("watch.txt") == "step 10\n41 ms\n"
    printed = ("step 10\n41 ms\n", "")
    assert printed == (golden("watch.txt"), "")
    assert golden("watch.txt") != "step 10\n42 ms\n"
    assert (directory / "watch.txt").read_text() == "step 10\n41 ms\n"


def test_a_mismatch_shows_the_lines_and_the_command(directory: Path) -> None:
    assert explain_mismatch("step 10\n42 ms\n", golden("watch.txt")) == [
        "the output differs from tests/golden/watch.txt; if that is meant: make golden",
        "--- watch.txt",
        "+++ watch.txt now",
        "@@ -1,2 +1,2 @@",
        " step 10",
        "-41 ms",
        "+42 ms",
    ]
    assert explain_mismatch("one", "two") is None


def test_renewing_writes_what_was_made(directory: Path) -> None:
    Golden.renewed = set()
    assert golden("watch.txt") == "step 10\n42 ms\n"
    assert golden("new.txt") == "new\n"
    assert ((directory / "watch.txt").read_text(), (directory / "new.txt").read_text()) == (
        "step 10\n42 ms\n",
        "new\n",
    )
    assert Golden.renewed == {"watch.txt", "new.txt"}


def test_a_file_of_the_requirement_is_never_renewed(directory: Path) -> None:
    (directory / "requirement_metrics.log").write_text("given\n")
    Golden.renewed = set()
    with pytest.raises(AssertionError, match="given by the requirement"):
        assert golden("requirement_metrics.log") == "other\n"


def test_the_summary_counts_the_lines_of_each_changed_file() -> None:
    before = {"a.txt": "1\n2\n", "b.txt": "same\n"}
    assert summary(before, {"a.txt": "1\n3\n4\n", "b.txt": "same\n"}) == (
        "a.txt: 2 lines added, 1 removed\n@@ -1,2 +1,3 @@\n 1\n-2\n+3\n+4"
    )
    assert summary(before, before) == "every golden file is as it was"
