"""Megatron-LM's loop and the ones grown from it: which functions to wrap, and where the numbers lie.

FlagScale 0.x runs its own copy of the loop (`flagscale.train.train`), FlagScale 1.x and Megatron-LM run
`megatron.training.training`. In both, the loop looks its parts up as module globals at call time, so that
replacing a global reaches it. Only `train` is wrapped before a training begins; what is called in every step
is while one is monitored.
"""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from flagscale_perf.arguments import PerfConfig, flag_of
from flagscale_perf.hooks import StepNumbers, TrainingHooks
from flagscale_perf.hosts import hook_points, host_monitor
from flagscale_perf.hosts.core_loop import (
    Training,
    absorbs_sparse_attention,
    chunks_of,
    facts_of,
    host_name,
    lockstep_group,
    microbatch_counter,
    pipeline_stage,
)
from flagscale_perf.hosts.hook_points import Point, given_to
from flagscale_perf.hosts.patching import Patches, Wrapper
from flagscale_perf.hosts.profiled import begin_profile
from flagscale_perf.hosts.timers import can_mark_phases, mark_phases, time_mark
from flagscale_perf.hosts.work import Batches, Documents, count_work, shows_experts, sources_of
from flagscale_perf.hosts.wrappers import (
    data_skipped,
    ending,
    missing_phases,
    opening,
    patch_core,
    patch_log,
    paused,
)
from flagscale_perf.spine.records import tuple_of
from flagscale_perf.spine.units import print_line
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.host_arguments import recorded, recorded_environment
from flagscale_perf.training.phases import AGREEMENT
from flagscale_perf.training.work import AS_RANK_0, NOT_COUNTED, Microbatch

ARGUMENTS_MODULE = "megatron.training.arguments"
GLOBALS_MODULE = "megatron.training.global_vars"
LOOP_MODULES = ("flagscale.train.train", "megatron.training.training")

# By the name of the loop's global; the first two are what the monitor cannot do without.
HOOK_POINTS: dict[str, Point] = {
    "train": Point("the monitor (no start and end of training)"),
    "train_step": Point("the monitor (no steps)"),
    "training_log": Point("real lengths of packed documents"),
    "evaluate_and_print_results": Point("evaluation time (it counts as iteration time)"),
    "save_checkpoint_and_time": Point("checkpoint time (it counts as iteration time)"),
    "maybe_finalize_async_save": Point(
        "waits for asynchronous checkpoints (they count as iteration time)", also=("finalize_async_saves",)
    ),
    "dummy_train_step": Point("iterations skipped by --iterations-to-skip"),
    "logical_and_across_model_parallel_group": Point("the phase exposed_stat_comm (it counts to other)"),
    "update_num_microbatches": Point(
        "the time of data skipped by --skip-iters-range (it counts to the iteration before)"
    ),
    "extra_evaluate_and_print_results": Point(
        "extra evaluation time (it counts as iteration time)", option="extra_eval_interval"
    ),
    "build_extra_valid_data_iterators": Point(
        "the time in which extra evaluation's data is prepared (it counts as iteration time)",
        option="extra_eval_interval",
    ),
}
# Arguments under which a sequence is no whole document of its full length.
PACKING_ARGUMENTS = (
    "reset_attention_mask",
    "sft",
    "variable_seq_lengths",
    "enable_variable_seq_lengths",
    "dataloader_inter_document_masking",
    "sequence_packing_scheduler",
    "use_varlen_dataset",
    "dynamic_context_parallel",
    "hybrid_context_parallel",
)
# Of these, the ones under which ranks exchange documents before they compute.
REGROUPING_ARGUMENTS = ("sequence_packing_scheduler", "dynamic_context_parallel", "hybrid_context_parallel")
ITERATORS = "train_data_iterator"  # the argument of `train`
REQUIRED_POINTS = ("train", "train_step")


