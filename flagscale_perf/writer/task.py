"""A writer's task, and how it is handed to the writer process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.jsonl import dump


@dataclass(frozen=True)
class WriterTask:
    """A writer's task.

    Attributes:
        config, facts: of the run header.
        anchor: both clocks at the run's start.
        pid: the measured process.
        directory: where the files go, absolute.
        owner: the process's place in its job, as the instrument describes it; None if no other processes are
            gathered.
        notes: why this writer takes over from others, each different; recorded as failures, once a session.
        may_serve: see `SinkContext`.
    """

    config: dict[str, Any]
    facts: dict[str, Any]
    anchor: Anchor
    pid: int
    directory: Path
    owner: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
    may_serve: bool = False

    @cached_property
    def options(self) -> PerfConfig:
        """The options of this session, parsed."""
        return PerfConfig.of(self.config)

    @classmethod
    def of(
        cls, config: dict[str, Any], facts: dict[str, Any], directory: str, owner: dict[str, Any] | None
    ) -> WriterTask:
        """A task that begins now; through JSON, so that every writer sees the same facts."""
        plain = json.loads(dump({"config": config, "facts": facts}))
        return cls(
            plain["config"], plain["facts"], Anchor.now(), os.getpid(), Path(directory).absolute(), owner
        )

    def encode(self, ring_fd: int) -> bytes:
        """The line that a writer process of this one reads."""
        content = asdict(self) | {"directory": str(self.directory), "ring_fd": ring_fd}
        return (dump(content) + "\n").encode()

    @contextmanager
    def handed_over(self, ring_fd: int) -> Iterator[int]:
        """A descriptor with `encode`'s line, to be inherited: a writer process has its task from its start,
        even where this process is killed the moment after.
        """
        with open(os.memfd_create("flagscale_perf_task"), "wb") as file:
            file.write(self.encode(ring_fd))
            file.seek(0)  # which writes it; both processes share the position
            yield file.fileno()


class Parent(NamedTuple):
    """The process that a writer process writes for.

    Attributes:
        pid: of it.
        watch: takes the descriptor of a process over, whose end then wakes the writer.
        ask: asks it something, one line; see `Ring.reply`.
        answer: its answer to that question; None while there is none.
    """

    pid: int
    watch: Callable[[int], None]
    ask: Callable[[str], None] = lambda question: None
    answer: Callable[[str], str | None] = lambda question: None


def decode(line: bytes) -> tuple[WriterTask, int]:
    """The task that `WriterTask.encode` made bytes of, for a process that is the writer's own, and the
    descriptor that was given with it.
    """
    content = json.loads(line)
    ring_fd: int = content.pop("ring_fd")
    content |= {"anchor": Anchor(**content["anchor"]), "directory": Path(content["directory"])}
    return WriterTask(**content | {"may_serve": True}), ring_fd
