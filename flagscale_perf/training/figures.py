"""Training's table of figures: everything that is shown of an interval. A new figure is one row here.

Sums over sums, never means of rates; None where a part is not known. `make pages` writes
the table to docs/generated/figures.md.
"""

from __future__ import annotations

from typing import NamedTuple

from flagscale_perf.spine.figures import (
    CELSIUS,
    GIBIBYTES,
    GIGABYTES,
    MEGAHERTZ,
    MILLISECONDS,
    PLAIN,
    SECONDS,
    SHARE,
    TERAFLOPS,
    WATTS,
    Column,
    Figure,
    Gauge,
    OtlpMetric,
    Table,
    Unit,
    Watched,
)
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.spine.session import Labels
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.flagscale_names import CURVES, LOGS, NAMES
from flagscale_perf.training.hardware import (
    CAPS,
    mean_power_mw,
    mfu_by_counter,
    reasons_in,
    tokens_per_joule,
)
from flagscale_perf.training.memory import fragmentation
from flagscale_perf.training.phases import GROUPS, PHASES, share, total_of
from flagscale_perf.training.rates import known_tokens, per_device, per_second, per_step
from flagscale_perf.training.records import IntervalRecord
from flagscale_perf.training.utilisation import Scale, Utilisation, Work

WARMUP_MARK = "warm-up"
MEGATRON = "megatron.training."  # of its own metrics: their names, kinds, units, and what they are of
STEP_DURATION = OtlpMetric(f"{MEGATRON}step_duration_ms", "histogram", "ms")
MEMORY_ALLOCATED = OtlpMetric(f"{MEGATRON}memory_allocated_gb", shown=GIBIBYTES)
BREAKDOWN = "perf_breakdown"
SAMPLES_PER_S, TOKENS_PER_S = Unit("samples/s", decimals=1), Unit("tokens/s")
TOKENS_PER_J = Unit("tokens/J", decimals=2)
LOSSES, LEARNING_RATES = Unit(decimals=4), Unit(decimals=7)
# Of the groups that are shown with phases: with the columns before them and a mark behind, a line has at most
# 160 characters.
GROUP_COLUMNS = {
    "Data": "Data%", "Forward": "Fwd%", "Backward": "Bwd%", "Pipe": "Pipe%", "Comm": "Comm%",
    "Optim": "Optim%",
}  # fmt: skip

Row = Figure[IntervalRecord, "Run"]


class Run(NamedTuple):
    """Values that are the same for all intervals of a run."""

    scale: Scale
    labels: Labels
    start_wall_ns: int

    @classmethod
    def of(cls, header: RunHeader) -> Run:
        """Raises ValueError for a header whose session id is none."""
        return cls(Scale.of(RunFacts.of(header.facts)), Labels(header), header.start_wall_ns)


def _utilisation(interval: IntervalRecord, run: Run) -> Utilisation:
    return Work.of(interval).utilisation(run.scale)


def _flop_per_s(interval: IntervalRecord) -> float | None:
    return per_second(interval.model_flops, interval.iteration_ns)


_PLACE: tuple[Row, ...] = (
    Row("iteration", "iteration", PLAIN, lambda i, run: i.iteration,
        "number of the interval's last iteration", column=Column("Step", 9), in_summary=True),
    Row("first_iteration", "first iteration", PLAIN, lambda i, run: i.first_iteration,
        "number of its first iteration"),
    Row("steps", "steps", PLAIN, lambda i, run: i.steps, "train steps in the sums"),
    Row("timestamp", "time", PLAIN, lambda i, run: run.labels.at(i.end_wall_ns).isoformat(sep=" "),
        "local time of the interval's end", in_summary=True),
    Row("elapsed_s", "elapsed", SECONDS, lambda i, run: i.end_wall_ns - run.start_wall_ns,
        "from the session's start to the interval's end"),
)  # fmt: skip

