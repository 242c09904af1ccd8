"""A device that computes less than it could, and figures that cannot be true."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.rules import Advice, Change, Finding, rule
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.limits import Limit
from flagscale_perf.spine.units import percent
from flagscale_perf.training.analysis.findings.advice import halve, move, set_to, written
from flagscale_perf.training.analysis.findings.case import (
    SPARE_MEMORY,
    TrainingCase,
    TrainingRule,
    slows,
    warns,
)
from flagscale_perf.training.analysis.findings.gains import by_replay
from flagscale_perf.training.analysis.report import TrainingReport
from flagscale_perf.training.clocks import LOWER_CLOCK
from flagscale_perf.training.hardware import READ


@rule(
    limits={
        "mfu_suspect": Limit(
            0.75, "share", "ours: no training run on current devices has been published above 70 %"
        )
    },
    causes=[
        "the peak is of another device or data type",
        "packed documents count as whole sequences",
        "layers that the FLOPs count does not know",
    ],
    changes=[
        Change(
            ["--perf-peak-tflops"], "set it to the datasheet's dense peak of one device for this data type"
        ),
        Change([], "compare the FLOPs with `flagscale-perf flops`"),
    ],
)
def mfu_suspect(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """An MFU that no device reaches."""
    figures = case.report.figures
    if figures.suspect_intervals:
        highest = max((point.number("mfu") or 0.0 for point in case.report.trend.points), default=0.0)
        title = (
            f"Intervals above the peak: {figures.suspect_intervals:,} of {figures.intervals:,}. "
            "The peak, the data type or the count of FLOPs is wrong"
        )
        return warns(this, title, [this.broke("highest MFU of an interval", highest, "mfu_suspect")])
    if figures.mfu is None or not this.exceeds(figures.mfu, "mfu_suspect"):
        return None
    title = f"MFU of {percent(figures.mfu)} is more than a device is likely to do"
    return warns(this, title, [this.broke("MFU", figures.mfu, "mfu_suspect")])


@rule(
    limits={
        "mfu_by_counter": Limit(
            0.03,
            "share",
            "arXiv 2605.20799: counter and clock are within 2 points of the true MFU; ours: one more, as the "
            "clock is read once a second",
        ),
        "mfu_by_counter_s": Limit(60, "s", "ours: so many readings of the clock even out"),
    },
    causes=[
        "the formula is wrong for this model: experts, a hybrid layer, packed documents",
        "work that is not the model's: another process, hidden from a container; a check within the step",
        "products that the formula lacks (padding, masked blocks of attention) or no tensor core does",
        "rank 0's experts receive more or fewer tokens than the others'",
    ],
    changes=[
        Change([], "compare the FLOPs with `flagscale-perf flops`, and the layers with a profile"),
        Change([], "see what else runs on the device (nvidia-smi)"),
    ],
)
def mfu_by_counter(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """An MFU that the tensor cores' counter of rank 0's device does not confirm."""
    read = case.report.hardware
    by_counter, by_formula = read.mfu_by_counter, read.mfu_by_formula
    if by_counter is None or by_formula is None or why_not_compared(case.report) is not None:
        return None
    apart = abs(by_counter - by_formula)
    if not this.exceeds(apart, "mfu_by_counter") or not this.exceeds(read.counter_read_s, "mfu_by_counter_s"):
        return None
    title = f"MFU is {percent(by_formula)} by the formula, {percent(by_counter)} by the tensor cores' counter"
    found = warns(this, title, [this.broke("MFU by counter and by formula, apart", apart, "mfu_by_counter")])
    return replace(found, ranks=[0])


def why_not_compared(report: TrainingReport) -> str | None:
    """Why a known MFU cannot be held against the tensor cores' counter; None where it is."""
    read, device = report.hardware, report.overview.device
    is_known, read_s, train_s = (
        read.mfu_by_counter is not None,
        read.counter_read_s or 0,
        report.figures.train_s,
    )
    part = f"read in {read_s:.0f} s of {train_s:.0f} s trained; it needs Hopper or later, and no MIG slices"
    unknown = f"how much {device} multiplies in a clock is not known, devices differ, or there is fp8"
    reasons = [
        ((read.max_processes or 0) > 1, f"{read.max_processes} processes are on rank 0's device"),
        (not is_known and read_s < READ[0] * train_s, part),
        (report.overview.parallel.get("PP", 1) > 1, "rank 0's device has one stage of several"),
        (report.figures.hardware_flops is None, "hardware FLOPs are not known"),
        (not is_known, unknown),
    ]
    return next((reason for applies, reason in reasons if applies), None)


