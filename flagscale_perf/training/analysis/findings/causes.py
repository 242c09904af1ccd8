"""What findings say of a phase: its name in words, and the likely causes of time lost in it."""

from __future__ import annotations

from collections.abc import Sequence

from flagscale_perf.analysis.rules import Change, unless
from flagscale_perf.spine.units import ranges
from flagscale_perf.training.analysis.findings.advice import double
from flagscale_perf.training.phases import TABLE

_WORDS = {
    "data_loading": "data loading",
    "pipeline_recv_wait": "waiting for another pipeline stage",
    "pipeline_send": "sending to another pipeline stage",
    "exposed_grad_comm": "waiting for the reduction of gradients",
    "exposed_param_comm": "waiting for parameters to be gathered",
    "exposed_stat_comm": "the ranks' agreement on the step",
    "zero_grad": "zeroing the gradients",
    "optimizer": "the optimizer outside its parts",
    "optimizer_copy_grad": "the optimizer's copy of gradients",
    "optimizer_unscale_check": "the optimizer's check for overflows",
    "optimizer_clip": "clipping the gradients",
    "optimizer_inner_step": "the optimizer's inner step",
    "optimizer_copy_param": "the optimizer's copy of parameters",
    "optimizer_count_zeros": "counting zeros in the gradients",
    "forward_backward_other": "the schedule of forward and backward, outside both",
    "other": "the train step outside every phase",
    "between_steps": "what is between two train steps",
}
_CAUSES = {
    "Data": ["the loader's queue runs empty", "slow or far storage"],
    "Forward": [
        "Python collects garbage where the forward pass makes it",
        "the model's own code: hooks, copies to the device, `.item()`",
    ],
    "Backward": ["hooks on gradients", "kernels or buckets that are set up again in these steps"],
    "Pipe": ["another stage is late; its rank's own phases say in what"],
    "Comm": ["another rank is late; its own phases say in what", "the network between the nodes"],
    "Optim": ["state that lies on the host or is copied there", "hooks around the optimizer's step"],
    "Other": ["what the training script does in a step besides training"],
    "Between": ["logging and its destinations", "what the training script does between the steps"],
}
PROFILED_STEPS = 12  # a rank is told apart from six on, a layer from three on
_CHANGES: dict[str, list[Change]] = {
    "Data": [double("--num-workers", "raise it: more processes prepare batches ahead", most=16, least=2)],
    "Between": [double("--log-interval", "raise it, if these are the steps that are logged", most=10**9)],
}


def profile(text: str) -> Change:
    """Profile twelve steps: a rank is told apart from six on, a layer from three on."""
    return unless(
        Change(["--perf-profile-steps 20-31"], text), lambda case: case.options.perf_profile_steps is not None
    )


def profile_of(ranks: Sequence[int], first: int, last: int | None, text: str) -> Change:
    """Profile these ranks for twelve steps from `first` on; no later than the `last` of the run, if known."""
    end = first + PROFILED_STEPS - 1 if last is None else min(first + PROFILED_STEPS - 1, last)
    steps = f"{max(1, end - PROFILED_STEPS + 1)}-{end}"
    listed = ranges(ranks).replace(" ", "")
    return Change([f"--perf-profile-steps {steps}", f"--perf-profile-ranks {listed}"], text)


def named(phase: str) -> str:
    """The phase as a title says it; its own name where no words are known."""
    return _WORDS.get(phase, phase)


def place_of(phase: str | None) -> str:
    """The end of a title: ", in forward"; "" for no phase in particular."""
    return "" if phase is None else f" in {named(phase)}"


def causes_in(phase: str | None, others: Sequence[str]) -> list[str]:
    """Likely causes in a phase before those of the rule."""
    return [*_CAUSES[TABLE[phase].group], *others] if phase is not None else list(others)


def changes_in(phase: str | None, others: Sequence[Change]) -> list[Change]:
    """The changes that help in a phase, then those of the rule."""
    return [*_CHANGES.get(TABLE[phase].group, []), *others] if phase is not None else list(others)
