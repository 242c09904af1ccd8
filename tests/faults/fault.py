"""What a fault is: one entry of the catalog."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.faults.job import LOOP, Job
from tests.faults.page import ALL, ELSEWHERE, LATER, NOTHING, REMOVED
from tests.faults.shim import Shim

__all__ = ["ALL", "ELSEWHERE", "LATER", "NOTHING", "REMOVED", "Fault"]


@dataclass(frozen=True)
class Fault:
    """What is injected, and what may differ from a healthy run.

    Attributes:
        name: unique, short.
        injected: how, for the page.
        host: which training.
        arguments: added to its command line, in the healthy reference, too.
        options: added in the monitored run only; see `Start`.
        within: words before its command, in the monitored run only.
        planted: a sitecustomize.py of the training, and of the healthy reference, too.
        prepare: called with the job's empty directory and the shim before the start; returns variables for
            the environment.
        around: called with the job's directory and port; what it holds is there from before the start until
            everything is checked.
        at: iteration after which `act` is called.
        act: does it to the running job.
        code: exit code of a job that the fault itself ends; None: the healthy reference's.
        reason: of the end, as the summary has it; a regular expression.
        jobs: trainings in the directory, beside or after one another; each has to keep everything.
        loses: what may be missing from the run file.
        kept_in: where the run file is looked for at the end, below the job's directory.
        says: what must be in the console output or among the recorded events, as proof that the fault was
            there.
        lines: lines about failures on the console, at most.
        then: called with the job after its end; asserts what is this fault's own to be checked.
        stops_s: so long the fault itself stops the training.
        times: how often it is run.
        short: part of `make test`.
    """

    name: str
    injected: str
    host: str = LOOP
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
    planted: str = ""
    prepare: Callable[[Path, Shim], dict[str, str]] = lambda directory, shim: {}
    around: Callable[[Path, int], AbstractContextManager[None]] = lambda directory, port: nullcontext()
    at: int = 0
    act: Callable[[Job], None] = lambda running: None
    code: int | None = None
    reason: str = "completed"
    jobs: int = 1
    loses: str = NOTHING
    kept_in: str = "perf"
    says: str = ""
    lines: int = 0
    then: Callable[[Job], None] = lambda running: None
    stops_s: float = 0.0
    times: int = 1
    short: bool = False

    @property
    def ends_early(self) -> bool:
        """Whether the job does not get through its iterations."""
        return self.code is not None
