"""Prepares a session before its first step: the facts of its run, the peak, how its FLOPs are counted, and
what will be missing from its records.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.device.peaks import flop_per_clock, mean_peak, peak_in_force
from flagscale_perf.device.probe import DeviceProbe
from flagscale_perf.flops_calculator import ModelShape, Packed, step_flops, work_flops
from flagscale_perf.options.peak import PeakOption
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.figures import TABLE
from flagscale_perf.training.phases import ONE_F_ONE_B
from flagscale_perf.training.ranks.blocks import RankIdentity
from flagscale_perf.training.ranks.place import Place
from flagscale_perf.training.recording.loop import CountFlops, Flops, Loop


def identity_of(loop: Loop, device: DeviceProbe) -> RankIdentity:
    """This rank's identity among the others."""
    process = loop.rank(), os.uname().nodename, os.getpid()
    return RankIdentity(*process, device.name, device.uuid, loop.stage(), loop.lockstep(), *loop.microbatch())


def facts_and_flops(loop: Loop, config: PerfConfig, device: DeviceProbe) -> tuple[RunFacts, CountFlops]:
    """The host's facts, completed, and the function that counts a step's FLOPs. Raises PerfError."""
    facts = replace(loop.facts(device.name), device_uuid=device.uuid, device_memory_bytes=device.memory_bytes)
    facts = _with_peak(loop, config, facts)
    missing = [*facts.missing, *_missing_counters(device), *_missing_ranks(facts), *_missing_columns(config)]
    if config.perf_breakdown:
        missing += _missing_phases(loop, facts)
    elif config.perf_capture_steps:
        missing.append("raw marks (--perf-capture-steps needs --perf-breakdown)")
    try:
        args = loop.model_args()
        shape = ModelShape.from_args(args)
        shape.check_step()
    except PerfError as error:
        return replace(facts, missing=[*missing, f"TFLOPS, MFU and HFU ({error})"]), unknown_flops
    if shape.hardware_unknown:
        missing.append(f"HFU ({shape.hardware_unknown})")
    facts = replace(
        facts,
        flops_convention=shape.convention,
        model_family=shape.family,
        model=shape.as_dict(),
        flop_per_clock=None if _has_narrow_products(args) else facts.flop_per_clock,
        missing=missing,
        work_flops=work_flops(shape, facts.pipeline_parallel or 1),
    )
    return facts, _flops_of(shape, facts.seq_length or 0)


def unknown_flops(samples: int, packed: Packed | None) -> Flops:
    """No FLOPs: for a model of unknown shape, and for ranks other than 0, which count nothing."""
    return None, None


def _with_peak(loop: Loop, config: PerfConfig, facts: RunFacts) -> RunFacts:
    given = None if config.perf_peak_tflops is None else PeakOption.parse(config.perf_peak_tflops)
    ranks = loop.device_types()
    if len(ranks) > 1:
        peak, per_clock = mean_peak(given, ranks, facts.world_size), None
    else:
        dtype = facts.dtype or ""
        peak = peak_in_force(given, facts.device, dtype)
        per_clock = flop_per_clock(facts.device, dtype)
    return replace(facts, peak_flop_per_s=peak.flop_per_s, peak_source=peak.source, flop_per_clock=per_clock)


def _has_narrow_products(args: Any) -> bool:
    """Whether some products are in fp8 or fp4, whose clocks do two or four times as much."""
    given = args if isinstance(args, Mapping) else vars(args)
    return any(given.get(name) for name in ("fp8", "fp4"))


def _missing_counters(device: DeviceProbe) -> list[str]:
    if device.uuid is not None:
        return []
    return [f"hardware counters ({device.name} has no id to find them by)"]


def _missing_ranks(facts: RunFacts) -> list[str]:
    if facts.world_size < 2 or Place.of(os.environ) is not None:
        return []
    return ["other ranks (the environment has no RANK, WORLD_SIZE and LOCAL_RANK)"]


def _missing_columns(config: PerfConfig) -> list[str]:
    try:
        TABLE.named(config.columns())
    except PerfError as error:
        return [f"the columns of --perf-columns ({error}); the logs have the usual ones"]
    return []


def _missing_phases(loop: Loop, facts: RunFacts) -> list[str]:
    if not loop.names_phases():
        return ["phases (the host has no timers that mark them)"]
    schedule = facts.pipeline_schedule
    if schedule not in (None, ONE_F_ONE_B):
        return [f"pipeline bubble (it is known for the {ONE_F_ONE_B} schedule only, this one is {schedule})"]
    return []


def _flops_of(shape: ModelShape, seq_length: int) -> CountFlops:
    def flops(samples: int, packed: Packed | None) -> Flops:
        return step_flops(shape, samples, seq_length, packed)

    return flops
