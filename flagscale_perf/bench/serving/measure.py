"""Runs the measurements one after another and writes each as it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from flagscale_perf.bench.experiment import say
from flagscale_perf.bench.names import (
    AGAIN,
    CACHE,
    DURATION,
    FEW_PIECES,
    LATENCY,
    MEMORY,
    PREEMPTIONS,
    THROUGHPUT,
    TOKENS,
    TPOT,
    TTFT,
)  # fmt: skip
from flagscale_perf.bench.recording import Clock, Part
from flagscale_perf.bench.serving.cases import Arm, Case, Turn, case_of
from flagscale_perf.bench.serving.driver import Driver, Load, Setup
from flagscale_perf.bench.serving.options import Chosen
from flagscale_perf.bench.serving.results import Result
from flagscale_perf.spine.errors import PerfError

VLLM = "vllm"
GB = 1e9
WARM_OUTPUT = 8


def setup_of(chosen: Chosen, in_flight: int, args: Any, profiled: dict[str, dict[str, str]]) -> Setup:
    """Settings for servers that can run every case."""
    return Setup(
        python=chosen.python or "", model=chosen.model, devices=chosen.devices,
        longest=chosen.model.longest or max(case.tokens for case in chosen.cases) + 1, in_flight=in_flight,
        directory=chosen.directory, is_eager=chosen.is_eager,
        start_s=float(args.start_timeout), port=args.vllm_port, profiled=profiled, blocks=args.kv_blocks,
    )  # fmt: skip


def warm(driver: Driver, arm: Arm, cases: Sequence[Case]) -> None:
    """Runs each size once unmeasured: its first step compiles and allocates. Raises PerfError."""
    for case in {(case.batch, case.seq): case for case in cases}.values():
        short = Case(case.batch, case.seq, min(WARM_OUTPUT, case.output))
        driver.run(arm, Load(short, case.batch, case.batch, 0, 1))


def keep(part: Part, case: Mapping[str, Any], result: Result, clock: Clock) -> None:
    """Writes a result as points."""
    for figure, unit, samples in (
        (TTFT, "s", result.ttft), (TPOT, "s", result.tpot), (LATENCY, "s", result.latency),
        (DURATION, "s", [result.duration_s]), (THROUGHPUT, "tokens/s", [result.output_per_s]),
        (TOKENS, "tokens/s", [result.tokens_per_s]),
    ):  # fmt: skip
        if samples:
            part.point(figure, unit, case, samples, clock)
    if result.in_few_pieces:
        part.value(
            FEW_PIECES, "", case, float(result.in_few_pieces), "requests whose tokens came several at once"
        )


def run_turns(
    part: Part, driver: Driver, turns: Sequence[Turn], load: Callable[[Turn], Load], more: Mapping[str, Any]
) -> None:
    """Runs every turn. An arm that fails is reported once and left out from then on. Raises PerfError if the
    single device fails.
    """
    for number, turn in enumerate(turns, 1):
        arm = turn.arm
        if arm.name in driver.failed:
            continue
        wanted = load(turn)
        case = {**case_of(turn, VLLM), "in_flight": wanted.in_flight, **more}
        try:
            with part.timing() as clock:
                result = driver.run(arm, wanted)
        except PerfError as error:
            if arm.devices == 1:
                raise
            fail(part, driver, arm, str(error))
            continue
        keep(part, case, result, clock)
        say(
            f"[{number}/{len(turns)}] {arm.name}: batch {turn.case.batch}, {turn.case.seq} +"
            f" {turn.case.output} tokens, {wanted.in_flight} in flight: first token"
            f" {_ms(result.ttft)}, then {_ms(result.tpot)}"
        )


def fail(part: Part, driver: Driver, arm: Arm, why: str) -> None:
    """Records that an arm was not measured, or not to the end."""
    driver.failed[arm.name] = why
    part.value(DURATION, "s", {**arm.case, "engine": VLLM}, None, why)
    say(f"{arm.name} is not measured: {why}")


def keep_memory(part: Part, driver: Driver, arms: Sequence[Arm]) -> None:
    """Writes how much memory each arm's server holds, and whether its cache was large enough."""
    for arm in arms:
        if arm.name in driver.failed or arm.name == AGAIN:
            continue
        server, case = driver.server(arm), {**arm.case, "engine": VLLM}
        part.value(MEMORY, "GB", case, server.memory_bytes() / GB, "resident in all processes of the server")
        cache = server.gauge("kv_cache_size_tokens")
        why = "" if cache is not None else "vLLM's metrics have no kv_cache_size_tokens"
        part.value(CACHE, "tokens", case, cache, why or "vLLM's metrics")
        preempted = server.gauge("num_preemptions_total")
        part.value(PREEMPTIONS, "", case, preempted, "vLLM's metrics")


def points_of(turns: Sequence[Turn]) -> int:
    """Number of points that the turns make."""
    return sum(6 if turn.case.output > 1 else 5 for turn in turns)


def _ms(samples: Sequence[float]) -> str:
    return f"{1e3 * median(samples):.2f} ms" if samples else "-"
