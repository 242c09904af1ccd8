"""Records calls: the interface for a client, a server or a probe and, run as a module, the writer process.

recorder = RpcRecorder.start(facts, RecordingOptions(log_file="zmq_performance.log"))
recorder.observe(record)        # of every call, on the calling thread
recorder.close("completed")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.rpc.facts import RpcFacts
from flagscale_perf.rpc.log import APPEND, LOG_FILE, METHODS
from flagscale_perf.rpc.names import methods_of
from flagscale_perf.rpc.records import CallRecord, ServedRecord
from flagscale_perf.rpc.summary import PRESENTATION
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import given_path
from flagscale_perf.spine.records import EventRecord, Record
from flagscale_perf.writer.instrument import Entry, Joined
from flagscale_perf.writer.process import serve
from flagscale_perf.writer.recorder import Recorder, Writing
from flagscale_perf.writer.task import Parent, WriterTask

WRITER = "flagscale_perf.rpc.recording"
DEFAULT_DIRECTORY = "logs/rpc"
DEFAULT_LOG = "zmq_performance.log"
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
    ) -> Self:
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self.close("completed" if kind is None else f"exception {kind.__name__}")


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
        self.begin()

    def begin(self) -> None:
        """Forgets every record: the session begins, or is about to be read again."""
        self.position = 0

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
        return []

    def collect(self) -> list[Entry]:
        """No records come from anywhere else."""
        return []

    def close(self, dropped: int) -> list[Entry]:
        """Nothing is held back."""
        return []


if __name__ == "__main__":
    serve(RpcPipeline)
