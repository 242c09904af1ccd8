"""What is traced, set by environment variables, as these are all that workers on other machines and in other
processes receive.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flagscale_perf.spine.errors import PerfError

DEFAULT_DIRECTORY = "logs/trace"
LEVEL_VARIABLE, SHOWING = "VERL_LOGGING_LEVEL", ("INFO", "DEBUG")
_ON, _OFF = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


@dataclass(frozen=True)
class TraceOptions:
    """What is traced and where it goes.

    Attributes:
        trace: functions (`TQ_TRACE_ENABLED`).
        detail: operations of the client (`TQ_TRACE_DETAIL_ENABLED`).
        directory: of the run files and logs, absolute (`TQ_TRACE_DIR`).
        job: what the processes of one job have in common (`TQ_TRACE_JOB`); "" where nobody has said it: then
            it is the directory.
        to_stdout: lines go to the process's stdout, too (`TQ_TRACE_STDOUT`).
        stamp: a put gives its samples a trace id as a tag (`TQ_TRACE_STAMP`).
        keys: which samples have which keys is recorded (`TQ_TRACE_KEYS`).
        every: of the operations and calls, each N-th (`TQ_SAMPLE_EVERY`).
        ratio: of the trace ids, this share (`TQ_SAMPLE_RATIO`).
        slow_ns: what takes longer is kept whatever the sampling says (`TQ_SAMPLE_SLOW_MS`); None: nothing is.
    """

    trace: bool
    detail: bool
    directory: Path
    job: str = ""
    to_stdout: bool = False
    stamp: bool = False
    keys: bool = False
    every: int = 1
    ratio: float = 1.0
    slow_ns: int | None = None

    @property
    def is_on(self) -> bool:
        """Whether anything is traced."""
        return self.trace or self.detail

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that give another process the same options."""
        said = {
            "TQ_TRACE_ENABLED": str(int(self.trace)),
            "TQ_TRACE_DETAIL_ENABLED": str(int(self.detail)),
            "TQ_TRACE_DIR": str(self.directory),
            "TQ_TRACE_JOB": self.job,
            "TQ_TRACE_STDOUT": str(int(self.to_stdout)),
            "TQ_TRACE_STAMP": str(int(self.stamp)),
            "TQ_TRACE_KEYS": str(int(self.keys)),
            "TQ_SAMPLE_EVERY": str(self.every),
            "TQ_SAMPLE_RATIO": repr(self.ratio),
            "TQ_SAMPLE_SLOW_MS": "" if self.slow_ns is None else repr(self.slow_ns / 1e6),
        }
        return {name: value for name, value in said.items() if value}

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> TraceOptions:
        """Raises PerfError for an invalid value."""
        every, ratio = environment.get("TQ_SAMPLE_EVERY", "1"), environment.get("TQ_SAMPLE_RATIO", "1")
        if not every.isdigit() or int(every) < 1:
            raise PerfError(f"TQ_SAMPLE_EVERY={every!r} is not a whole number from 1 on")
        slow_ms = environment.get("TQ_SAMPLE_SLOW_MS", "")
        return cls(
            trace=_flag(environment, "TQ_TRACE_ENABLED"),
            detail=_flag(environment, "TQ_TRACE_DETAIL_ENABLED"),
            directory=Path(environment.get("TQ_TRACE_DIR") or DEFAULT_DIRECTORY).absolute(),
            job=environment.get("TQ_TRACE_JOB", ""),
            to_stdout=_flag(environment, "TQ_TRACE_STDOUT"),
            stamp=_flag(environment, "TQ_TRACE_STAMP"),
            keys=_flag(environment, "TQ_TRACE_KEYS"),
            every=int(every),
            ratio=_number("TQ_SAMPLE_RATIO", ratio, 1.0),
            slow_ns=None if not slow_ms else int(_number("TQ_SAMPLE_SLOW_MS", slow_ms, 1e9) * 1e6),
        )


def hidden_by(level: str) -> str:
    """What hides the lines, as the beginning of a sentence; "" if they are shown. `level`: of verl's logging,
    WARN by default.
    """
    if level.strip().upper() in SHOWING:
        return ""
    return f"{LEVEL_VARIABLE}={level}" if level.strip() else f"{LEVEL_VARIABLE} is not set, and its WARN"


def _flag(environment: Mapping[str, str], name: str) -> bool:
    value = environment.get(name, "").strip().lower()
    if value not in _ON + _OFF:
        raise PerfError(f"{name}={environment[name]!r} is neither on nor off; write 1 or 0")
    return value in _ON


def _number(name: str, value: str, most: float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 < number <= most:
        raise PerfError(f"{name}={value!r} is not a number above 0 and up to {most:g}")
    return number
