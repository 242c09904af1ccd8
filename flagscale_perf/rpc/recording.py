"""Records calls: the interface for a client, a server or a probe and, run as a module, the writer process.

recorder = RpcRecorder.start(facts, RecordingOptions(log_file="zmq_performance.log"))
recorder.observe(record)        # of every call, on the calling thread
recorder.close("completed")
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.rpc.facts import RpcFacts
from flagscale_perf.rpc.log import APPEND, LOG_FILE, METHODS
from flagscale_perf.rpc.names import methods_of
from flagscale_perf.rpc.peers import Serving, server_of
from flagscale_perf.rpc.records import CallRecord, ServedRecord
from flagscale_perf.rpc.summary import PRESENTATION
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import given_path
from flagscale_perf.spine.peers.node import News, Node
from flagscale_perf.spine.records import EventRecord, Record
from flagscale_perf.writer.instrument import Entry, Joined, Remark
from flagscale_perf.writer.process import serve
from flagscale_perf.writer.recorder import Recorder, Writing
from flagscale_perf.writer.task import Parent, WriterTask

WRITER = "flagscale_perf.rpc.recording"
DEFAULT_DIRECTORY = "logs/rpc"
DEFAULT_LOG = "zmq_performance.log"
LAST_RECORD_NS, LOOK_S = 500_000_000, 0.005  # how long a session's end waits for the server's last record
Observe = Callable[[CallRecord | ServedRecord], None]


@dataclass(frozen=True)
class RecordingOptions:
    """Options of a recording: what is recorded, and where.

    Attributes:
        directory: of the run file and the summary.
        log_file: of the performance log, from the present directory; None for none.
        append: the log goes on behind earlier sessions; else a session empties it first. The run files of
            earlier sessions stay in either case.
        methods: only these are recorded, a list or `Lookup,Matmul`; none for all.
        monitor: the options that every instrument has, such as `perf_prometheus_port`; None for those of the
            environment.
    """

    directory: str | Path = DEFAULT_DIRECTORY
    log_file: str | Path | None = DEFAULT_LOG
    append: bool = False
    methods: Sequence[str] | str = ()
    monitor: PerfConfig | None = None

    def config(self) -> PerfConfig:
        """The common options in force. Raises PerfError."""
        given_path(self.directory, "directory")
        own = {"perf_log_dir": str(self.directory)}
        if self.monitor is None:
            return PerfConfig.from_args(own)
        return PerfConfig.from_args(self.monitor.as_dict() | own, environ={})

    def as_dict(self) -> dict[str, object]:
        """The options for the run header. Raises PerfError for invalid values."""
        log_file = None if self.log_file is None else given_path(self.log_file, "log_file")
        if log_file is not None and log_file.is_dir():
            raise PerfError(f"log_file {str(self.log_file)!r} is a directory; name a file in it")
        own = {
            LOG_FILE: None if log_file is None else str(log_file),
            APPEND: self.append,
            METHODS: methods_of(self.methods),
        }
        return self.config().as_dict() | own


class RpcRecorder(Recorder):
    """One session of calls; only `start` raises, and nothing blocks the caller.

    Attributes:
        observe: takes one record; those of methods that are not asked for are left out.
    """

    observe: Observe

    @classmethod
    def start(
        cls,
        facts: RpcFacts,
        options: RecordingOptions | None = None,
        say: Callable[[str], None] = print,
    ) -> RpcRecorder:
        """Begins a session and returns at once; the files appear shortly after. Raises PerfError for invalid
        options.

        Args:
            facts: what is known about the connection.
            options: what is recorded, and where; by default everything.
            say: prints one line; called on a side thread.
        """
        options = options or RecordingOptions()
        content, config = options.as_dict(), options.config()

        def task() -> WriterTask:
            return WriterTask.of(content, facts.as_dict(), config.perf_log_dir, None)

        recorder = cls.begin(Writing(WRITER, RpcPipeline), task, say, config.perf_debug)
        recorder.observe = recorder.put
        if chosen := frozenset(methods_of(options.methods)):
            recorder.observe = lambda record: recorder.put(record) if record.method in chosen else None
        return recorder

    def __enter__(self) -> RpcRecorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self.close("completed" if kind is None else f"exception {kind.__name__}")


class ServerSource:
    """The server's records; a failure here is reported once and ends them, but not the caller's records."""

    def __init__(self, node: Node[Serving, ServedRecord]) -> None:
        self._node: Node[Serving, ServedRecord] | None = node
        self._last_call = 0  # of which there is a record

    def take(self) -> list[Entry]:
        """The records since the last call."""
        return self._guarded(lambda node: node.cycle())

    def close(self, last_call: int = 0) -> list[Entry]:
        """The remaining records. A server that records stores each behind its reply, so that of the caller's
        last call may come a moment later: it is waited for.
        """
        entries: list[Entry] = []
        end_ns = monotonic_ns() + LAST_RECORD_NS
        while 0 < self._last_call < last_call and self._node is not None and monotonic_ns() < end_ns:
            time.sleep(LOOK_S)
            entries += self.take()
        entries += self._guarded(lambda node: node.close())
        self._node = None
        return entries

    def _guarded(
        self, action: Callable[[Node[Serving, ServedRecord]], News[Serving, ServedRecord]]
    ) -> list[Entry]:
        if self._node is None:
            return []
        try:
            news = action(self._node)
        except Exception as error:  # whatever went wrong: the caller's records go on without the server's
            self._node = None
            why = f"{type(error).__name__}: {error}"
            return [Remark("note", f"nothing is recorded of the server any more: {why}")]
        self._last_call = max([self._last_call, *(record.call for record in news.items)])
        notes = [*(text for _, text in news.notes), *(f"the server: {gone.why}" for gone in news.gone)]
        return [*news.items, *(Remark("note", note) for note in notes)]


class RpcPipeline:
    """The `Instrument` of calls: records are written as they are in the ring.

    Attributes:
        position: number of the last call.
    """

    name = "rpc"
    presentation = PRESENTATION
    joined: tuple[type, ...] = (CallRecord, ServedRecord, EventRecord)
    period_s = 0.1  # so that `tail -f` shows a call within 0.2 s

    def __init__(self, task: WriterTask, parent: Parent | None) -> None:
        """Without `parent` it works for a thread of the caller's process and does not collect the server's
        records."""
        facts = RpcFacts.of(task.facts)
        self._server: ServerSource | None = None
        if parent is not None and facts.server_pid is not None and facts.client is not None:
            self._server = ServerSource(server_of(facts, parent.watch))
        self.begin()

    def begin(self) -> None:
        """Forgets every record: the session begins, or is about to be read again."""
        self.position = self._last_call = 0

    def replay(self, record: Record, dropped: int) -> None:
        """Takes a record that an earlier writer of the session wrote."""
        self.fold(record, dropped)

    def owed(self) -> list[Entry]:
        """No further records follow from these."""
        return []

    def join(self, slots: Sequence[Record], is_full: bool) -> Joined:
        """Each slot is one record."""
        return Joined(list(slots), len(slots))

    def fold(self, record: Record, dropped: int) -> list[Entry]:
        """No further records follow; the last number is the position."""
        if isinstance(record, CallRecord | ServedRecord):
            self.position = max(self.position, record.number)
        if isinstance(record, CallRecord) and record.server_ns is not None:
            self._last_call = max(self._last_call, record.number)
        return []

    def collect(self) -> list[Entry]:
        """The server's records of these calls, from the first call on."""
        return [] if self._server is None or not self.position else self._server.take()

    def close(self, dropped: int) -> list[Entry]:
        """The remaining records of the server."""
        return [] if self._server is None or not self.position else self._server.close(self._last_call)


if __name__ == "__main__":
    serve(RpcPipeline)