# The requirement's own files fix the summary's TFLOPS_per_GPU and tokens_per_sec, and TensorBoard's tags of
# these figures and of memory; the names beside them follow theirs. Prometheus has conventions of its own.
_SPEED: tuple[Row, ...] = (
    Row("tflops_per_gpu", "TFLOPS per GPU", TERAFLOPS,
        lambda i, run: per_device(_flop_per_s(i), run.scale.world_size), "TFLOPS / world size",
        column=Column("TFLOPS/GPU", 13), watch=Watched(1, "TFLOPS/GPU"),
        curve="performance/tflops_per_gpu",
        gauge=Gauge("device_model_flops_per_second", "Model FLOP/s of one device, last interval."),
        in_summary=True, summary_key="TFLOPS_per_GPU",
        otlp=OtlpMetric(f"{MEGATRON}throughput_tflops")),
    Row("tflops", "TFLOPS", TERAFLOPS, lambda i, run: _flop_per_s(i),
        "Σ model_flops / Σ iteration_ns / 10¹²", column=Column("TFLOPS", 11),
        curve="performance/tflops_total",
        gauge=Gauge("model_flops_per_second", "Model FLOP/s of all devices together, last interval."),
        in_summary=True, summary_key="TFLOPS"),
    Row("samples_per_s", "samples a second", SAMPLES_PER_S,
        lambda i, run: per_second(i.samples, i.iteration_ns), "Σ samples / Σ iteration_ns",
        column=Column("Samples/s", 13), watch=Watched(4, "samples/s"),
        curve="performance/samples_per_second",
        gauge=Gauge("samples_per_second", "Sequences trained a second, last interval."), in_summary=True,
        summary_key="samples_per_sec"),
    Row("tokens_per_s", "tokens a second", TOKENS_PER_S,
        lambda i, run: per_second(known_tokens(i.tokens, i.samples), i.iteration_ns),
        "Σ tokens / Σ iteration_ns", column=Column("Tokens/s", 13), watch=Watched(3, "tokens/s"),
        curve="performance/tokens_per_second",
        gauge=Gauge("tokens_per_second", "Tokens trained a second, last interval."), in_summary=True,
        summary_key="tokens_per_sec",
        otlp=OtlpMetric(f"{MEGATRON}tokens_per_sec")),
    Row("samples", "samples", PLAIN, lambda i, run: i.samples, "Σ samples: sequences trained"),
    Row("tokens", "tokens", PLAIN, lambda i, run: known_tokens(i.tokens, i.samples), "Σ tokens trained"),
    Row("skipped_samples", "skipped samples", PLAIN, lambda i, run: i.skipped_samples,
        "Σ sequences consumed without training"),
)  # fmt: skip

_ITERATION: tuple[Row, ...] = (
    Row("iteration_ms", "mean iteration", MILLISECONDS, lambda i, run: per_step(i.iteration_ns, i.steps),
        "Σ iteration_ns / steps / 10⁶", column=Column("Time(ms)", 11), watch=Watched(5, "iteration"),
        curve="time/iteration_ms",
        gauge=Gauge("iteration_mean_seconds", "Mean iteration of the last interval."), in_summary=True,
        summary_key="iteration_time_ms",
        otlp=STEP_DURATION),
    Row("iteration_p50_ms", "p50 of the iterations", MILLISECONDS, lambda i, run: i.iteration_p50_ns,
        "median of iteration_ns"),
    Row("iteration_p95_ms", "p95 of the iterations", MILLISECONDS, lambda i, run: i.iteration_p95_ns,
        "95th percentile of iteration_ns", watch=Watched(6, "p95"),
        gauge=Gauge("iteration_p95_seconds", "95th percentile of the last interval's iterations.")),
    Row("iteration_max_ms", "longest iteration", MILLISECONDS, lambda i, run: i.iteration_max_ns,
        "highest iteration_ns",
        gauge=Gauge("iteration_max_seconds", "Longest iteration of the last interval.")),
)  # fmt: skip

