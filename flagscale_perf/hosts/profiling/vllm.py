"""Profiles vLLM's steps in each of its workers, without a change of the command line or of a program.

vLLM calls `from_environment` in every process that it starts, also those of `vllm serve` (entry point of the
group `vllm.general_plugins`; VLLM_PLUGINS chooses among these). Where FLAGSCALE_PERF_PROFILE_STEPS names
steps, or FLAGSCALE_PERF_PROFILE_DIR a directory in which somebody may ask for some (`vllm_now`), the class
that stands for a worker gets another `execute_model` and `sample_tokens`, which tell a `Profiler` where a
step begins and ends. Elsewhere nothing is imported and nothing is patched.

A step is one call of `execute_model` and the `sample_tokens` that follows it. vLLM does not number its steps;
here they are counted for each phase (prefill, decode, mixed) on its own, and the first of each, which warms
up, is number 0: steps 1-3 are the second to the fourth decode, and the second to the fourth prefill.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flagscale_perf.hosts.import_hook import ImportHook
from flagscale_perf.hosts.patching import Patches
from flagscale_perf.profile.options import ProfileOptions
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.writer.console import complain

if TYPE_CHECKING:
    from flagscale_perf.profile.profiler import Profiler
    from flagscale_perf.profile.rank import Rank

WORKER_MODULE = "vllm.v1.worker.worker_base"
GROUPS_MODULE = "vllm.distributed.parallel_state"
_STEPS = "_flagscale_perf_steps"
PREFILL, DECODE, MIXED = "prefill", "decode", "mixed"


@dataclass(frozen=True)
class Work:
    """The work of a step of vLLM, as its scheduler says.

    Attributes:
        phase: "prefill" where all requests read their prompts, "decode" where all of them make tokens,
            otherwise "mixed".
        requests: how many have a part in it.
        tokens: those of all requests.
        attended: pairs of a token of the step and one that its request has by the end of it, which is how
            torch counts attention; those that a mask or a window leaves out are among them.
    """

    phase: str
    requests: int
    tokens: int
    attended: int

    @classmethod
    def of(cls, scheduled: Any) -> Work | None:
        """None for a step without a token: vLLM has them to tell its workers what has ended."""
        tokens = int(scheduled.total_num_scheduled_tokens)
        if not tokens:
            return None
        prefills, requests = _prefills(scheduled), len(scheduled.num_scheduled_tokens)
        phase = MIXED if 0 < prefills < requests else PREFILL if prefills else DECODE
        return cls(phase, requests, tokens, _attended(scheduled))


def _attended(scheduled: Any) -> int:
    tokens, cached = scheduled.num_scheduled_tokens, scheduled.scheduled_cached_reqs
    before = {new.req_id: new.num_computed_tokens for new in scheduled.scheduled_new_reqs}
    before |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    return sum(count * (before[name] + count) for name, count in tokens.items())


def _prefills(scheduled: Any) -> int:
    """How many requests read their prompt, or a part of it. One whose cache comes from elsewhere, up to its
    last token, decodes from its first step on; one that was preempted reads again what it has written.
    """
    cached, tokens = scheduled.scheduled_cached_reqs, scheduled.num_scheduled_tokens
    count = sum(
        not (new.num_computed_tokens and tokens[new.req_id] == 1) for new in scheduled.scheduled_new_reqs
    )
    made: list[int] = cached.num_output_tokens
    count += made.count(0)
    if cached.resumed_req_ids:
        count += sum(
            name in cached.resumed_req_ids and made[place] > 0 for place, name in enumerate(cached.req_ids)
        )
    return count


class Steps:
    """The steps of one worker. Nothing here raises; a failure is said once, and this worker's steps are no
    longer profiled.

    Args:
        options: what is profiled.
        wrapper: vLLM's object that stands for the worker.
    """

    def __init__(self, options: ProfileOptions, wrapper: Any) -> None:
        self._options = options
        self._wrapper = wrapper
        self._profiler: Profiler | None = None
        self._counts: Counter[str] = Counter()
        self._work: Work | None = None
        self._described: list[Any] = []  # process groups
        self._is_on = True

    def begin(self, scheduled: Any) -> None:
        """`execute_model` begins with what the scheduler has chosen."""
        if not self._is_on:
            return
        try:
            self._begin(scheduled)
        except Exception as error:  # another version's scheduler or model: vLLM goes on serving
            self._fail(error)

    def end(self) -> None:
        """The step is over; nothing to do for one that is not profiled."""
        work, self._work = self._work, None
        if work is None or self._profiler is None:
            return
        self._profiler.end_step(samples=work.requests, tokens=work.tokens, attended=work.attended)

    def close(self) -> None:
        """Ends the worker's profile: waits until its records are written."""
        self._is_on = False
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            self._end_profiler(profiler)
        if self._described:
            from flagscale_perf.profile.flight import forget

            while self._described:
                forget(self._described.pop())

    def _end_profiler(self, profiler: Profiler) -> None:
        profiler.close()

    def _begin(self, scheduled: Any) -> None:
        self._work = None
        work = Work.of(scheduled)
        if work is None:
            return
        number = self._counts[work.phase]
        self._counts[work.phase] += 1
        if not number:
            return
        if self._profiler is None:
            self._make(self._options)
        if self._profiler is not None:
            self._work = work
            self._profiler.begin_step(number, work.phase)

    def _make(self, options: ProfileOptions) -> None:
        """The worker's profiler, if its rank is wanted."""
        from flagscale_perf.profile.profiler import Profiler  # loads torch, which a worker has by now

        rank = rank_of(self._wrapper)
        self._is_on = options.wants(rank.number)
        if self._is_on:
            self._described = self._described or _described_groups()
            self._profiler = Profiler(self._wrapper.get_model(), options, rank=rank)

    def _fail(self, error: Exception) -> None:
        self._is_on, self._work = False, None
        _say(f"steps are no longer profiled in process {os.getpid()}: {type(error).__name__}: {error}")


