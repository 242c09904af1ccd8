"""Chooses the figure by which two configurations can be compared: time per iteration, else device time per
token, else per model FLOP, else none.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.training.analysis.findings.own_names import is_trainer
from flagscale_perf.training.analysis.steps import Aligned, RunSteps, Step
from flagscale_perf.training.facts import ONLY_IN_RUN_FILE, RunFacts
from flagscale_perf.training.utilisation import FLOP_PER_TFLOP, Scale

NOISE, REHEARSAL_NOISE = 0.01, 0.04  # where the figures are from: docs/reading.md
ITERATION, TOKEN, FLOP = "iteration", "token", "FLOP"
_NS_PER_US = 1000
# Of a process, not of a configuration.
_FACTS_OF_A_PROCESS = {
    *("pid", "restart_count", "process_start_ns", "tensorboard_dir", "device_uuid", "model", "peak_source"),
    *("missing", "flops_convention"),
}
# Of the host's arguments, where a process begins or puts its files; and those that are facts of their own.
_ARGUMENTS_OF_A_PROCESS = {
    *("rank", "local_rank", "iteration", "curr_iteration"),
    *("load", "save", "tensorboard_dir", "wandb_save_dir", "output_dir", "logging_dir", "run_name"),
    *("consumed_train_samples", "consumed_valid_samples", "skipped_train_samples", "log_interval"),
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "data_parallel_size"),
    *("context_parallel_size", "expert_model_parallel_size", "transformer_pipeline_model_parallel_size"),
}
_OPTIONS_OF_A_PROCESS = {"perf_log_dir", "perf_console_output", "perf_max_log_files", "perf_run_name"}
# Of the model's shape, what says how it is trained and not what it is.
_HOW_TRAINED = {"recompute", "micro_batch", "sequence_shards"}
_MUST_AGREE = (
    *("world_size", "tensor_parallel", "pipeline_parallel", "data_parallel", "context_parallel"),
    *("expert_parallel", "pipeline_schedule", "device", "rehearsal", "dtype", "model"),
    *("seq_length", "micro_batch_size", "global_batch_size"),
)


@dataclass(frozen=True)
class Basis:
    """The unit of work that a run's times are divided by.

    Attributes:
        name: "iteration", "token" or "FLOP".
        unit: of the result; "GPU-" means that the time counts once for each device of the job.
        devices: of this run's job; 1 for "iteration".
    """

    name: str
    unit: str
    devices: int = 1

    def of(self, step: Step, elapsed_ns: int) -> float:
        """A time of the step in the unit."""
        if self.name == TOKEN:
            return elapsed_ns * self.devices / step.tokens / _NS_PER_US
        if self.name == FLOP:
            return elapsed_ns * self.devices / (step.model_flops or 1) * FLOP_PER_TFLOP / NS_PER_MS
        return elapsed_ns / NS_PER_MS

    def phase(self, step: Step, place: int) -> float | None:
        """The step's phase at that place of `PHASES`; None where it was not measured."""
        elapsed_ns = None if step.phases_ns is None else step.phases_ns[place]
        return None if elapsed_ns is None else self.of(step, elapsed_ns)


def check_sides(*sides: Sequence[RunSteps]) -> None:
    """Raises PerfError where the runs of one side are not of one configuration, or one side is a rehearsal
    and the other is not.
    """
    for first, *others in sides:
        for run, name in itertools.product(others, _MUST_AGREE):
            here, there = getattr(first.facts, name), getattr(run.facts, name)
            if here != there:
                raise PerfError(
                    f"runs of one side must be of one configuration: {name} is {here!r} in"
                    f" '{first.session.path}' and {there!r} in '{run.session.path}'; leave one of them out"
                )
    rehearsals = [runs[0].facts.rehearsal for runs in sides]
    if rehearsals[0] != rehearsals[1]:
        real, rehearsed = (runs[0].session.path for runs in (sides if rehearsals[1] else sides[::-1]))
        raise PerfError(
            f"'{rehearsed}' is a rehearsal on the CPU and '{real}' is not: their times mean nothing to each"
            " other; compare runs of one kind"
        )


