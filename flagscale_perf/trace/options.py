"""Options of tracing: what is traced, and which part of it is kept. Environment variables, as these are all
that workers in other processes and on other machines receive.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flagscale_perf.options.table import from_environment, option, to_environment
from flagscale_perf.options.values import above_zero, parse_bool, path, whole
from flagscale_perf.spine.files import given_path
from flagscale_perf.trace.records import ONE

DEFAULT_DIRECTORY = "logs/trace"
_RANGE = 1 << 64
LEVEL_VARIABLE, SHOWING = "VERL_LOGGING_LEVEL", ("INFO", "DEBUG")


@dataclass(frozen=True)
class TraceOptions:
    """Options of a traced process.

    Attributes:
        job: the job's name; "" if it is known by its directory.
        directory: made absolute.
    """

    trace: bool = option(False, parse_bool, "calls of functions", "TQ_TRACE_ENABLED")
    detail: bool = option(False, parse_bool, "puts, gets and updates of clients", "TQ_TRACE_DETAIL_ENABLED")
    directory: Path = option(
        lambda: Path(DEFAULT_DIRECTORY).absolute(),
        lambda text: Path(path(DEFAULT_DIRECTORY)(text)).absolute(),
        f"where everything goes; {DEFAULT_DIRECTORY} below the first process's directory without it",
        "TQ_TRACE_DIR",
        "PATH",
    )
    job: str = option("", str, "what keeps jobs that share a directory apart", "TQ_TRACE_JOB", "NAME")
    to_stdout: bool = option(False, parse_bool, "lines on stdout, too", "TQ_TRACE_STDOUT")
    stamp: bool = option(
        False,
        parse_bool,
        "each put tags its samples with a trace id, which stays with them: extra_info does not",
        "TQ_TRACE_STAMP",
    )
    keys: bool = option(
        False,
        parse_bool,
        "record which sample has which key (kv_put, kv_batch_put), so that one can be asked for by it; costs"
        " about 0.3 us a key",
        "TQ_TRACE_KEYS",
    )
    every: int = option(
        1, whole(1, 1_000_000_000, 10), "every Nth operation and call", "TQ_SAMPLE_EVERY", "N"
    )
    ratio: float = option(
        1.0,
        above_zero(1, "0.1"),
        "this share of the batches, the same ones where they are made and where they are taken; errors are"
        " always kept",
        "TQ_SAMPLE_RATIO",
        "SHARE",
    )
    slow_ms: float | None = option(
        None, above_zero(1e9, "20"), "always keep what takes longer than this", "TQ_SAMPLE_SLOW_MS", "MS"
    )

    def __post_init__(self) -> None:
        """Raises PerfError for a directory that is no path."""
        object.__setattr__(self, "directory", given_path(self.directory, "directory"))

    @property
    def slow_ns(self) -> int | None:
        """Calls and operations that take longer are kept whatever the sampling says; None for no limit."""
        return None if self.slow_ms is None else int(self.slow_ms * 1e6)

    @property
    def is_on(self) -> bool:
        """Whether anything is traced."""
        return self.trace or self.detail

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that give another process the same options."""
        return {name: text for name, text in to_environment(self).items() if text}

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> TraceOptions:
        """Raises PerfError for an invalid value."""
        return cls(**from_environment(cls, environment))


def hidden_by(level: str) -> str:
    """Why the lines are hidden, as the beginning of a sentence; "" if they are shown. `level`: verl's logging
    level, WARN by default.
    """
    if level.strip().upper() in SHOWING:
        return ""
    return f"{LEVEL_VARIABLE}={level}" if level.strip() else f"{LEVEL_VARIABLE} is not set, and its WARN"


@dataclass(frozen=True)
class Sampling:
    """A share of the batches, spread evenly. What is kept follows from the batch alone, so that producer and
    consumer agree without communicating.

    Attributes:
        weight_milli: how many a kept one stands for, in thousandths.
        below: of 2^64, what the hash of a kept one is less than.
    """

    weight_milli: int
    below: int

    @classmethod
    def of(cls, options: TraceOptions) -> Sampling:
        """Combines the ratio with every N-th."""
        share = options.ratio / options.every
        return cls(round(ONE / share), int(share * _RANGE))

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is left out."""
        return self.below >= _RANGE

    def keeps(self, trace_id: str, partition: str, first_row: int | None) -> bool:
        """Whether the batch is kept: decided by its id, otherwise by its partition and first row."""
        text = trace_id or f"{partition}\0{first_row}"
        digest = hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8).digest()
        return int.from_bytes(digest, "big") < self.below
