"""Measures the arms by vLLM's bench, one run after another, and writes each as it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from flagscale_perf.bench import names
from flagscale_perf.bench.experiment import say
from flagscale_perf.bench.recording import Clock, Part
from flagscale_perf.bench.serving.cases import SEED, Arm, Case, Turn, case_of, turns
from flagscale_perf.bench.serving.driver import Driver, Load, Result
from flagscale_perf.bench.serving.options import Chosen
from flagscale_perf.spine.errors import PerfError

VLLM = "vllm"
GB = 1e9
WARM_OUTPUT = 8
Loads = Mapping[str, Callable[[Turn], Load]]


def job(turn: Turn) -> Load:
    """A fixed job: one batch, from its first request sent to its last token."""
    return Load(turn.case, turn.case.batch, turn.case.batch, SEED + turn.repetition)


def measure(part: Part, chosen: Chosen, in_flight: int, loads: Loads) -> set[str]:
    """Starts servers that take so many requests at a time, measures every case of every arm under each of the
    loads, whose name is in the points unless it is "", and returns the names of the arms that failed. Raises
    PerfError if the single device fails.
    """
    say(f"starting vLLM for {', '.join(arm.name for arm in chosen.arms)} ...")
    with Driver(chosen, in_flight) as driver:
        for arm in chosen.arms:
            if arm.name in driver.failed:
                _fail(part, driver, arm, driver.failed[arm.name])
            else:
                _warm(part, driver, arm, chosen.cases)
        order = turns(chosen.arms, chosen.cases, chosen.repeats)
        for name, load in loads.items():
            for number, turn in enumerate(order, 1):
                if turn.arm.name not in driver.failed:
                    said = _run(part, driver, turn, load(turn), {"job": name} if name else {})
                    say(f"[{number}/{len(order)}] {turn.arm.name}: {said}")
        for arm in chosen.arms:
            if arm.name not in driver.failed:
                _keep_memory(part, driver, arm)
    return set(driver.failed)


def _warm(part: Part, driver: Driver, arm: Arm, cases: Sequence[Case]) -> None:
    """Runs each size once unmeasured: its first step compiles and allocates."""
    try:
        for case in {(case.batch, case.seq): case for case in cases}.values():
            short = case._replace(output=min(WARM_OUTPUT, case.output))
            driver.run(arm, Load(short, case.batch, case.batch, 1))
    except PerfError as error:
        _fail(part, driver, arm, str(error))


def _run(part: Part, driver: Driver, turn: Turn, load: Load, more: Mapping[str, str]) -> str:
    case = {**case_of(turn, VLLM), "in_flight": load.in_flight, **more}
    try:
        with part.timing() as clock:
            result = driver.run(turn.arm, load)
    except PerfError as error:
        _fail(part, driver, turn.arm, str(error))
        return "failed"
    keep(part, case, result, clock)
    return (
        f"batch {turn.case.batch}, {turn.case.seq} + {turn.case.output} tokens, {load.in_flight} in flight:"
        f" first token {_ms(result.ttft)}, then {_ms(result.tpot)}"
    )


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


def _fail(part: Part, driver: Driver, arm: Arm, why: str) -> None:
    """Records that an arm was not measured, or not to the end. Raises PerfError for the single device."""
    if arm.devices == 1:
        raise PerfError(why)
    driver.failed[arm.name] = why
    not_measured(part, arm, why)


def not_measured(part: Part, arm: Arm, why: str) -> None:
    """Says why an arm has no figures."""
    part.value(names.DURATION, "s", {**arm.case, "engine": VLLM}, None, why)
    say(f"{arm.name} is not measured: {why}")


def _keep_memory(part: Part, driver: Driver, arm: Arm) -> None:
    """Also whether the server's cache was large enough."""
    server, case = driver.server(arm), {**arm.case, "engine": VLLM}
    part.value(
        names.MEMORY, "GB", case, server.memory_bytes() / GB, "resident in all processes of the server"
    )
    part.value(names.PREEMPTIONS, "", case, server.preemptions(), "vLLM's metrics")


def points_of(order: Sequence[Turn]) -> int:
    """Number of points that the turns make."""
    return sum(6 if turn.case.output > 1 else 5 for turn in order)


def _ms(samples: Sequence[float]) -> str:
    return f"{1e3 * median(samples):.2f} ms" if samples else "-"