def choose_basis(facts: Sequence[RunFacts], aligned: Aligned) -> list[Basis]:
    """The basis of each run. Raises PerfError if nothing that both sides did can be counted."""
    steps = list(itertools.chain.from_iterable(aligned.rows))
    sizes = [Scale.of(one).world_size for one in facts]
    if not _is_one_model(facts):
        if not _is_counted([step.model_flops for step in steps], sizes):
            families = ", ".join(dict.fromkeys(str(one.model_family) for one in facts))
            raise PerfError(
                f"the runs train different models ({families}) and their FLOPs are not known;"
                " compare runs of one model"
            )
        return _per_device(FLOP, "GPU-ms/TFLOP", sizes)
    shapes = {(size, one.seq_length) for size, one in zip(sizes, facts, strict=True)}
    if len(shapes) == 1 and aligned.has_one_batch_size:
        return [Basis(ITERATION, "ms")] * len(facts)
    if not _is_counted([step.tokens for step in steps], sizes):
        raise PerfError(
            "the runs differ in batch or world size and their tokens are not known; compare runs of one size"
        )
    return _per_device(TOKEN, "GPU-us/token", sizes)


def _per_device(name: str, unit: str, sizes: Sequence[int | None]) -> list[Basis]:
    return [Basis(name, unit, size or 1) for size in sizes]


def _is_counted(work: Iterable[int | None], sizes: Sequence[int | None]) -> bool:
    """Whether every step did some of the work, on a known number of devices."""
    return all((each or 0) > 0 for each in work) and None not in sizes


def _is_one_model(facts: Sequence[RunFacts]) -> bool:
    """The padded vocabulary follows from the tensor-parallel size."""
    is_one_split = len({one.tensor_parallel for one in facts}) == 1
    ignored = _HOW_TRAINED if is_one_split else _HOW_TRAINED | {"vocab"}
    models = [_without(one.model or {}, ignored) for one in facts]
    return all(model == models[0] for model in models)


def configuration(run: RunSteps) -> dict[str, Any]:
    """The run's facts and options, without those of a process."""
    header = run.session.header
    dash = "_" if is_trainer(run.facts.host) else "-"
    return {
        **of_facts(header.facts),
        **of_model(run.facts),
        **{
            name if "." in name else f"--{name.replace('_', dash)}": value
            for name, value in of_host(header.facts).items()
        },
        **_without(header.config, _OPTIONS_OF_A_PROCESS),
    }


def of_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a header without those of a process."""
    return _without(facts, _FACTS_OF_A_PROCESS | ONLY_IN_RUN_FILE)


def of_model(facts: RunFacts) -> dict[str, Any]:
    """The model's shape, as far as no fact of its own has it."""
    return {f"model.{name}": value for name, value in _without(facts.model or {}, {"micro_batch"}).items()}


def of_host(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The host's arguments in a header's facts, without those of a process and those that are facts. Those
    of Bridge have their section before their name.
    """
    arguments, left_out = facts.get("arguments"), _ARGUMENTS_OF_A_PROCESS | facts.keys()
    known = arguments if isinstance(arguments, dict) else {}
    return {name: value for name, value in known.items() if name.rpartition(".")[2] not in left_out}


def _without(named: Mapping[str, Any], left_out: Iterable[str]) -> dict[str, Any]:
    kept = dict(named)
    for name in left_out:
        kept.pop(name, None)
    return kept


def noise_of(is_on_cpu: bool) -> tuple[float, str]:
    """Standard deviation between the usual steps of two runs of one configuration, as a share, and in words
    where that is from.
    """
    if is_on_cpu:
        return REHEARSAL_NOISE, "assumed for runs on a CPU"
    return NOISE, "assumed for devices"
