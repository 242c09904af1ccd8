"""A session claimed, and its header."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from flagscale_perf.spine.clock import Anchor, boot_id
from flagscale_perf.spine.processes import pid_namespace
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.spine.ring import Ring
from flagscale_perf.store.decoder import decode
from flagscale_perf.training.recording.pipeline import Sources, TrainingPipeline
from flagscale_perf.writer.session import Session
from flagscale_perf.writer.task import WriterTask
from tests.fakes import make_facts, make_header


@pytest.fixture
def ring() -> Iterator[Ring]:
    made = Ring.create(slots=2)
    yield made
    made.release()


def begin(ring: Ring, directory: Path) -> Session:
    task = WriterTask(make_header().config, asdict(make_facts()), Anchor(10**18, 5), 1234, directory)
    return Session(ring, task, TrainingPipeline(task, Sources()), pytest.fail, pytest.fail)


def test_a_header_says_what_recorded_where_and_on_which_clock(ring: Ring, tmp_path: Path) -> None:
    session = begin(ring, tmp_path)  # and it is in the file before any record comes
    header = decode(session.path("records").read_bytes())
    assert header == RunHeader(
        1,
        ring.session or "",
        10**18,
        5,
        asdict(make_facts()),
        make_header().config,
        "training",
        os.uname().nodename,
        boot_id(),
        1234,
        pid_namespace(),
        session.path("records").stat().st_ino,
    )
    session.close()


def test_a_session_is_claimed_once_and_gone_on_with(ring: Ring, tmp_path: Path) -> None:
    first = begin(ring, tmp_path)
    again = begin(ring, tmp_path)
    assert (first.is_resumed, again.is_resumed) == (False, True)
    assert first.path("records") == again.path("records")
    assert first.summary() == ""
    first.path("summary").write_text("{}")
    assert first.summary() == str(tmp_path / f"perf_summary_{ring.session}.json")
    other = Ring.create(slots=2)
    third = begin(other, tmp_path)
    assert other.session == f"{ring.session}_2"
    other.release()
    for session in (first, again, third):
        session.close()
