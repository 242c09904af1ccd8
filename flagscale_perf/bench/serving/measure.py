"""Measures every arm, one run after another, and writes each as it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from flagscale_perf.bench import names
from flagscale_perf.bench.experiment import say
from flagscale_perf.bench.recording import Clock, Part
from flagscale_perf.bench.serving.cases import SEED, Arm, Case, Load
from flagscale_perf.bench.serving.options import Chosen
from flagscale_perf.spine.averages import median
from flagscale_perf.spine.errors import PerfError

if TYPE_CHECKING:
    from flagscale_perf.bench.serving.driver import Driver

GB = 1e9
WARM_OUTPUT = 8
Loads = Mapping[str, Callable[[Case], Load]]
Value = tuple[str, str, float | None, str]  # figure, unit, value, and where it is from


@dataclass(frozen=True)
class Result:
    """The times of one load, in seconds, one value a request.

    Attributes:
        ttft: from sending a request until its first token came back; tpot: for each further token, on
            average. Both leave out requests whose tokens came in less than half as many pieces: the client
            was not there when the first one came.
        in_few_pieces: how many requests these are.
        latency: until the last token.
        duration_s: from the first request sent until the last one was done.
        prompt_tokens, output_tokens: of all requests.
    """

    ttft: list[float]
    tpot: list[float]
    in_few_pieces: int
    latency: list[float]
    duration_s: float
    prompt_tokens: int
    output_tokens: int

    @property
    def output_per_s(self) -> float:
        """Tokens generated per second."""
        return self.output_tokens / self.duration_s

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second, including those of the prompts."""
        return (self.prompt_tokens + self.output_tokens) / self.duration_s


def job(case: Case) -> Load:
    """A fixed job: one batch, from its first request sent to its last token."""
    return Load(case, case.batch, case.batch)


def points_of(chosen: Chosen, loads: int) -> int:
    """Number of points that `measure` makes under so many loads."""
    rounds = len(chosen.arms) * chosen.repeats + (len(chosen.arms) > 1)
    return loads * rounds * sum(6 if case.output > 1 else 5 for case in chosen.cases)


def measure(part: Part, chosen: Chosen, engine: Driver, loads: Loads) -> None:
    """Measures one arm after another, every case under each of the loads, whose name is in the points unless
    it is "". Behind several arms the first is started and measured once more: how far the machine has
    drifted. Raises PerfError if the first arm fails.
    """
    measured = list[Arm]()
    again = [(chosen.arms[0], range(chosen.repeats, chosen.repeats + 1))] if len(chosen.arms) > 1 else []
    for arm, repetitions in [*((arm, range(chosen.repeats)) for arm in chosen.arms), *again]:
        try:
            with engine.serve(arm):
                _measure_arm(part, chosen, engine, _Turns(arm, repetitions, loads))
        except PerfError as error:
            if not measured:
                raise
            when = "at the end, for the drift: " if arm in measured else ""
            not_measured(part, arm, f"{when}{error}")
        else:
            measured.append(arm)


class _Turns(NamedTuple):
    arm: Arm
    repetitions: range
    loads: Loads


def _measure_arm(part: Part, chosen: Chosen, engine: Driver, turns: _Turns) -> None:
    arm, about = turns.arm, {**turns.arm.case, "engine": names.ENGINE}
    for case in {(case.batch, case.seq): case for case in chosen.cases}.values():
        # unmeasured: a size's first step compiles and allocates
        engine.run(Load(case._replace(output=min(WARM_OUTPUT, case.output)), case.batch, case.batch))
    for repetition, (name, load_of), case in product(turns.repetitions, turns.loads.items(), chosen.cases):
        load = load_of(case)._replace(seed=SEED + repetition)
        with part.timing() as clock:
            result = engine.run(load)
        at = {**about, **case._asdict(), "repetition": repetition, "in_flight": load.in_flight}
        keep(part, at | ({"job": name} if name else {}), result, clock)
        times = f"first token {_ms(result.ttft)}, then {_ms(result.tpot)}"
        say(f"{arm.name}, {repetition + 1}: {case.words}, {load.in_flight} in flight: {times}")
    for figure, unit, value, why in engine.values() if not turns.repetitions.start else ():
        part.value(figure, unit, about, value, why)


def keep(part: Part, case: Mapping[str, Any], result: Result, clock: Clock) -> None:
    """Writes a result as points."""
    for figure, unit, samples in (
        (names.TTFT, "s", result.ttft),
        (names.TPOT, "s", result.tpot),
        (names.LATENCY, "s", result.latency),
        (names.DURATION, "s", [result.duration_s]),
        (names.THROUGHPUT, "tokens/s", [result.output_per_s]),
        (names.TOKENS, "tokens/s", [result.tokens_per_s]),
    ):
        if samples:
            part.point(figure, unit, case, samples, clock)
    if few := result.in_few_pieces:
        part.value(names.FEW_PIECES, "", case, float(few), "requests whose tokens came several at once")


def not_measured(part: Part, arm: Arm, why: str) -> None:
    """Says why an arm has no figures."""
    part.value(names.DURATION, "s", {**arm.case, "engine": names.ENGINE}, None, why)
    say(f"{arm.name} is not measured: {why}")


def _ms(samples: Sequence[float]) -> str:
    return f"{1e3 * median(samples):.2f} ms" if samples else "-"
