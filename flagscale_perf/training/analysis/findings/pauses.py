"""Time of the session in which nothing was trained, by the classes of goodput."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flagscale_perf.analysis.rules import Advice, Change, Finding, rule, unless
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.limits import Limit
from flagscale_perf.spine.units import number, numbered, percent
from flagscale_perf.training.analysis.findings.advice import (
    double,
    give,
    halve,
    is_set,
    move,
    provided,
    switch_on,
    written,
)
from flagscale_perf.training.analysis.findings.case import MS_PER_S, TrainingCase, TrainingRule, interrupts
from flagscale_perf.training.ledger.ledger import Ledger
from flagscale_perf.training.ranks.hang import LEAST, shown

_DISTRIBUTED = "torch_dist"


def _is_distributed(case: TrainingCase) -> bool:
    return bool(case.argument("ckpt_format") == _DISTRIBUTED)


def _async_save(case: TrainingCase) -> Change | None:
    """Asynchronous saving, with the checkpoint format that it needs if the run has another one."""
    if case.argument("async_save"):
        return None
    text = "write in the background"
    if not case.knows_arguments:
        return Change(["--async-save"], f"{text} (needs --ckpt-format {_DISTRIBUTED})")
    needed = {} if _is_distributed(case) else {"--ckpt-format": _DISTRIBUTED}
    return written(case, {"--async-save": True, **needed}, text)


@rule(
    limits={
        "checkpoint": Limit(
            0.035, "share", "Mohan et al. (CheckFreq, FAST 2021): the overhead that their checkpoints keep to"
        )
    },
    causes=[
        "training waits until the last byte is on disk",
        "checkpoints more often than failures call for",
        "slow storage",
    ],
    changes=[
        Advice(
            ["--async-save"], "write in the background (needs --ckpt-format torch_dist)", make=_async_save
        ),
        double(
            "--save-interval", "raise it; what a failure may cost against what each checkpoint does", 10**9
        ),
        provided(
            switch_on("--ckpt-fully-parallel-save", text="let all data-parallel ranks write"),
            lambda case: _is_distributed(case) and (case.number("data_parallel_size") or 1) > 1,
        ),
        provided(switch_on("--ckpt-assume-constant-structure", text="plan once"), _is_distributed),
    ],
)
def checkpoint(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Training that waits for checkpoints."""
    return _pause(this, case, "Training waits for checkpoints for")