_MEMORY: tuple[Row, ...] = (
    Row("memory_gb", "memory", GIGABYTES, lambda i, run: i.memory_bytes,
        "memory_bytes / 10⁹ (GB is 10⁹ bytes, GiB would be 2³⁰)", column=Column("Memory(GB)", 12),
        watch=Watched(7, "memory"), curve="memory/current_gb",
        gauge=Gauge("memory_allocated_bytes", "Memory of rank 0's device in tensors."), in_summary=True),
    Row("memory_peak_gb", "peak memory", GIGABYTES, lambda i, run: i.memory_peak_bytes,
        "memory_peak_bytes / 10⁹", column=Column("Peak(GB)", 10, unless=BREAKDOWN),
        watch=Watched(8, "peak memory"), curve="memory/peak_gb",
        gauge=Gauge("memory_peak_bytes", "Highest memory_allocated_bytes of the process."), in_summary=True,
        otlp=MEMORY_ALLOCATED),
    Row("memory_reserved_gb", "reserved memory", GIGABYTES, lambda i, run: i.memory_reserved_bytes,
        "memory_reserved_bytes / 10⁹", curve="memory/reserved_gb",
        gauge=Gauge("memory_reserved_bytes", "Memory of rank 0's device that the allocator holds."),
        in_summary=True),
    Row("fragmentation", "fragmentation", SHARE,
        lambda i, run: fragmentation(i.memory_bytes, i.memory_reserved_bytes),
        "(reserved - allocated) / reserved",
        curve="memory/fragmentation", in_summary=True),
    Row("alloc_retries", "allocator retries", PLAIN, lambda i, run: i.memory_retries,
        "memory_retries: since the process began",
        curve="memory/alloc_retries", in_summary=True),
)  # fmt: skip

_LOGGED: tuple[Row, ...] = (
    Row("loss", "loss", LOSSES, lambda i, run: i.loss, "as the host logs it",
        watch=Watched(12, "loss"), curve="training/loss",
        gauge=Gauge("loss", "Mean of the losses that the host logged in the last interval."),
        in_summary=True,
        otlp=OtlpMetric(f"{MEGATRON}loss")),
    Row("grad_norm", "gradient norm", LOSSES, lambda i, run: i.grad_norm, "as the host logs it",
        curve="training/grad_norm",
        gauge=Gauge("gradient_norm", "Mean of the norms that the host logged in the last interval."),
        otlp=OtlpMetric(f"{MEGATRON}grad_norm")),
    Row("learning_rate", "learning rate", LEARNING_RATES, lambda i, run: i.learning_rate,
        "the last that the host logged", curve="training/learning_rate",
        gauge=Gauge("learning_rate", "The last that the host logged."),
        otlp=OtlpMetric(f"{MEGATRON}learning_rate")),
)  # fmt: skip

_HARDWARE: tuple[Row, ...] = (
    Row("power_w", "power", WATTS, lambda i, run: mean_power_mw(i),
        "energy_mj / energy_ns, or else power_mw / 1000", watch=Watched(9, "power"),
        curve="hardware/power_w",
        gauge=Gauge("power_watts", "Of rank 0's device, mean of the last interval."), in_summary=True),
    Row("tokens_per_joule", "tokens per joule", TOKENS_PER_J, lambda i, run: tokens_per_joule(i, run.scale),
        "Σ tokens / Σ iteration_ns / world size / power",
        curve="hardware/tokens_per_joule", in_summary=True),
    Row("sm_clock_mhz", "SM clock", MEGAHERTZ, lambda i, run: i.sm_clock_mhz, "lowest reading",
        curve="hardware/sm_clock_mhz",
        gauge=Gauge("sm_clock_hertz", "Lowest of rank 0's device in the last interval."), in_summary=True),
    Row("temperature_c", "temperature", CELSIUS, lambda i, run: i.temperature_c, "highest reading",
        curve="hardware/temperature_c",
        gauge=Gauge("temperature_celsius", "Highest of rank 0's device in the last interval."),
        in_summary=True),
    Row("throttle", "why the clock is not higher", PLAIN, lambda i, run: i.throttle, "every reason read",
        in_summary=True),
)  # fmt: skip

