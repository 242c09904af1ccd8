"""What is not written stands in the ring, for the last line of the run: it outlives the writer."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from flagscale_perf.spine import files
from flagscale_perf.spine.ring import Ring
from flagscale_perf.writer import drain as drain_module
from tests.unit.writer.test_drain import finish, make_drain, put, ring, said, steps_in

__all__ = ["ring", "said"]


def test_a_directory_that_cannot_be_made(ring: Ring, tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "logs").write_text("in the way")
    put(ring, 1)
    finish(ring, make_drain(ring, tmp_path / "logs", said))
    assert ring.trouble == f"run file: NotADirectoryError: {tmp_path}/logs is not a directory"
    assert (ring.session, ring.summary) == (None, "")


def test_trouble_that_is_over_is_none(
    ring: Ring, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    drain = make_drain(ring, tmp_path, said)
    drain.cycle()
    assert ring.trouble == ""
    put(ring, *range(1, 11))
    with monkeypatch.context() as full:
        full.setattr(files.os, "write", no_room)
        drain.cycle()
        assert ring.trouble == "run file: No space left on device"
    finish(ring, drain)
    assert (ring.trouble, ring.saved) == ("", 10)


def test_a_run_file_that_refuses_at_the_end_is_noted_before_the_writer_gives_up(
    ring: Ring, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, seen = [0], []
    monkeypatch.setattr(drain_module, "monotonic_ns", lambda: now[0])
    monkeypatch.setattr(drain_module.tempfile, "tempdir", str(elsewhere := tmp_path / "elsewhere"))
    elsewhere.mkdir()
    drain = make_drain(ring, tmp_path, said)
    put(ring, 1)
    drain.cycle()
    (path,) = tmp_path.glob("perf_records_*")
    path.rename(tmp_path / "moved")
    path.mkdir()
    put(ring, 2)
    ring.close("completed", 0)

    def wait(seconds: float) -> None:
        seen.append(ring.trouble)
        now[0] += int(seconds * 1e9)

    drain.run(wait, lambda: False)
    assert seen[0] == ring.trouble == "run file: Is a directory"
    assert (ring.saved, ring.stored) == (1, 2)
    (rescued,) = elsewhere.glob("flagscale_perf_*")
    assert steps_in(rescued) == [2]


def test_a_view_that_never_works_is_named_to_the_end(ring: Ring, tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "perf_realtime.log").mkdir()
    put(ring, 1)
    finish(ring, make_drain(ring, tmp_path, said))
    assert ring.trouble == "live log: Is a directory"
    assert (ring.saved, ring.stored) == (1, 1)


def test_a_view_s_failure_stands_in_the_ring_before_it_is_told(ring: Ring, tmp_path: Path) -> None:
    """A process that ends as soon as its user reads the line looks there for what is missing."""
    seen: list[tuple[str, str]] = []

    class Told(list[str]):
        def append(self, text: str) -> None:
            seen.append((text.partition(":")[2][:10], ring.trouble))

    (tmp_path / "perf_realtime.log").mkdir()
    put(ring, 1)
    finish(ring, make_drain(ring, tmp_path, Told()))
    assert seen[:1] == [(" live log:", "live log: Is a directory")]