@rule(
    limits={
        "evaluation": Limit(
            0.05, "share", "ours: one step of evaluation, a third of a train step, for every seven"
        )
    },
    causes=["many batches, often"],
    changes=[double("--eval-interval", "raise it", 10**9), halve("--eval-iters", "lower it")],
)
def evaluation(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Evaluation between the steps."""
    return _pause(this, case, "Evaluation takes")


_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")  # directories of what is compiled for a device


def _kept_kernels(case: TrainingCase) -> Change | None:
    """Directories for the kernel caches that the environment does not set. (PyTorch itself sets a temporary
    one, `torchinductor_USER`.)
    """
    in_force = {name: str(value) for name, value in (case.facts.environment or {}).items()}
    unset = [name for name in _CACHES if not in_force.get(name) or "/torchinductor_" in in_force[name]]
    text = "in the environment: keep compiled kernels on a disk that outlives the job"
    return Change(unset, text) if unset and not case.is_on_cpu else None


_COMPILING = "kernels are compiled, or tuned for each new shape"


def _loads(case: TrainingCase) -> bool:
    return bool(case.argument("load") or case.argument("pretrained_checkpoint"))


@rule(
    limits={
        "startup": Limit(0.05, "share", "ours: of the wall time so far"),
        "startup_s": Limit(
            300, "s", "ours: imports, communicators, a checkpoint of some 100 GB and compilation take less"
        ),
    },
    causes=[
        "building the dataset's index",
        "reading a checkpoint from slow storage",
        "compiling kernels",
        "many communicators",
    ],
    changes=[
        unless(
            give("--data-cache-path", "build the dataset's index once, on storage that all nodes see"),
            is_set("mock_data"),
        ),
        provided(
            switch_on(
                "--ckpt-fully-parallel-load", text="let the ranks read parts of the checkpoint for each other"
            ),
            lambda case: _loads(case) and (case.number("data_parallel_size") or 1) > 1,
        ),
        provided(
            switch_on("--no-load-optim", text="where the optimizer's state is not needed: do not read it"),
            _loads,
        ),
    ],
)
def startup(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """The way to the first step and what that took longer, as a share and in seconds."""
    dur_s = case.part("startup") - (case.report.settled.excess_s or 0.0)
    if not this.exceeds(dur_s, "startup_s"):
        return None
    title = f"Start-up took {number(dur_s, 0)} s, the first step's extra time included:"
    return _pause(this, case, title, dur_s)


@rule(
    explains={"jitter"},
    limits={
        "slow_start": Limit(0.05, "share", "ours: of the wall time so far, as for the way to the first step"),
        "slow_start_step": Limit(
            1.3,
            "times",
            "ours: a mean step of the start against a usual one; compiling and first reads take more, and a "
            "machine that drifts takes less",
        ),
    },
    causes=[
        _COMPILING,
        "data is read for the first time: page cache, the loader's processes, tokenising",
        "memory is touched and the allocator's cache filled for the first time",
        "communicators are set up at their first use",
    ],
    changes=[
        Advice(
            list(_CACHES),
            "in the environment: keep compiled kernels on a disk that outlives the job",
            make=_kept_kernels,
        ),
        unless(
            give("--data-cache-path", "where it is data: keep the dataset's index files on a local disk"),
            is_set("mock_data"),
        ),
        unless(
            Change(
                [], "where it is data: read the dataset's files once before the start, into the page cache"
            ),
            is_set("mock_data"),
        ),
        Change([], "train longer between restarts: each of them starts like this again"),
    ],
)
def slow_start(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Steps after the first one that are slower than settled ones."""
    settled = case.report.settled
    steps = settled.start_steps
    if not steps or not settled.usual_ms or settled.first_iteration is None:
        return None
    late_s = steps * sum(map(_in_rhythm_s, case.report.ledgers))
    excess_s = max(0.0, (settled.excess_s or 0.0) - late_s)
    mean_ms = ((settled.start_s or 0.0) - late_s) / steps * MS_PER_S
    share, times = case.share_of_wall(excess_s), mean_ms / settled.usual_ms
    if not this.exceeds(share, "slow_start") or not this.exceeds(times, "slow_start_step"):
        return None
    title = (
        f"The first {steps} steps after the first one take {number(mean_ms, 1)} ms on average, "
        f"later ones {number(settled.usual_ms, 1)} ms: {percent(share)} of the session"
    )
    evidence = [
        this.broke("steps of the start above the usual, of the wall time", share, "slow_start"),
        this.broke("a mean step of the start against a usual one", times, "slow_start_step"),
    ]
    found = interrupts(this, case, title, evidence, excess_s)
    return replace(
        found,
        causes=[cause for cause in found.causes if cause != _COMPILING or not case.is_on_cpu],
        first_iteration=settled.first_iteration - steps,
        iteration=settled.first_iteration - 1,
    )


def _in_rhythm_s(ledger: Ledger) -> float:
    """Cost in a mean step of ranks that are late at even distances, which does not make the start slow."""
    rows = (row for row in ledger.late if row.pattern == "periodic")
    return sum(row.cost_ns for row in rows) / max(1, ledger.steps) / NS_PER_S


def _lower_scale(case: TrainingCase, now: float) -> float | None:
    """A scale that fp16 can begin with; the host's own is 2**32."""
    return 65536 if now > 65536 else None


@rule(
    limits={"lost": Limit(0.01, "share", "ours: one iteration in a hundred that trains nothing")},
    causes=[
        "overflows while the loss scale finds its level",
        "NaN or spikes in the loss",
        "iterations the host was told to skip",
    ],
    changes=[
        provided(move("--initial-loss-scale", "with fp16: begin lower", _lower_scale), is_set("fp16")),
        provided(
            double("--loss-scale-window", "with fp16: raise the scale less often", 10**9), is_set("fp16")
        ),
        provided(switch_on("--bf16", text="where the device has it: no loss scale at all"), is_set("fp16")),
        double("--lr-warmup-iters", "longer, if the loss spikes in the beginning", 10**9, least=100),
    ],
)
def lost(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Iterations that trained nothing."""
    return _pause(this, case, f"{case.report.overview.skipped_iterations} iterations trained nothing:")


_SILENCE_ENDS = halve(
    "--distributed-timeout-minutes", "lower it, so that a rank that is gone ends the run sooner", 2
)


@rule(
    explains={"idle"},
    limits={"hang": LEAST},
    causes=[
        "a collective that not every rank enters",
        "a data loader, a lock or a file system that does not answer",
        "a rank, device or link that is gone",
    ],
    changes=[
        Change([], "read every rank's stack: `flagscale-perf stacks RUN --full`, as long as it hangs"),
        _SILENCE_ENDS,
    ],
)
def hang(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """A run whose last step never ended, as the writer saw: the ranks that the others wait for, and where."""
    told = case.signals.hang
    if told is None:
        return None
    ranks, places = (_listed(told.evidence, key, kind) for key, kind in (("ranks", int), ("places", str)))
    waits = f"The job hangs after iteration {told.iteration}: "
    if not ranks:
        waits += "each rank waits for another"
    elif places:
        waits += f"it waits for {numbered('rank', ranks)}, at {shown(places[0])}"
    else:
        waits += f"it waits for {numbered('rank', ranks)}, of which nothing comes"
    dur_s = _idle_s(case)
    evidence = [this.broke("without a step", dur_s, "hang")]
    return replace(interrupts(this, case, waits, evidence, dur_s), ranks=ranks, iteration=told.iteration)


def _listed(evidence: Mapping[str, Any], key: str, kind: type) -> list[Any]:
    """What a list of the file's has of that type: nothing else has been looked at yet."""
    value = evidence.get(key)
    return [each for each in value if isinstance(each, kind)] if isinstance(value, list) else []


def _idle_s(case: TrainingCase) -> float:
    return case.part("idle") - case.signals.stood_ns / NS_PER_S


@rule(
    limits={
        "idle": Limit(0.05, "share", "ours: time in no iteration and no known pause"),
        "idle_s": Limit(60, "s", "ours: the way to the end of a process takes less"),
    },
    causes=["the run hung in an iteration that was never finished", "a process that took long to end"],
    changes=[_SILENCE_ENDS],
)
def idle(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Time in no iteration and no known pause."""
    dur_s = _idle_s(case) - case.explained_s
    if not this.exceeds(dur_s, "idle_s"):
        return None
    return _pause(this, case, "Unaccounted time:", dur_s)


@rule(
    limits={"standstill": Limit(0.01, "share", "ours: a healthy job never stands still")},
    causes=[
        "the scheduler suspended the job (scontrol suspend, preemption) or its container was paused",
        "its processes were stopped by hand: SIGSTOP, Ctrl-Z, a debugger",
    ],
    changes=[
        Change([], "look into the scheduler's log at the times of the `standstill` records of the run file")
    ],
)
def standstill(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Time in which the job was stopped. It is in no step and no rate."""
    times = "" if case.signals.stood == 1 else f" {case.signals.stood} times,"
    stood_s = case.signals.stood_ns / NS_PER_S
    return _pause(this, case, f"The job stood still{times} for {number(stood_s, 1)} s:", stood_s)


def _pause(this: TrainingRule, case: TrainingCase, title: str, dur_s: float | None = None) -> Finding | None:
    """Judges the share of this time; without it, of the class that is called like the rule."""
    dur_s = case.part(this.name) if dur_s is None else dur_s
    share = case.share_of_wall(dur_s)
    if not this.exceeds(share, this.name):
        return None
    evidence = [this.broke(f"{this.name}, of the wall time", share, this.name)]
    return interrupts(this, case, f"{title} {percent(share)} of the session", evidence, dur_s)
