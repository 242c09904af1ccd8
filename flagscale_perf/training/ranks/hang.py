"""A training whose next step does not come: which rank it waits for, and where that is.

The writer asks every rank what it is doing (`inquiry`). Ranks that evaluate or save a checkpoint are no hang,
and so is time in which the writer itself stood still.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from flagscale_perf.spine.averages import median
from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.limits import Limit
from flagscale_perf.spine.live import BEGINS, ENDS, FindingRecord
from flagscale_perf.spine.records import EventRecord, Record
from flagscale_perf.spine.units import numbered
from flagscale_perf.training.phases import Kind, of_kind
from flagscale_perf.training.rank_records import DoingRecord
from flagscale_perf.training.ranks.inquiry import ASK
from flagscale_perf.training.records import StepRecord
from flagscale_perf.training.requests import STACKS
from flagscale_perf.training.settled import is_judged

MISSED = Limit(10, "steps", "ours: so many usual steps without one; no training waits as long and goes on")
LEAST = Limit(60, "s", "ours: of silence; short steps wait longer for a disk or for Python's garbage")
UNKNOWN = Limit(600, "s", "ours: of silence before the first steps, which compile and connect")
LEAST_VARIABLE = "FLAGSCALE_PERF_HANG_S"  # instead of `LEAST` and `UNKNOWN`, for tests

HANG = "hang"  # the finding
PAUSES = ("eval", "checkpoint")
ANSWERS_NS = 15 * NS_PER_S  # all answers have come by then, also from other nodes, or never will
AGAIN_NS = 10 * NS_PER_S  # between inquiries of ranks that evaluate
STOOD_NS = 2 * NS_PER_S  # between two looks of the writer: more of it is no silence of the training
RECENT, FEWEST = 32, 3  # steps of which the median is the usual one
MOST_RECORDS, MOST_PARTS, MOST_THREADS = 256, 6, 2
_WAITING = of_kind(Kind.WAITING)
_LIBRARIES = ("python3", "torch/", "flagscale_perf/", "<")
_COLLECTIVE = "torch/distributed/"
_WORDS = {"start": "preparation of the first step", "eval": "evaluation", "between_steps": "between_steps"}


class HangWatch:
    """Looks whether steps come, in the writer's cycles."""

    def __init__(
        self, size: int, ask: Callable[[Mapping[str, int]], None], clock: Callable[[], int] = monotonic_ns
    ) -> None:
        """`size`: ranks of the job; `ask` sends a request to all of them."""
        least_s, unknown_s = LEAST.value, UNKNOWN.value
        with contextlib.suppress(LookupError, ValueError):
            least_s = unknown_s = float(os.environ[LEAST_VARIABLE])
        self._least_ns, self._unknown_ns = least_s * NS_PER_S, unknown_s * NS_PER_S
        self._size, self._ask, self._clock = size, ask, clock
        self._usual_ns: deque[int] = deque(maxlen=RECENT)
        self._looked_ns = clock()
        self._quiet_ns = 0  # without a step
        self._number = clock()  # of the last inquiry: another than any of a writer before this one
        self._asked_ns: int | None = None
        self._wait_ns = 0  # before the next inquiry
        self._answers: dict[int, DoingRecord] = {}
        self._is_asked = self._is_told = False
        self._over: list[Record] = []

    def replay(self, record: Record) -> None:
        """A record that a writer before this one has written: a hang that it has told is not told again."""
        if isinstance(record, StepRecord) and is_judged(record):
            self._usual_ns.append(record.iteration_ns)
        elif isinstance(record, FindingRecord) and record.finding == HANG:
            self._is_told = record.state == BEGINS

    def step(self, step: StepRecord) -> None:
        """One more step of rank 0 has come."""
        if is_judged(step):
            self._usual_ns.append(step.iteration_ns)
        if self._is_told:
            text = f"the hang is over: step {step.iteration} came after {self._quiet_ns / NS_PER_S:.0f} s"
            self._over.append(FindingRecord(HANG, ENDS, text))
        self._is_told, self._quiet_ns, self._wait_ns = False, 0, 0
        if not self._is_asked:
            self._asked_ns = None

    def stacks(self) -> None:
        """Somebody wants to know now what the ranks are doing."""
        self._is_asked, self._asked_ns = True, None

    def heard(self, answer: DoingRecord) -> None:
        """What a rank is doing."""
        self._answers[answer.rank] = answer

    def look(self) -> list[Record]:
        """What there is to write: the ranks of a hang or of a question, and a sentence."""
        now_ns = self._clock()
        passed_ns, self._looked_ns = min(now_ns - self._looked_ns, STOOD_NS), now_ns
        self._quiet_ns += passed_ns
        self._wait_ns = max(0, self._wait_ns - passed_ns)
        over, self._over = self._over, []
        return [*over, *self._looked(now_ns)]

    def _looked(self, now_ns: int) -> list[Record]:
        if not self._is_asked and (self._is_told or self._wait_ns or self._quiet_ns < self._limit_ns):
            return []
        if self._asked_ns is None:
            self._number, self._asked_ns, self._answers = self._number + 1, now_ns, {}
            self._ask({ASK: self._number})
            return []
        if len(self._answers) < self._size and now_ns - self._asked_ns < ANSWERS_NS:
            return []
        self._asked_ns = None
        if self._is_asked:
            self._is_asked = False
            told = what_they_do([*self._answers.values()], self._silent)
            return [*self._kept(), EventRecord(STACKS, now_ns, self._iteration, told)]
        if any(answer.where in PAUSES for answer in self._answers.values()):
            self._wait_ns = AGAIN_NS
            return []
        self._is_told = True
        return [*self._kept(), self._finding()]

    @property
    def _limit_ns(self) -> float:
        if len(self._usual_ns) < FEWEST:
            return self._unknown_ns
        return max(self._least_ns, MISSED.value * median(self._usual_ns))

    @property
    def _iteration(self) -> int:
        return max((each.iteration or 0 for each in self._answers.values()), default=0)

    def _kept(self) -> list[DoingRecord]:
        return [self._answers[rank] for rank in sorted(self._answers)][:MOST_RECORDS]

    @property
    def _silent(self) -> list[int]:
        return sorted(set(range(self._size)) - self._answers.keys())

    def _finding(self) -> FindingRecord:
        quiet_s, usual = self._quiet_ns / NS_PER_S, ""
        if len(self._usual_ns) >= FEWEST:
            usual = f" (usually one in {median(self._usual_ns) / NS_PER_S:.3g} s)"
        answers = [*self._answers.values()]
        late = held_up_by(answers, self._silent)
        ranks = [each.rank for each in late] if late or not self._silent else self._silent
        return FindingRecord(
            HANG,
            BEGINS,
            f"no step for {quiet_s:.0f} s{usual}: {what_they_do(answers, self._silent)}",
            severity=round(quiet_s, 1),
            unit="s",
            evidence={
                "ranks": sorted(ranks),
                "places": sorted(set(map(place_of, late))),
            },
        )


