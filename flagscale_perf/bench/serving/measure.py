"""Measures every arm, one run after another, and writes each as it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from flagscale_perf.bench import names
from flagscale_perf.bench.experiment import say
from flagscale_perf.bench.recording import Clock, Part
from flagscale_perf.bench.serving.cases import SEED, Arm, Load, Turn, case_of, turns
from flagscale_perf.bench.serving.options import Chosen
from flagscale_perf.spine.errors import PerfError

GB = 1e9
WARM_OUTPUT = 8
Loads = Mapping[str, Callable[[Turn], Load]]
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


class Engine(Protocol):
    """An engine that runs the model.

    Attributes:
        name: as in a point's case.
        failed: why, by the names of the arms that did not come up or were given up.
    """

    name: str
    failed: dict[str, str]

    def run(self, arm: Arm, load: Load) -> Result:
        """Makes one measurement. Raises PerfError if it fails."""

    def values(self, arm: Arm) -> Iterable[Value]:
        """Further figures of an arm, after its last measurement."""


def job(turn: Turn) -> Load:
    """A fixed job: one batch, from its first request sent to its last token."""
    return Load(turn.case, turn.case.batch, turn.case.batch, SEED + turn.repetition)


def measure(part: Part, chosen: Chosen, engine: Engine, loads: Loads) -> None:
    """Measures every case of every arm under each of the loads, whose name is in the points unless it is "".
    Arms that fail are in the engine's `failed`. Raises PerfError if the single device fails.
    """
    for arm in chosen.arms:
        if arm.name in engine.failed:
            _fail(part, engine, arm, engine.failed[arm.name])
        else:
            _warm(part, engine, arm, chosen)
    order = turns(chosen.arms, chosen.cases, chosen.repeats)
    for name, load in loads.items():
        for number, turn in enumerate(order, 1):
            if turn.arm.name not in engine.failed:
                said = _run(part, engine, turn, load(turn), {"job": name} if name else {})
                say(f"[{number}/{len(order)}] {turn.arm.name}: {said}")
    for arm in chosen.arms:
        if arm.name not in engine.failed:
            for figure, unit, value, why in engine.values(arm):
                part.value(figure, unit, {**arm.case, "engine": engine.name}, value, why)


def _warm(part: Part, engine: Engine, arm: Arm, chosen: Chosen) -> None:
    """Runs each size once unmeasured: its first step compiles and allocates."""
    try:
        for case in {(case.batch, case.seq): case for case in chosen.cases}.values():
            short = case._replace(output=min(WARM_OUTPUT, case.output))
            engine.run(arm, Load(short, case.batch, case.batch, 1))
    except PerfError as error:
        _fail(part, engine, arm, str(error))


def _run(part: Part, engine: Engine, turn: Turn, load: Load, more: Mapping[str, str]) -> str:
    case = {**case_of(turn, engine.name), "in_flight": load.in_flight, **more}
    try:
        with part.timing() as clock:
            result = engine.run(turn.arm, load)
    except PerfError as error:
        _fail(part, engine, turn.arm, str(error))
        return "failed"
    keep(part, case, result, clock)
    times = f"first token {_ms(result.ttft)}, then {_ms(result.tpot)}"
    return f"{turn.case.words}, {load.in_flight} in flight: {times}"


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


def _fail(part: Part, engine: Engine, arm: Arm, why: str) -> None:
    """Records that an arm was not measured, or not to the end. Raises PerfError for the single device."""
    if arm.devices == 1:
        raise PerfError(why)
    engine.failed[arm.name] = why
    not_measured(part, arm, engine.name, why)


def not_measured(part: Part, arm: Arm, engine: str, why: str) -> None:
    """Says why an arm has no figures."""
    part.value(names.DURATION, "s", {**arm.case, "engine": engine}, None, why)
    say(f"{arm.name} is not measured: {why}")


def points_of(order: Sequence[Turn]) -> int:
    """Number of points that the turns make."""
    return sum(6 if turn.case.output > 1 else 5 for turn in order)


def _ms(samples: Sequence[float]) -> str:
    return f"{1e3 * median(samples):.2f} ms" if samples else "-"