@rule(
    needs_speed=True,
    explains={"jitter", "slowdown"},
    limits={
        "throttling": Limit(0.01, "share", "ours: time lost to a lower clock is worth a look from 1 % on"),
        "throttling_clock": LOWER_CLOCK,
        "throttling_slower": Limit(
            3.1,
            "times",
            "Mann-Whitney, standard deviations: intervals that only vary exceed it in 1 of 1000 runs",
        ),
    },
    causes=[
        "power limit below the device's default",
        "cooling: fans, filters, a hot place in the rack",
        "a power supply that failed",
    ],
    changes=[
        Change(
            [],
            "look at the device (nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE); "
            "raise its power limit or leave its node out",
        )
    ],
)
def throttling(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Intervals whose clock a cap held below the run's highest, against the median of the other intervals."""
    signals = case.signals
    trouble, lowest = signals.throttled, signals.lowest_clock
    if not trouble.steps or lowest is None:
        return None
    caps = " and ".join(sorted(signals.caps))
    evidence = [this.broke("lowest clock, of the run's highest", lowest, "throttling_clock")]
    excess_ns = trouble.excess_ns(signals.usual_ns())
    if excess_ns is None:
        title = f"The clock of rank 0's device is capped by {caps} in every interval"
        found = warns(this, title, evidence)
    else:
        share = case.share_of_steps(excess_ns / NS_PER_S)
        is_slower = this.exceeds(signals.slower(trouble), "throttling_slower")
        if share is None or not is_slower or not this.exceeds(share, "throttling"):
            return None
        title = (
            f"The clock of rank 0's device, capped by {caps}, slows {trouble.steps} steps down: "
            f"{percent(share)} of all steps' time"
        )
        evidence.append(this.broke("time above the median interval without a cap", share, "throttling"))
        found = slows(this, case, title, share, evidence)
    return replace(found, first_iteration=trouble.first_iteration, iteration=trouble.iteration, ranks=[0])


def _twice_the_micro_batch(case: TrainingCase, now: float) -> float | None:
    """None where the global batch cannot be divided into such micro-batches."""
    whole, replicas = case.number("global_batch_size"), case.number("data_parallel_size") or 1
    passes = 2 * now * replicas
    return 2 * now if whole is None or (passes > 0 and whole % passes == 0) else None


@rule(
    needs_speed=True,
    limits={
        "micro_batch_tokens": Limit(
            2048, "", "ours: rows of a GEMM below which large devices wait for memory and for launches"
        ),
        "micro_batch_mfu": Limit(
            0.30,
            "share",
            "Megatron-LM's README reports 41 % to 48 % on H100 from 2 to 462 billion parameters",
        ),
        "spare_memory": SPARE_MEMORY,
    },
    causes=["kernels too small for the device: launches and memory, not arithmetic, take the time"],
    changes=[
        move("--micro-batch-size", "double it, at the same --global-batch-size", _twice_the_micro_batch),
        halve(
            "--tensor-model-parallel-size", "lower it, if the model fits: larger kernels, less communication"
        ),
    ],
)
def small_micro_batch(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Few tokens of a micro-batch on a device with room for more, and a low MFU while it computes."""
    tokens, mfu = _micro_batch_tokens(case), case.report.rates.mfu
    is_doubtful = case.report.figures.suspect_intervals > 0
    if tokens is None or mfu is None or is_doubtful or not case.has_spare_memory():
        return None
    computing = case.phase_share("forward", "backward")
    mfu_computing = mfu / computing if computing > 0 else mfu
    is_full = mfu_computing >= this.limits["micro_batch_mfu"].value
    if this.exceeds(tokens, "micro_batch_tokens") or is_full:
        return None
    title = (
        f"A micro-batch has only {tokens} tokens for a device, "
        f"which reaches {percent(mfu_computing)} of its peak while it computes"
    )
    evidence = [
        this.broke("tokens of a micro-batch on one device, at most", tokens, "micro_batch_tokens"),
        this.broke("MFU while computing, below", mfu_computing, "micro_batch_mfu"),
    ]
    return warns(this, title, evidence)


def _micro_batch_tokens(case: TrainingCase) -> int | None:
    """Tokens of a micro-batch on one device; None if a size is not known."""
    overview = case.report.overview
    if overview.micro_batch_size is None or overview.seq_length is None:
        return None
    return overview.micro_batch_size * overview.seq_length // max(1, overview.parallel.get("CP", 1))


def _fewer_layers(case: TrainingCase) -> Change | None:
    flags, text = ["--recompute-method", "--recompute-num-layers"], "with as many layers as memory needs"
    layers = case.number("recompute_num_layers")
    if case.argument("recompute_method") != "block":
        layers = case.number("num_layers")
        layers = layers and layers // (case.number("pipeline_model_parallel_size") or 1)
    if layers is None:
        return Change([f"{flags[0]} block", flags[1]], text)
    half = int(layers // 2)
    return written(case, {flags[0]: "block", flags[1]: half}, f"{text}; half of them now") if half else None


@rule(
    needs_speed=True,
    limits={
        "full_recompute": Limit(
            1.2,
            "times",
            "Korthikanti et al. (2022): full recomputation does one more forward pass, a third more FLOPs",
        ),
        "spare_memory": SPARE_MEMORY,
    },
    causes=["recomputation is left over from a larger job"],
    changes=[
        set_to("--recompute-granularity", "selective", "instead of full"),
        Advice(
            ["--recompute-method", "--recompute-num-layers"],
            "block, with as many layers recomputed as memory needs",
            make=_fewer_layers,
        ),
    ],
)
def full_recompute(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Activations computed again though there is room to keep them."""
    figures = case.report.figures
    if not figures.model_flops or not figures.hardware_flops or not case.has_spare_memory():
        return None
    ratio = figures.hardware_flops / figures.model_flops
    if not this.exceeds(ratio, "full_recompute"):
        return None
    computing = case.phase_share("forward", "backward") if case.report.phases.steps else 1.0
    share, full = (1 - 1 / ratio) * computing, case.report.memory.peak_share or 0.0
    title = (
        f"Recomputing activations takes {percent(share)} of the steps' time "
        f"though memory is only {percent(full)} full"
    )
    evidence = [
        this.broke("FLOPs with recomputation against the model's", ratio, "full_recompute"),
        this.broke("peak, of the device's memory, below", full, "spare_memory"),
    ]
    return by_replay(case, slows(this, case, title, share, evidence), "recompute=selective")
