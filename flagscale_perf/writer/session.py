"""One session's files: claimed, opened, gone on with after a writer that died, closed."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from flagscale_perf.sinks.base import SinkContext
from flagscale_perf.sinks.registry import VIEWS
from flagscale_perf.sinks.run_file import RecordsSink
from flagscale_perf.spine.clock import boot_id, local_time
from flagscale_perf.spine.files import make_directory, open_new, open_regular
from flagscale_perf.spine.jsonl import MAX_LINE_BYTES, BadLine, encode, read_records, recall
from flagscale_perf.spine.language import live
from flagscale_perf.spine.live import FindingRecord
from flagscale_perf.spine.peers.rings import AnyRing
from flagscale_perf.spine.processes import pid_namespace
from flagscale_perf.spine.records import SCHEMA_VERSION, EventRecord, Record, RunEnd, RunHeader
from flagscale_perf.spine.session import file_names, new_session_id
from flagscale_perf.writer.fanout import FanOut, Report
from flagscale_perf.writer.instrument import Instrument
from flagscale_perf.writer.messages import Figures, Line, Send, Trouble
from flagscale_perf.writer.task import WriterTask


class Session:
    """The run file and its views.

    Attributes:
        run_file: every record goes there first.
        views: what the run file is shown as.
        is_resumed: an earlier writer has begun the session.
        header: of the run file.
    """

    def __init__(
        self, ring: AnyRing, task: WriterTask, instrument: Instrument, send: Send, report: Report
    ) -> None:
        """Claims a session, or goes on with the one of a writer that died. Raises OSError."""
        earlier = ring.session
        session_id = earlier or claim(task)
        ring.session = session_id
        context = SinkContext(
            header_of(session_id, task, instrument.name),
            task.directory,
            emit=lambda text, pid=0: send(Line(text, pid)),
            complain=lambda text: send(Trouble(live(text))),
            emit_figures=lambda values: send(Figures(values)),
            presentation=instrument.presentation,
            resumed=earlier is not None,
            may_serve=task.may_serve,
        )
        self.run_file = RecordsSink.open(context)
        # The views may take seconds to open: until then the file would be no run file. What is refused now is
        # reported when the first records are saved.
        with contextlib.suppress(OSError):
            self.run_file.flush()
        views = context.presentation.views
        self.views = FanOut(VIEWS if views is None else views, context, report)
        self.is_resumed, self.header = context.resumed, context.header
        self._context = context

    def path(self, file: str) -> Path:
        """The path of one of the session's files, by its key in `file_names`."""
        return self._context.directory / file_names(self._context.header.session_id)[file]

    def close(self) -> None:
        """Every file. Raises OSError if the run file cannot be closed."""
        self.views.close()
        self.run_file.close()

    def summary(self) -> str:
        """The summary's path; "" if there is none, or that cannot be found out."""
        path = self.path("summary")
        return str(path) if os.path.isfile(path) else ""


def header_of(session_id: str, task: WriterTask, instrument: str) -> RunHeader:
    """The first record of its run file."""
    inode = None
    with contextlib.suppress(OSError):
        inode = os.stat(task.directory / file_names(session_id)["records"]).st_ino
    return RunHeader(
        schema_version=SCHEMA_VERSION,
        session_id=session_id,
        start_wall_ns=task.anchor.wall_ns,
        start_mono_ns=task.anchor.mono_ns,
        facts=task.facts,
        config=task.config,
        instrument=instrument,
        host=os.uname().nodename,
        boot_id=boot_id(),
        pid=task.pid,
        pid_namespace=pid_namespace(),
        inode=inode,
    )


def claim(task: WriterTask) -> str:
    """A new session id; its run file is made. Raises OSError."""
    make_directory(task.directory)
    start = local_time(task.anchor.wall_ns)
    attempt = 1
    while True:
        session_id = new_session_id(start, attempt)
        try:
            os.close(open_new(task.directory / file_names(session_id)["records"]))
        except FileExistsError:
            attempt += 1
            continue
        return session_id


class Recovered(NamedTuple):
    """The earlier writer's work, as far as the next one has to know it.

    Attributes:
        known: encoded records that may be both in the ring and in the run file.
        texts: the texts of its events.
        has_ended: the session's end is in the run file.
        findings: the last of them.
    """

    known: frozenset[bytes]
    texts: set[str]
    has_ended: bool
    findings: Sequence[FindingRecord] = ()


NOTHING = Recovered(frozenset(), set(), False)


def recover(
    session: Session, instrument: Instrument, ring: AnyRing, go_on: Callable[[], None], most: int
) -> Recovered:
    """Gives views and instrument what the earlier writer knew. `most` records at the end may be in the ring,
    too; `go_on` is called after each record. Raises OSError.
    """
    known: deque[bytes] = deque(maxlen=most)
    texts: set[str] = set()
    has_ended, findings = False, deque[FindingRecord](maxlen=most)
    try:
        for record in replay(session.path("records")):
            go_on()
            session.views.rebuild(record)
            instrument.replay(record, ring.dropped)
            has_ended |= isinstance(record, RunEnd)
            if isinstance(record, instrument.joined):
                known.append(encode(record))
            if isinstance(record, EventRecord):
                texts.add(record.text)
            if isinstance(record, FindingRecord):
                findings.append(record)
    except FileNotFoundError:
        known.clear()  # removed meanwhile: the session goes on
    return Recovered(frozenset(known), texts, has_ended, findings)


def replay(path: Path) -> Iterator[Record]:
    """Every record in the file; a last line without an end is cut off. Raises OSError."""
    fd = open_regular(path, os.O_RDWR | os.O_NOFOLLOW)
    with os.fdopen(fd, "rb") as file:
        for record in read_records(file, recall):
            if not isinstance(record, BadLine):
                yield record
            elif record.torn:
                _cut_torn_line(fd)


def _cut_torn_line(fd: int) -> None:
    size = os.fstat(fd).st_size
    start = max(0, size - MAX_LINE_BYTES)
    end = os.pread(fd, size - start, start).rfind(b"\n") + 1
    os.ftruncate(fd, start + end)
