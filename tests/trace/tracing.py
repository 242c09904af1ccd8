"""Tracing this process into a list."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flagscale_perf.hosts.transfer_queue.install import from_environment, install
from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.spine.records import Record
from flagscale_perf.trace.options import TraceOptions


class Kept(list[Record]):
    """The records of a process, in their order."""

    def of(self, kind: Any) -> list[Any]:
        """Those of one type."""
        return [record for record in self if isinstance(record, kind)]

    @property
    def names(self) -> dict[int, str]:
        """What stands behind each number."""
        return {0: ""} | {record.number: record.text for record in self.of(NameRecord)}


kept_here = Kept()  # by `begin_worker`


def begin_worker() -> None:
    """What each worker process of Ray does before anything else (`worker_process_setup_hook`): one whose
    environment says so is traced as any program is, the others into `kept_here`.
    """
    if TraceOptions.of(os.environ).is_on:
        from_environment()
    else:
        install(options(), kept_here.append)


def options(**changes: Any) -> TraceOptions:
    """Everything is traced."""
    return TraceOptions(**({"trace": True, "detail": True, "directory": Path("unused")} | changes))


@contextlib.contextmanager
def traced(**changes: Any) -> Iterator[Kept]:
    """This process is traced in it."""
    kept = Kept()
    installation = install(options(**changes), kept.append)
    try:
        yield kept
    finally:
        installation.undo()