def held_up_by(ranks: Iterable[DoingRecord], silent: Sequence[int] = ()) -> list[DoingRecord]:
    """Those for which the others wait: none, where each waits for another, or for `silent` ones.

    They are in no collective; where all are in one, they are behind: they have begun fewer of a group than
    another rank has.
    """
    found = list(ranks)
    behind = _behind(found)
    at_work = [each for each in found if not waits(each)]
    late = [each for each in at_work if each in behind] or at_work or ([] if silent else behind)
    return late if silent or len(late) < len(found) or len(found) == 1 else []


def _behind(ranks: Sequence[DoingRecord]) -> list[DoingRecord]:
    begun: dict[str, int] = defaultdict(int)
    for each in ranks:
        for one in each.collectives:
            begun[one["group"]] = max(begun[one["group"]], one["begun"])
    return [each for each in ranks if any(one["begun"] < begun[one["group"]] for one in each.collectives)]


def waits(one: DoingRecord) -> bool:
    """Whether it is inside of a collective, or has asked for one that is not over."""
    if one.where is None:  # whatever it is in, it does not go on
        return False
    in_call = any(frame.startswith(_COLLECTIVE) for frame in one.stack)
    return in_call or one.phase in _WAITING or not all(each["is_over"] for each in one.collectives)


def place_of(one: DoingRecord) -> str:
    """The innermost frame that is neither of torch nor of Python's own library; the state of a process whose
    stack is not known.
    """
    return place_in(one.stack) or (one.stack[0] if one.stack else one.state or "an unknown place")


def place_in(stack: Sequence[str]) -> str:
    """That frame of a stack; "" where all are of libraries."""
    return next((frame for frame in stack if not frame.startswith(_LIBRARIES)), "")


def what_they_do(ranks: Sequence[DoingRecord], silent: Sequence[int] = ()) -> str:
    """One line: who holds the others up, and where; then the others. `silent`: of which nothing came."""
    late = {each.rank for each in held_up_by(ranks, silent)}
    alike: dict[tuple[bool, str], list[DoingRecord]] = defaultdict(list)
    for each in sorted(ranks, key=lambda one: (one.rank not in late, one.rank)):
        is_late = each.rank in late
        alike[is_late, _doing(each) + _beside(each) * is_late].append(each)
    has_others = len(late) < len(ranks)
    parts = [_part(those, what, is_late and has_others) for (is_late, what), those in alike.items()]
    if len(parts) > MOST_PARTS:
        parts[MOST_PARTS:] = [f"others are in {len(parts) - MOST_PARTS} more places"]
    if silent:
        waited = "the others wait for " * (not late)
        parts.insert(0, f"{waited}{numbered('rank', silent)}: nothing comes from there")
    elif not late and all(map(waits, ranks)):
        parts.append("each waits for another: look at the network between them")
    return "; ".join(parts)


def _part(those: Sequence[DoingRecord], what: str, is_late: bool) -> str:
    who = numbered("rank", [each.rank for each in those])
    if len(those) == 1:
        who += f" ({those[0].hostname}, pid {those[0].pid})"
    longest = max((each.for_ns for each in those if each.for_ns is not None), default=None)
    lasts = "" if longest is None else f" for {longest / NS_PER_S:.0f} s"
    return f"{'the others wait for ' * is_late}{who}:{lasts} {what}"


def _doing(one: DoingRecord) -> str:
    place = f"at {shown(place_of(one))}"
    if one.where is None:
        state = f" ({one.state})" * bool(one.state)
        return f"does not answer, as Python does not run there{state}{', ' + place if one.stack else ''}"
    under_way = [each for each in one.collectives if not each["is_over"]]
    calls = [f"{each['op']} {each['begun']} in group {each['group']}" for each in under_way]
    return ", ".join([f"in {one.phase or _WORDS.get(one.where, one.where)}", *calls, place])


def _beside(one: DoingRecord) -> str:
    """Other threads in code that is no library's: one of them may hold the lock that is waited for."""
    at = {name: place_in(frames) for name, frames in one.threads.items()}
    shows = [f"thread {name} at {shown(frame)}" for name, frame in at.items() if frame]
    return "".join(f"; {each}" for each in shows[:MOST_THREADS])


def shown(frame: str) -> str:
    """A frame with the last three parts of its path: `core/models/gpt.py:12 in forward`."""
    path, _, function = frame.partition(" ")
    return f"{'/'.join(path.split('/')[-3:])} in {function}" if function else frame