_UTILISATION: tuple[Row, ...] = (
    Row("mfu", "MFU", SHARE, lambda i, run: _utilisation(i, run).mfu,
        "Σ model_flops / Σ iteration_ns / world size / dense peak of one device", column=Column("MFU(%)", 8),
        watch=Watched(2, "MFU"), curve="performance/mfu",
        gauge=Gauge("mfu_ratio", "Model FLOPs utilisation of the last interval; absent where no peak is "
                    "known and where it is above 1."),
        in_summary=True, limit=1),
    Row("hfu", "HFU", SHARE, lambda i, run: _utilisation(i, run).hfu,
        "Σ hardware_flops / Σ iteration_ns / world size / dense peak of one device",
        column=Column("HFU(%)", 8, unless=BREAKDOWN), curve="performance/hfu",
        gauge=Gauge("hfu_ratio", "Hardware FLOPs utilisation of the last interval; absent like mfu_ratio."),
        in_summary=True, limit=1),
    Row("mfu_by_counter", "MFU by counter", SHARE, lambda i, run: mfu_by_counter(i, run.scale),
        "tensor_cycles × FLOP of a clock / tensor_ns / dense peak × Σ model_flops / Σ hardware_flops, "
        "of rank 0's device", watch=Watched(10, "MFU counted"), curve="performance/mfu_by_counter",
        gauge=Gauge("mfu_by_counter_ratio", "Model FLOPs utilisation of rank 0's device by its tensor cores' "
                    "counter, last interval; absent where that does not cover the interval."),
        in_summary=True, limit=1),
    Row("suspect", "suspect", PLAIN, lambda i, run: _utilisation(i, run).is_suspect, "MFU or HFU is above 1",
        in_summary=True),
)  # fmt: skip

_PARTS: tuple[Row, ...] = (
    Row("skipped_iterations", "iterations without training", PLAIN, lambda i, run: i.skipped_iterations,
        "iterations that trained nothing", column=Column("Skipped", 9, unless=BREAKDOWN),
        curve="training/skipped_iterations",
        in_summary=True,
        otlp=OtlpMetric(f"{MEGATRON}skipped_iters", "sum")),
    Row("train_step_ms", "train step", MILLISECONDS, lambda i, run: per_step(i.train_step_ns, i.steps),
        "Σ train_step_ns / steps / 10⁶", curve="time/train_step_ms"),
    Row("device_ms", "train step on the device", MILLISECONDS, lambda i, run: per_step(i.device_ns, i.steps),
        "Σ device_ns / steps / 10⁶", curve="time/device_ms"),
    Row("eval_ms", "evaluation", MILLISECONDS, lambda i, run: i.eval_ns, "Σ eval_ns / 10⁶",
        curve="time/eval_ms", in_summary=True),
    Row("checkpoint_ms", "checkpoints", MILLISECONDS, lambda i, run: i.checkpoint_ns,
        "Σ checkpoint_ns / 10⁶", curve="time/checkpoint_ms", in_summary=True),
    Row("self_ms", "the monitor", MILLISECONDS, lambda i, run: per_step(i.self_ns, i.steps),
        "Σ self_ns / steps / 10⁶"),
    Row("warmup_only", "warm-up", PLAIN, lambda i, run: i.warmup_only, "the only step in it was a warm-up",
        flag=WARMUP_MARK, in_summary=True, summary_key="warmup"),
)  # fmt: skip


def _host_share(key: str, label: str, field: str) -> Row:
    return Row(
        f"{key}_share",
        label,
        SHARE,
        lambda i, run: share(getattr(i, field), i.host_ns or 0),
        f"{field} / host_ns",
        curve=f"host/{key}_share",
        gauge=Gauge(
            "host_ratio",
            "Part of the last interval's time that rank 0's host was short of something.",
            ("of", key),
        ),
    )


