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
from flagscale_perf.spine.averages import median
from flagscale_perf.training.analysis.compare import NOISE, REHEARSAL_NOISE
from flagscale_perf.training.analysis.replayed import NAMES, ReplayFold
from flagscale_perf.training.analysis.steps import read_steps
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.rank_records import NodeRecord
from flagscale_perf.training.records import CapturedRecord, CaptureRecord, Outcome, StepRecord

WARMUP = 5  # steps that say nothing of the usual one
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
        self._fold = ReplayFold(self._facts, also_without_pipeline=True)
        self._pauses_ns, self._steps = dict.fromkeys(_PAUSES, 0), 0
        for record in session.records():
            if isinstance(record, CapturedRecord):
                self._fold.add(record)
            elif isinstance(record, CaptureRecord):
                self._fold.window(record)
            elif isinstance(record, NodeRecord):
                self._fold.node(record)
            elif isinstance(record, StepRecord) and record.outcome == Outcome.TRAINED:
                self._steps += 1
                for name, field in _PAUSES.items():
                    self._pauses_ns[name] += getattr(record, field)

    def replays(self) -> Replays:
        """Its captured steps. Raises MissingRecordError where there are none that can be replayed."""
        found = self._fold.replays({name: ns / self._steps for name, ns in self._pauses_ns.items() if ns})
        if found is None:
            why = self._fold.why_not and f" that can be replayed ({self._fold.why_not})"
            raise MissingRecordError(
                "what if",
                f"captured steps of every rank{why}",
                f"flagscale-perf capture {self._session.path.parent} --steps 20 while it runs, or start with"
                " --perf-breakdown --perf-capture-steps 20",
            )
        return found

    def drift(self) -> tuple[float, str]:
        """What `compare` assumes between two runs of one configuration."""
        if self._facts.rehearsal:
            return REHEARSAL_NOISE, "assumed for rehearsals on a CPU"
        return NOISE, "assumed for devices"

    def usual_ns(self, text: str) -> float:
        """The median of its settled steps, with the pauses that changes of this text are about."""
        steps = read_steps(self._session, WARMUP, None).steps.values()
        paused = [name for name in _PAUSES if any(word.startswith(name) for word in text.split())]
        usual_ns = median([step.iteration_ns for step in steps])
        return usual_ns + sum(self._pauses_ns[name] / self._steps for name in paused)

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
        """Tokens/s and MFU of the predicted step, by the host's integers."""
        del prediction
        return {}

    def best(self, doubt: Doubt) -> Sequence[Prediction]:
        """The changes that gain the most, the best first."""
        del doubt
        return ()
