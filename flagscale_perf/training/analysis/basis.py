"""What can be compared of two configurations: time per iteration, else device time per token, else per model
FLOP, else nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from flagscale_perf.analysis.compare.compare import Difference
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.training.analysis.steps import Aligned, RunSteps, Step
from flagscale_perf.training.facts import ONLY_IN_RUN_FILE, RunFacts
from flagscale_perf.training.utilisation import FLOP_PER_TFLOP

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
    *("load", "save", "tensorboard_dir", "wandb_save_dir"),
    *("consumed_train_samples", "consumed_valid_samples", "skipped_train_samples", "log_interval"),
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "data_parallel_size"),
    *("context_parallel_size", "expert_model_parallel_size", "transformer_pipeline_model_parallel_size"),
}
_OPTIONS_OF_A_PROCESS = {"perf_log_dir", "perf_console_output", "perf_max_log_files"}
# Of the model's shape, what says how it is trained and not what it is.
_HOW_TRAINED = {"recompute", "micro_batch", "sequence_shards"}
_MUST_AGREE = (
    *("world_size", "tensor_parallel", "pipeline_parallel", "data_parallel", "context_parallel"),
    *("expert_parallel", "pipeline_schedule", "device", "rehearsal", "dtype", "model"),
    *("seq_length", "micro_batch_size", "global_batch_size"),
)


@dataclass(frozen=True)
class Basis:
    """What a time of one run is divided by.

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


def check_sides(*sides: Sequence[RunSteps]) -> None:
    """Raises PerfError where the runs of one side are not of one configuration, or one side is a rehearsal
    and the other is not.
    """
    for runs in sides:
        first, *others = (run.facts for run in runs)
        for run, facts in zip(runs[1:], others, strict=True):
            for name in _MUST_AGREE:
                if getattr(first, name) != getattr(facts, name):
                    raise PerfError(
                        f"runs of one side must be of one configuration: {name} is {getattr(first, name)!r}"
                        f" in '{runs[0].path}' and {getattr(facts, name)!r} in '{run.path}';"
                        " leave one of them out"
                    )
    rehearsals = [runs[0].facts.rehearsal for runs in sides]
    if rehearsals[0] != rehearsals[1]:
        real, rehearsed = (runs[0].path for runs in (sides if rehearsals[1] else sides[::-1]))
        raise PerfError(
            f"'{rehearsed}' is a rehearsal on the CPU and '{real}' is not: their times mean nothing to each"
            " other; compare runs of one kind"
        )


def choose_basis(facts: Sequence[RunFacts], aligned: Aligned) -> list[Basis]:
    """For each run. Raises PerfError where nothing that both sides did can be counted."""
    steps = list(itertools.chain.from_iterable(aligned.rows))
    sizes = list(map(devices_of, facts))
    if not _is_one_model(facts):
        if not _is_counted([step.model_flops for step in steps], sizes):
            raise PerfError(_refusal(facts) + "and their FLOPs are not known; compare runs of one model")
        return _each_by_size(FLOP, "GPU-ms/TFLOP", sizes)
    shapes = {(size, one.seq_length) for size, one in zip(sizes, facts, strict=True)}
    if len(shapes) == 1 and aligned.has_one_batch_size:
        return [Basis(ITERATION, "ms")] * len(facts)
    if not _is_counted([step.tokens for step in steps], sizes):
        raise PerfError(
            "the runs differ in batch or world size and their tokens are not known; compare runs of one size"
        )
    return _each_by_size(TOKEN, "GPU-us/token", sizes)


def _each_by_size(name: str, unit: str, sizes: Sequence[int | None]) -> list[Basis]:
    return [Basis(name, unit, size or 1) for size in sizes]


def _is_counted(work: Iterable[int | None], sizes: Sequence[int | None]) -> bool:
    """Whether every step did some of the work, on a known number of devices."""
    return all((each or 0) > 0 for each in work) and None not in sizes


def devices_of(facts: RunFacts) -> int | None:
    """How many devices the job has; None where it is not known."""
    return facts.world_size if facts.world_size > 0 else None


def _is_one_model(facts: Sequence[RunFacts]) -> bool:
    """Whether the runs train one model. The padded vocabulary follows from the tensor-parallel size."""
    is_one_split = all(one.tensor_parallel == facts[0].tensor_parallel for one in facts)
    ignored = _HOW_TRAINED if is_one_split else _HOW_TRAINED | {"vocab"}
    models = [
        {name: value for name, value in (one.model or {}).items() if name not in ignored} for one in facts
    ]
    return all(model == models[0] for model in models)


def _refusal(facts: Sequence[RunFacts]) -> str:
    families = list(dict.fromkeys(str(one.model_family) for one in facts))
    return f"the runs train different models ({', '.join(families)}) "


def differences(base: Sequence[RunSteps], new: Sequence[RunSteps]) -> list[Difference]:
    """Facts and options that differ between the first runs of the sides; those of a process and not of a
    configuration left out.
    """
    flat = [_flat(runs[0]) for runs in (base, new)]
    names = dict.fromkeys([*flat[0], *flat[1]])
    return [
        Difference(name, flat[0].get(name), flat[1].get(name))
        for name in names
        if flat[0].get(name) != flat[1].get(name)
    ]


def _flat(run: RunSteps) -> dict[str, Any]:
    facts, config = run.header.facts, run.header.config
    found = {
        name: value for name, value in facts.items() if name not in _FACTS_OF_A_PROCESS | ONLY_IN_RUN_FILE
    }
    model = {name: value for name, value in (run.facts.model or {}).items() if name != "micro_batch"}
    found |= {f"model.{name}": value for name, value in model.items()}
    for name, value in (run.facts.arguments or {}).items():
        if name not in _ARGUMENTS_OF_A_PROCESS and name not in facts:
            found[f"--{name.replace('_', '-')}"] = value
    return found | {name: value for name, value in config.items() if name not in _OPTIONS_OF_A_PROCESS}