def _described_groups() -> list[Any]:
    """Gives torch's process groups the names that vLLM has for them: "tp", and "tp cpu" for the one beside it
    that works on the host. Returns those that had no name.
    """
    from flagscale_perf.profile.flight import describe

    found = []
    for reference in list(getattr(sys.modules.get(GROUPS_MODULE), "_groups", {}).values()):
        coordinator = reference()
        name = str(getattr(coordinator, "unique_name", "")).partition(":")[0]
        for attribute, text in (("device_group", name), ("cpu_group", f"{name} cpu")):
            group = getattr(coordinator, attribute, None)
            if name and group is not None and describe(group, text):
                found.append(group)
    return found


def rank_of(wrapper: Any) -> Rank:
    """The worker's place in its job. In a replica, tensor parallelism is innermost."""
    from flagscale_perf.profile.rank import Rank

    parallel = wrapper.vllm_config.parallel_config
    tensor, pipeline = parallel.tensor_parallel_size, parallel.pipeline_parallel_size
    replicas, replica = parallel.data_parallel_size, parallel.data_parallel_rank
    worker = int(wrapper.worker.rank)
    experts = bool(getattr(parallel, "enable_expert_parallel", False))
    return Rank(
        rank=replica * tensor * pipeline + worker,
        world_size=replicas * tensor * pipeline,
        tensor=worker % tensor,
        tensor_size=tensor,
        pipeline=worker // tensor,
        pipeline_size=pipeline,
        data=replica,
        data_size=replicas,
        expert=replica * tensor + worker % tensor if experts else None,
        expert_size=replicas * tensor if experts else None,
        host="vllm",
        mode=mode_of(wrapper.vllm_config.compilation_config),
    )


def mode_of(compilation: Any) -> str:
    """How the model runs: "eager", "compiled" or "graphs"."""
    graphs = getattr(compilation, "cudagraph_mode", None)
    if getattr(graphs, "name", "NONE") != "NONE":
        return "graphs"
    return "eager" if getattr(compilation.mode, "name", "NONE") == "NONE" else "compiled"


