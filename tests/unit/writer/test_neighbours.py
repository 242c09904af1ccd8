"""Another training in the same directory, by what its run file shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.files import open_locked
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.spine.session import file_names
from flagscale_perf.writer import neighbours
from flagscale_perf.writer.neighbours import Neighbours
from tests.fakes import make_header

OTHER = make_header("20240129_103000")
OWN = replace(make_header("20240129_113000"), start_wall_ns=OTHER.start_wall_ns + 3600 * NS_PER_S, pid=99)


def look_after(
    directory: Path, other: RunHeader, grows: list[int], monkeypatch: pytest.MonkeyPatch
) -> list[str | None]:
    """What is said at each of these seconds, at some of which its file, which is on node0, has grown."""
    path, now_ns = directory / file_names(other.session_id)["records"], [0]
    path.write_bytes(encode(other))
    monkeypatch.setattr(neighbours, "monotonic_ns", lambda: now_ns[0])
    watch, said = Neighbours(directory), list[str | None]()
    for second in (0, 59, 60, 120, 210, 300):
        now_ns[0] = second * NS_PER_S
        with path.open("ab") as file:
            file.write(b"\n" * (second in grows))
        said.append(watch.look(OWN))
    return said


def test_of_one_elsewhere_the_file_must_grow_long_after_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was killed grows for some seconds more, and its job may go on here."""
    said = look_after(tmp_path, OTHER, [59, 120], monkeypatch)
    assert [text is not None for text in said] == [False] * 4 + [True, False]
    assert str(said[4]).startswith(
        f"another training writes into {tmp_path}, too: session {OTHER.session_id}, process 1234 on node0; "
    )


@pytest.mark.parametrize(
    ("other", "grows"),
    [
        (OTHER, [59, 60]),
        (replace(OTHER, start_wall_ns=OWN.start_wall_ns + 1), [120]),  # the later one is told
        (replace(OTHER, pid=99), [120]),  # an earlier training of this process
        (replace(OTHER, instrument="rpc"), [120]),
    ],
)
def test_nothing_is_said_of_any_other(
    tmp_path: Path, other: RunHeader, grows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert look_after(tmp_path, other, grows, monkeypatch) == [None] * 6


def test_the_own_file_and_what_is_no_run_file_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / file_names(OWN.session_id)["records"]
    path.write_bytes(encode(OWN))
    (tmp_path / "perf_records_20240101_000000.jsonl").write_text("{}")
    (tmp_path / "perf_records_20240101_000001.jsonl").mkdir()
    watch = Neighbours(tmp_path)
    with open(open_locked(path)):
        assert watch.look(OWN) is None
    assert Neighbours(tmp_path / "not there").look(OWN) is None
