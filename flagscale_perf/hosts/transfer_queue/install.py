"""Puts the tracer into a process: at once, or as soon as the process imports TransferQueue or verl.

Ways in, without a change of the user's program: `worker_process_setup_hook` of Ray's runtime environment
names `from_environment` of this module; verl loads `verl_plugin`; and after `flagscale-perf enable` each
Python of the environment runs `from_environment` when it begins. All of them ask the environment whether
anything is switched on; where the driver is reached by one, `workers` hands it on to Ray's workers.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from flagscale_perf.hosts.import_hook import ImportHook
from flagscale_perf.hosts.patching import Patches
from flagscale_perf.hosts.transfer_queue import adapter, bridge, workers
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.records import EventRecord, Record
from flagscale_perf.trace import tracer as tracing
from flagscale_perf.trace.options import TraceOptions

Put = Callable[[Record], None]


class Installation:
    """The tracer inside one process; see `install`.

    Args:
        options: what is traced.
        put: takes the records.
        later: takes those that no process joins a job for.
    """

    def __init__(self, options: TraceOptions, put: Put, later: Put) -> None:
        self.options = options
        self._later = later
        self._tracer = tracing.Tracer(options, put)
        self._patches = Patches()
        self._variables: dict[str, str | None] = {}  # as they were
        after: dict[str, Callable[[ModuleType], None]] = dict.fromkeys(
            adapter.MODULES if options.detail else (adapter.MODULE,), self._patch_queue
        )
        after |= dict.fromkeys(
            (bridge.MODULE, bridge.IMPORTED_BY), functools.partial(bridge.patch_bridge, patches=self._patches)
        )
        after[workers.MODULE] = functools.partial(
            workers.patch_ray, options=options, patches=self._patches, hook=_worker_hook()
        )
        self._import_hook = ImportHook({}, after, _import_failed)

    def begin(self) -> None:
        """Patches what the process has imported, and the rest as it comes."""
        tracing.active = self._tracer
        wanted = workers.variables(self.options, os.environ)
        self._variables = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        self._import_hook.install()

    def _patch_queue(self, module: ModuleType) -> None:
        for unknown in adapter.patch(module, self._patches, self.options):
            tracing.note(unknown)
            self._later(EventRecord("note", monotonic_ns(), 0, unknown))

    def undo(self) -> None:
        """Takes every patch back, also from the clients that are there."""
        global _installation
        if _installation is self:
            _installation = None
            tracing.active = None
        self._import_hook.uninstall()
        self._patches.undo()
        for name, before in self._variables.items():
            if before is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = before
        self._variables = {}
        adapter.bind_again_after_undo()


class _Joining:
    """Joins the processes of the job at the first record: many a worker of Ray never has one."""

    def __init__(self, options: TraceOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._put: Put | None = None
        self._waiting: list[Record] = []

    def later(self, record: Record) -> None:
        """Hands the record on with the first that comes: of itself it is not worth joining for."""
        with self._lock:
            if self._put is None:
                self._waiting.append(record)
                return
        self._put(record)

    def put(self, record: Record) -> None:
        """Hands the record on."""
        if self._put is None:
            with self._lock:
                if self._put is None:
                    self._put = self._join()
        self._put(record)

    def _join(self) -> Put:
        from flagscale_perf.trace.task import job_of  # with the first record, not with the process
        from flagscale_perf.writer.membership import Membership

        put = Membership.join(job_of(self._options), Path(sys.argv[0]).name or "python").put
        for record in self._waiting:
            put(record)
        return put


_installation: Installation | None = None


def install(options: TraceOptions | None = None, put: Put | None = None) -> Installation:
    """Traces this process from now on; does nothing where it is traced. What it returns takes that back.

    Args:
        options: what is traced; None: what the environment says. With nothing in it switched on, nothing is
            patched.
        put: takes the records; None: they go to the writer of this machine.

    Raises PerfError for an environment that cannot be meant.
    """
    global _installation
    if _installation is not None:
        return _installation
    options = options or TraceOptions.of()
    joining = _Joining(options)
    installation = Installation(options, put or joining.put, put or joining.later)
    if options.is_on:
        _installation = installation
        installation.begin()
    return installation


def from_environment() -> None:
    """The same where no program asks for it, but the environment does: for Ray's `worker_process_setup_hook`,
    and what else runs when a process begins. A mistake in the environment is said, and nothing is traced.
    """
    try:
        install()
    except PerfError as error:
        tracing.note(f"nothing is traced in process {os.getpid()}: {error}")


def _worker_hook() -> Callable[[], None]:
    """Sent to the workers by value, as it is no function of a module: where this package is not installed, a
    name of a function in it would keep every worker from starting.
    """

    def trace_this_worker() -> None:
        try:
            from flagscale_perf.hosts.transfer_queue.install import from_environment
        except ImportError:
            return
        from_environment()

    return trace_this_worker


def _import_failed(module: str, error: Exception) -> None:
    tracing.note(f"{module} is not traced: {type(error).__name__}: {error} (the program goes on without)")
