"""A training as the engine that predicts changes of it takes it: its captured steps, pauses, and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flagscale_perf.analysis.replays import (
    Change,
    Doubt,
    MissingRecordError,
    Prediction,
    Replays,
)
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.training.analysis import nearby
from flagscale_perf.training.analysis.replayed import NAMES, ReplayFold
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.rank_records import NodeRecord
from flagscale_perf.training.records import CapturedRecord, CaptureRecord, Outcome, StepRecord

MAX_WINDOWS = 4  # of a run that are kept, the last ones
_PAUSES = {"checkpoint": "checkpoint_ns", "evaluation": "eval_ns"}
# The host's own options, by what is changed.
FLAGS = {
    "m": "--global-batch-size",
    "pp": "--pipeline-model-parallel-size",
    "v": "--num-virtual-stages-per-pipeline-rank",
    "schedule": "--num-virtual-stages-per-pipeline-rank",
    "layers": "--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers",
    "mbs": "--micro-batch-size",
    "tp": "--tensor-model-parallel-size",
    "cp": "--context-parallel-size",
    "ep": "--expert-model-parallel-size",
    "recompute": "--recompute-granularity",
    "overlap": "--overlap-grad-reduce, --overlap-p2p-communication",
    "seq": "--seq-length",
    "fp8": "--fp8-format",
    "data_loading": "--num-workers",
    "checkpoint": "--async-save",
    "evaluation": "--eval-interval",
}


class ChangeableRun:
    """One session of a training."""

    phases: Mapping[str, tuple[int, ...]] = NAMES

    def __init__(self, session: Session) -> None:
        """Reads it once."""
        self._session, self._facts = session, RunFacts.of(session.header.facts)
        self._nodes: list[NodeRecord] = []
        self._windows: list[tuple[CaptureRecord, ReplayFold]] = []
        self._pauses_ns, self._steps = dict.fromkeys(_PAUSES, 0), 0
        self._step: StepRecord | None = None
        for record in session.records():
            self._add(record)

    def _add(self, record: object) -> None:
        if isinstance(record, CapturedRecord):
            for _, fold in self._windows:
                fold.add(record)
        elif isinstance(record, CaptureRecord):
            fold = ReplayFold(self._facts, also_without_pipeline=True)
            fold.window(record)
            self._windows = [*self._windows[1 - MAX_WINDOWS :], (record, fold)]
            for node in self._nodes:
                fold.node(node)
        elif isinstance(record, NodeRecord):
            self._nodes.append(record)
            for _, fold in self._windows:
                fold.node(record)
        elif isinstance(record, StepRecord) and record.outcome == Outcome.TRAINED:
            self._step, self._steps = record, self._steps + 1
            for name, field in _PAUSES.items():
                self._pauses_ns[name] += getattr(record, field)

    def replays(self) -> Replays:
        """The captured steps of the last window that was asked for, or else of the last one; those before it
        tell what a rank took earlier. Raises MissingRecordError where there are none that can be replayed.
        """
        asked = [at for at, (record, _) in enumerate(self._windows) if not record.why]
        at = (asked or [len(self._windows) - 1])[-1]
        why = ""
        if self._windows:
            before = {number: step for _, fold in self._windows[:at] for number, step in fold.kept.items()}
            fold = self._windows[at][1]
            pauses_ns = {name: ns / self._steps for name, ns in self._pauses_ns.items() if ns}
            found = fold.replays(pauses_ns, before)
            if found is not None:
                return found
            why = fold.why_not and f" that can be replayed ({fold.why_not})"
        raise MissingRecordError(
            "what if",
            f"captured steps of every rank{why}",
            f"flagscale-perf capture {self._session.path.parent} --steps 20 while it runs, or start with"
            " --perf-breakdown --perf-capture-steps 20",
        )

    def drift(self) -> tuple[float, str]:
        """As runs of this configuration nearby differ, else what `compare` assumes."""
        return nearby.drift_of(self._session, self._facts)

    def usual_ns(self, text: str) -> float:
        """The median of its settled steps, with the pauses that changes of this text are about."""
        paused = [name for name in _PAUSES if any(word.startswith(name) for word in text.split())]
        steps = max(1, self._steps)
        return nearby.usual_ns(self._session) + sum(self._pauses_ns[name] / steps for name in paused)

    def flag_of(self, change: Change) -> str:
        """The host's own option for that change; "" where there is none."""
        return FLAGS.get(change.name, "")

    def missing(self, change: Change) -> str | None:
        """The record without which the change has no answer; None where there are all."""
        try:
            self.replays().predict([change])
        except MissingRecordError as error:
            return error.record
        return None

    def rates(self, prediction: Prediction) -> Mapping[str, float]:
        """Tokens/s, and MFU in percent, of the predicted step, by the host's integers."""
        step, facts = self._step, self._facts
        if step is None or not step.tokens:
            return {}
        per_s = prediction.samples * NS_PER_S / prediction.predicted_ns
        found = {"tokens/s": step.tokens * per_s}
        if step.model_flops and facts.peak_flop_per_s:
            peak = facts.peak_flop_per_s * facts.world_size * prediction.ranks
            found["MFU %"] = 100 * step.model_flops * per_s / peak
        return found

    def best(self, doubt: Doubt) -> Sequence[Prediction]:
        """The changes that gain the most, the best first."""
        del doubt
        return ()