class Installation:
    """The patches of one process; see `install`."""

    def __init__(self, options: ProfileOptions) -> None:
        from flagscale_perf.hosts.profiling.vllm_now import StepsOnRequest

        self.options = options
        self._make = Steps if options.is_on else StepsOnRequest
        self._patches = Patches()
        self._workers: list[Steps] = []
        self._import_hook = ImportHook({}, {WORKER_MODULE: self._patch_worker}, _import_failed)

    def begin(self) -> None:
        """Patches what the process has imported, and the rest as it comes."""
        self._import_hook.install()

    def undo(self) -> None:
        """Takes every patch back, and ends what is profiled."""
        global _installation
        if _installation is self:
            _installation = None
        self._import_hook.uninstall()
        self._patches.undo()
        while self._workers:
            self._workers.pop().close()

    def _steps(self, wrapper: Any) -> Steps:
        steps: Steps | None = vars(wrapper).get(_STEPS)
        if steps is None:
            steps = self._make(self.options, wrapper)
            setattr(wrapper, _STEPS, steps)
            self._workers.append(steps)
        return steps

    def _patch_worker(self, module: ModuleType) -> None:
        """The worker's wrapper hands `sample_tokens` on by `__getattr__`: it gets a method of that name."""
        owner: Any = module.WorkerWrapperBase
        execute_model, shutdown, of = owner.execute_model, owner.shutdown, self._steps
        prepare: Any = getattr(owner, "initialize_from_config", None)

        def profiled_execute_model(self: Any, scheduler_output: Any, *args: Any, **keywords: Any) -> Any:
            steps = of(self)
            steps.begin(scheduler_output)
            output = execute_model(self, scheduler_output, *args, **keywords)
            if output is not None:
                steps.end()
            return output

        def profiled_sample_tokens(self: Any, *args: Any, **keywords: Any) -> Any:
            output = self.worker.sample_tokens(*args, **keywords)
            of(self).end()
            return output

        def profiled_shutdown(self: Any, *args: Any, **keywords: Any) -> Any:
            of(self).close()
            return shutdown(self, *args, **keywords)

        def watched_initialize_from_config(self: Any, *args: Any, **keywords: Any) -> Any:
            prepared = prepare(self, *args, **keywords)
            of(self)  # the model is there: from now on somebody may ask
            return prepared

        if prepare is not None:
            self._patches.set(owner, "initialize_from_config", watched_initialize_from_config)
        self._patches.set(owner, "execute_model", profiled_execute_model)
        self._patches.set(owner, "sample_tokens", profiled_sample_tokens)
        self._patches.set(owner, "shutdown", profiled_shutdown)


_installation: Installation | None = None


def install(options: ProfileOptions) -> Installation:
    """Profiles the workers of this process from now on, once; the installation can be undone."""
    global _installation
    if _installation is None:
        _installation = Installation(options)
        _installation.begin()
    return _installation


def from_environment() -> None:
    """Called by vLLM: profiles if the environment names steps, and when it is asked to if that names only a
    directory. A mistake in it is reported, and nothing is profiled, as an error of a plug-in would end vLLM.
    """
    if not any(os.environ.get(f"FLAGSCALE_PERF_PROFILE_{name}") for name in ("STEPS", "DIR")):
        return
    try:
        install(ProfileOptions.of())
    except PerfError as error:
        _say(f"nothing is profiled in process {os.getpid()}: {error}")
    except Exception as error:  # another version's modules, for example
        _say(f"nothing is profiled in process {os.getpid()}: {type(error).__name__}: {error}")


def _import_failed(module: str, error: Exception) -> None:
    _say(f"{module} is not patched: {type(error).__name__}: {error} (vLLM goes on without)")


def _say(text: str) -> None:
    complain(f"flagscale_perf profile: {text}")