_HOST: tuple[Row, ...] = (
    _host_share("run_delay", "training thread without a CPU", "run_delay_ns"),
    _host_share("cpu_stall", "anything without a CPU", "cpu_stall_ns"),
    _host_share("memory_stall", "anything waiting for memory", "memory_stall_ns"),
    _host_share("io_stall", "anything waiting for a disk", "io_stall_ns"),
    Row("host_memory_available_gb", "memory available on the host", GIGABYTES,
        lambda i, run: i.memory_available_bytes, "lowest memory_available_bytes / 10⁹",
        curve="host/memory_available_gb"),
    Row("disk_mb_per_s", "disks of the host", PLAIN,
        lambda i, run: per_second(i.disk_bytes, 10**6 * (i.host_ns or 0)), "disk_bytes / host_ns × 10³",
        curve="host/disk_mb_per_s"),
    Row("network_mb_per_s", "network of the host", PLAIN,
        lambda i, run: per_second(i.network_bytes, 10**6 * (i.host_ns or 0)), "network_bytes / host_ns × 10³",
        curve="host/network_mb_per_s"),
)  # fmt: skip


def _phase(phase: str) -> Row:
    return Row(
        f"{phase}_ms",
        phase.replace("_", " "),
        MILLISECONDS,
        lambda i, run: per_step((i.phases_ns or {}).get(phase), i.steps),
        "Σ of the phase / steps / 10⁶; see below",
        curve=f"phase/{phase}_ms",
        gauge=Gauge(
            "phase_seconds",
            "Time of a phase in the last interval's mean iteration, on rank 0.",
            ("phase", phase),
        ),
    )


def _group(title: str) -> Row:
    """The groups of phases add up to 100 %."""
    names, short = GROUPS[title], GROUP_COLUMNS.get(title)
    return Row(
        f"{title.lower()}_share",
        title,
        SHARE,
        lambda i, run: share(total_of(i.phases_ns or {}, names), i.iteration_ns),
        "Σ of the group's phases / Σ iteration_ns; see below",
        column=Column(short, max(6, len(short) + 1), BREAKDOWN) if short else None,
        in_csv=False,
    )


_BUBBLE: tuple[Row, ...] = (
    Row("bubble_share", "Bubble", SHARE, lambda i, run: share(i.bubble_ns, i.iteration_ns),
        "Σ bubble_ns / Σ iteration_ns; a part of Pipe",
        in_csv=False, gauge=Gauge("bubble_ratio", "Part of the last interval that rank 0 waited for the "
                                  "pipeline's schedule.")),
    Row("bubble_ms", "bubble", MILLISECONDS, lambda i, run: per_step(i.bubble_ns, i.steps),
        "Σ bubble_ns / steps / 10⁶", curve="phase/bubble_ms"),
    Row("imbalance_ms", "imbalance", MILLISECONDS, lambda i, run: per_step(i.imbalance_ns, i.steps),
        "Σ imbalance_ns / steps / 10⁶", curve="phase/imbalance_ms"),
)  # fmt: skip


def _cap(reason: str) -> Row:
    return Row(
        f"capped_by_{reason.replace(' ', '_')}",
        f"clock capped by {reason}",
        PLAIN,
        lambda i, run: None if i.throttle is None else reason in reasons_in(i.throttle),
        "whether `throttle` names the cap",
        in_csv=False,
        gauge=Gauge(
            "clock_capped",
            "1 if the clock of rank 0's device was capped in the last interval, by reason.",
            ("reason", reason),
        ),
    )


FIGURES: tuple[Row, ...] = (
    *_PLACE,
    *_SPEED,
    *_ITERATION,
    *_MEMORY,
    *_HARDWARE,
    *_UTILISATION,
    *_PARTS,
    *_LOGGED,
    *map(_phase, PHASES),
    *map(_group, GROUPS),
    *_BUBBLE,
    *map(_cap, CAPS),
    *_HOST,
)
TABLE: Table[IntervalRecord, Run] = Table(
    IntervalRecord, "iteration", "end_wall_ns", Run.of, FIGURES, NAMES[LOGS], NAMES[CURVES]
)
