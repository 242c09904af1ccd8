"""What a rank is doing at this moment, as it says itself when it is asked; see `training.ranks.inquiry`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from flagscale_perf.device.collectives import debug_server, last_ones
from flagscale_perf.device.timeline import Timeline
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.ring import MAX_ANSWER_BYTES
from flagscale_perf.training import stacks
from flagscale_perf.training.marks import spans
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.recording.loop import StepProfile

Where = Literal["start", "step", "between_steps", "eval", "checkpoint"]
MAX_GROUPS = 32
_ROOM = 200  # for the question, and what is around the answer


class Whereabouts(NamedTuple):
    """Where a training loop is.

    Attributes:
        where: "start" before the first step.
        iteration: the last finished one.
        since_ns: monotonic mark of when that began.
        timeline: of the marks, in a step that has some.
    """

    where: Where
    iteration: int
    since_ns: int
    timeline: Timeline | None = None


# Makes a profile of these iterations, first and last, on a side thread; none for a rank that is not profiled.
MakeProfile: TypeAlias = "Callable[[int, int], StepProfile | None]"


class Monitored(Protocol):
    """The training of this process, see `hooks.TrainingHooks`."""

    active: bool
    profile: StepProfile | None

    def whereabouts(self) -> Whereabouts:
        """Where it is."""


def answer(training: Monitored, thread: int, make: MakeProfile | None, question: str) -> str:
    """For the process that drains this rank's ring, on a side thread: what the rank is doing, or why it does
    not profile the steps it was asked to, "" if it does. `thread`: ident of the one that trains.
    """
    match json.loads(question):
        case {"profile": [int(first), int(last)]}:
            return _begin_profile(training, make, (first, last))
    return answer_of(training.whereabouts(), thread) if training.active else ""


def _begin_profile(training: Monitored, make: MakeProfile | None, window: tuple[int, int]) -> str:
    if not training.active:
        return "the monitor is switched off"
    if make is None:
        return "this host gives no model to the profiler"
    if training.profile is not None:
        return "another window is profiled, or will be"
    try:
        training.profile = make(*window)
    except Exception as error:  # the reason goes to whoever has asked
        return f"{'' if isinstance(error, PerfError) else type(error).__name__ + ': '}{error}"
    return ""


def answer_of(loop: Whereabouts, thread: int) -> str:
    """The answer as JSON, never longer than the ring has room for; `thread`: ident of the one that trains."""
    now_ns = monotonic_ns()
    phase, for_ns = None, now_ns - loop.since_ns
    if loop.timeline is not None:
        # what lasts from the last mark on
        number, for_ns = spans(loop.timeline.under_way(), loop.since_ns, now_ns)[-1]
        phase = PHASES[number]
    seen = stacks.own(thread)
    content: dict[str, Any] = {
        "iteration": loop.iteration,
        "where": loop.where,
        "phase": phase,
        "for_ns": for_ns,
        "stack": seen.main,
        "threads": seen.threads,
        "collectives": [each._asdict() for each in last_ones()[-MAX_GROUPS:]],
        "debug_port": debug_server(),
    }
    while len((answer := dump(content)).encode()) > MAX_ANSWER_BYTES - _ROOM:
        for name in ("threads", "stack", "collectives"):
            if content[name]:
                content[name].popitem() if name == "threads" else content[name].pop()
                break
    return answer