class MegatronLoop:
    """`hooks.Loop` over the host's arguments and micro-batch calculator, which it only reads."""

    def __init__(
        self, module: ModuleType, rehearsing: bool, given: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """`given`: the arguments of the loop's `train`, by name."""
        self._module = module
        self._given = given
        self.rehearsing = rehearsing
        self._args = _args()

    def rank(self) -> int:
        """Global rank as torchrun set it."""
        return int(self._args.rank)

    def stage(self) -> int:
        """The pipeline stage that Megatron-Core gives this rank."""
        return pipeline_stage()

    def lockstep(self) -> int:
        """The number of the group that works in lockstep with this rank."""
        return lockstep_group(self.rank())

    def microbatch(self) -> Microbatch:
        """Equal samples, unless an argument says otherwise."""
        args = self._args
        sizes = () if packing_of(args) else (args.micro_batch_size, args.seq_length)
        return Microbatch(chunks_of(args), *sizes)

    def config(self) -> PerfConfig:
        """Flags, then environment, then defaults."""
        return PerfConfig.from_args(self._args)

    def device_types(self) -> Counter[str]:
        """Ranks by device type in heterogeneous training: a type for each mesh of [TP, CP, EP, DP, PP]."""
        args = self._args
        ranks: Counter[str] = Counter()
        if getattr(args, "enable_hetero", False):
            for name, (tensor, context, _, data, pipeline) in zip(
                args.hetero_device_types, args.hetero_process_meshes, strict=True
            ):
                ranks[name] += tensor * context * data * pipeline
        return ranks

    def model_args(self) -> Any:
        """The host's whole namespace of arguments, and how its sparse attention multiplies."""
        return {**vars(self._args), "dsa_absorbed": absorbs_sparse_attention()}

    def position(self) -> tuple[int, int]:
        """The host sets `curr_iteration` to the iterations before, just ahead of the step."""
        args = self._args
        return args.curr_iteration, args.consumed_train_samples

    def numbers(self, result: Any) -> StepNumbers | None:
        """`train_step` returns (loss, skipped_iter, should_checkpoint, should_exit, ...)."""
        if result[3]:  # the host leaves the loop without counting the iteration
            return None
        count, samples_of_pass, seq_length = self._sizes
        microbatches = count()
        samples = samples_of_pass * microbatches
        if self._repacks and len(result) > 8:  # into another number of micro-batches, in each step
            microbatches = _whole(result[8]) or microbatches
        iteration = self._args.curr_iteration + 1
        tokens = samples * seq_length
        return tuple_of(
            StepNumbers, (iteration, not result[1], samples, tokens, microbatches, NOT_COUNTED, None)
        )

    def skipped_samples(self) -> int:
        """One global batch, as the host counts it."""
        count, samples_of_pass, _ = self._sizes
        return samples_of_pass * count()

    @functools.cached_property
    def _sizes(self) -> tuple[Callable[[], int], int, int]:
        """How to count the micro-batches, samples of one over all ranks, tokens of a sample: looked up once.
        The host leaves them alone once it trains, and its large namespace is never in a cache.
        """
        args = self._args
        return microbatch_counter(), int(args.data_parallel_size * args.micro_batch_size), args.seq_length

    @functools.cached_property
    def _repacks(self) -> bool:
        return getattr(self._args, "sequence_packing_scheduler", None) is not None

    def names_phases(self) -> bool:
        """Whether the host's timers can mark the phases."""
        return can_mark_phases(_timers())

    @staticmethod
    def say(line: str) -> None:
        """Not by Megatron's own `print_rank_0`, which is `print`: it could not keep a line in one piece."""
        print_line(line)

    def facts(self, device: str) -> RunFacts:
        """The facts of the parsed arguments, which Megatron completes during set-up."""
        args = self._args
        sizes = (args.seq_length, args.micro_batch_size, args.global_batch_size, args.train_iters)
        return facts_of(
            args,
            Training(*sizes, iteration=args.iteration, tensorboard_dir=args.tensorboard_dir),
            host=host_name(Path(getattr(self._module, "__file__", None) or ""), _core_version()),
            world_size=args.world_size,
            data_parallel=args.data_parallel_size,
            device=device,
            rehearsal=self.rehearsing,
            missing=self._missing(args),
            arguments=recorded(vars(args), PerfConfig().as_dict()),
            environment=recorded_environment(os.environ),
            host_monitor=host_monitor.state_of(PerfConfig.from_args(args)),
        )

    def _missing(self, args: Any) -> list[str]:
        costs = hook_points.missing(self._module, HOOK_POINTS, self._given, vars(args)) + missing_phases()
        if packing := packing_of(args):
            is_seen = _packed_sources(args, self._given.get(ITERATORS))
            counted = AS_RANK_0 if is_seen else "whole sequences"
            costs.append(
                f"lengths of packed documents ({', '.join(packing)}): FLOPs count {counted} where the host "
                "gives none"
            )
        return costs


def packing_of(args: Any) -> list[str]:
    """The arguments in force under which sequences are not all whole documents of the full length."""
    return [flag_of(name) for name in PACKING_ARGUMENTS if getattr(args, name, False)]


def _packed_sources(args: Any, iterators: Any) -> list[Any]:
    """Nothing where all samples are equal, no batch is seen, or ranks exchange what they read."""
    is_whole = not packing_of(args) or any(getattr(args, name, False) for name in REGROUPING_ARGUMENTS)
    return [] if is_whole else sources_of(iterators)


def _batches(args: Any, iterators: Any) -> Batches | None:
    if sources := _packed_sources(args, iterators):
        return Batches(sources, _documents(args), 0 if args.rank else int(args.data_parallel_size))
    return None


def _documents(args: Any) -> Documents:
    """Documents attend to themselves only where the host makes the mask that says so."""
    is_masked = getattr(args, "create_attention_mask_in_dataloader", True)
    if not (getattr(args, "reset_attention_mask", False) and is_masked):
        return Documents()
    if getattr(args, "reset_position_ids", False):
        return Documents(restart=True)
    return Documents(end=sys.modules[GLOBALS_MODULE].get_tokenizer().eod)


def _core_version() -> str:
    return str(getattr(sys.modules.get("megatron.core"), "__version__", "unknown"))


def patch_loop(module: ModuleType, hooks: TrainingHooks, patches: Patches, rehearsing: bool) -> None:
    """Wraps the loop's `train` in `module`. A module without the required parts is left alone."""
    if all(hasattr(module, name) for name in REQUIRED_POINTS):
        hooks.time_mark = time_mark
        patches.set(module, "train", _train(module, hooks, rehearsing))


def patch_steps(
    module: ModuleType,
    hooks: TrainingHooks,
    patches: Patches,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Wraps what the loop in `module` calls in its steps; with phases asked for, what marks these, too.

    `given`: the arguments of its `train`, by name.
    """
    wrappers: dict[str, Wrapper] = {
        "train_step": lambda original: _train_step(original, hooks),
        "training_log": lambda original: _training_log(original, hooks),
        "evaluate_and_print_results": lambda original: paused(original, hooks, "eval"),
        "extra_evaluate_and_print_results": lambda original: paused(original, hooks, "eval"),
        "build_extra_valid_data_iterators": lambda original: paused(original, hooks, "eval"),
        "save_checkpoint_and_time": lambda original: paused(original, hooks, "checkpoint"),
        "maybe_finalize_async_save": lambda original: paused(original, hooks, "checkpoint"),
        "dummy_train_step": lambda original: data_skipped(original, hooks),
        "update_num_microbatches": lambda original: _update_num_microbatches(original, hooks),
    }
    if hooks.takes_marks:
        wrappers["logical_and_across_model_parallel_group"] = lambda original: opening(
            original, hooks, AGREEMENT
        )
        mark_phases(_timers(), hooks, patches)
        patch_core(hooks, patches)
    if not _saves_asynchronously():  # the host calls it in every pass all the same, and it returns at once
        del wrappers["maybe_finalize_async_save"]
    patch_log(getattr(module, "training_log", None), hooks, patches)
    hook_points.wrap((module, HOOK_POINTS), wrappers, given, patches)


def _train(module: ModuleType, hooks: TrainingHooks, rehearsing: bool) -> Callable[..., Any]:
    original, in_training = module.train, Patches()
    run = ending(original, hooks, in_training)

    def begin(given: Mapping[str, Any]) -> None:
        loop = MegatronLoop(module, rehearsing, given)
        hooks.train_start(loop)
        if hooks.active:
            patch_steps(module, hooks, in_training, given)
            args = _args()
            count_work(hooks, in_training, lambda: _batches(args, given.get(ITERATORS)), shows_experts(args))
            begin_profile(hooks, loop, lambda: given["model"])

    @functools.wraps(original)
    def train(*args: Any, **kwargs: Any) -> Any:
        hooks.attach(lambda: begin(given_to(original, args, kwargs)))
        return run(*args, **kwargs)

    return train


def _train_step(original: Callable[..., Any], hooks: TrainingHooks) -> Callable[..., Any]:
    @functools.wraps(original)
    def train_step(*args: Any, **kwargs: Any) -> Any:
        if not hooks.active:
            return original(*args, **kwargs)
        hooks.step_start()
        result = original(*args, **kwargs)
        if hooks.active:
            hooks.step_end(result)
        return result

    return train_step


def _training_log(original: Callable[..., Any], hooks: TrainingHooks) -> Callable[..., Any]:
    @functools.wraps(original)
    def training_log(*args: Any, **kwargs: Any) -> Any:
        if hooks.active:
            real_tokens = kwargs.get("total_real_tokens_in_batch")
            squared_lengths = kwargs.get("seqlen_squared_sum_in_batch")
            if real_tokens is None and squared_lengths is None:
                hooks.logged(None, None)
            else:
                hooks.logged(_whole(real_tokens), _whole(squared_lengths))
        return original(*args, **kwargs)

    return training_log


def _update_num_microbatches(original: Callable[..., Any], hooks: TrainingHooks) -> Callable[..., Any]:
    @functools.wraps(original)
    def update_num_microbatches(*args: Any, **kwargs: Any) -> Any:
        # The loop calls it twice a pass and, while skipping data, once for each iteration skipped: only the
        # first call of a pass does without the consistency check.
        if hooks.active and kwargs.get("consistency_check") is False:
            hooks.loop_top()
        return original(*args, **kwargs)

    return update_num_microbatches


def _whole(total: Any) -> int | None:
    """Megatron's sums are floats. A tensor stays unread: reading it could wait for the device."""
    return round(total) if isinstance(total, int | float) and 1 <= total < 2**63 else None


def _args() -> Any:
    return sys.modules[GLOBALS_MODULE].get_args()


def _saves_asynchronously() -> bool:
    """True also where it is not known."""
    global_vars = sys.modules.get(GLOBALS_MODULE)
    return global_vars is None or bool(getattr(global_vars.get_args(), "async_save", True))


def _timers() -> Any:
    get_timers = getattr(sys.modules.get(GLOBALS_MODULE), "get_timers", None)
    return None if get_timers is None else get_timers()
