"""A training as the engine that predicts changes of it takes it: its captured steps, pauses, and options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from flagscale_perf.analysis.predictions import Change, Check, Doubt, MissingRecordError, Offer, Prediction
from flagscale_perf.analysis.replays import Replays
from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.timeline import Drawn, Item, Process, Track
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.training.analysis import nearby
from flagscale_perf.training.analysis.asked import Asked
from flagscale_perf.training.analysis.best import best, option_of
from flagscale_perf.training.analysis.fold import folded
from flagscale_perf.training.analysis.replayed import NAMES
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.phases import PHASES


class ChangeableRun:
    """One session of a training."""

    phases: Mapping[str, tuple[int, ...]] = NAMES
    checks: Mapping[str, Check] | None = None
    of, perfect = "step", "no message took time, and no rank was late"

    def __init__(self, session: Session) -> None:
        """Reads it once."""
        self._session, self._facts = session, RunFacts.of(session.header.facts)
        self._fold = folded(session)

    def replays(self) -> Replays:
        """Its captured steps. Raises MissingRecordError where there are none that can be replayed."""
        found = self._fold.replays()
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
        """As runs of this configuration nearby differ, else what `compare` assumes."""
        return nearby.drift_of(self._session, self._facts)

    def usual_ns(self, text: str) -> float:
        """The median of its settled steps, with the pauses that changes of this text are about."""
        changed = [word.split("=")[0].rstrip("*") for word in text.split()]
        pauses_ns = self._fold.pauses_ns()
        return nearby.usual_ns(self._session) + sum(pauses_ns.get(name, 0.0) for name in changed)

    def shape(self, changes: Sequence[Change]) -> Mapping[str, object]:
        """Of its model, its batches and its layout after these changes."""
        facts, told = self._facts, {change.name: change.value for change in changes}

        def number(name: str, now: int | None) -> int | None:
            return int(told[name]) if name in told else now

        replicas, size = number("dp", facts.data_parallel), number("mbs", facts.micro_batch_size)
        batch = None if "mbs" in told else facts.global_batch_size
        if "m" in told and replicas and size:
            batch = int(told["m"]) * size * replicas
        return {
            "device": facts.device,
            "pipeline-parallel size": number("pp", facts.pipeline_parallel),
            "data-parallel size": replicas,
            "tensor-parallel size": facts.tensor_parallel,
            "sequence length": facts.seq_length,
            "micro-batch size": size,
            "global batch size": batch,
            **{name.replace("_", " "): value for name, value in (facts.model or {}).items()},
        }

    def flag_of(self, change: Change) -> str:
        """The host's own option for that change; "" where there is none."""
        return option_of(change, self._facts)

    def rates(self, prediction: Prediction) -> Mapping[str, float]:
        """Tokens/s, and MFU in percent, of the predicted step, by the host's integers."""
        sums, facts = self._fold.rated, self._facts
        if not sums.steps or not sums.tokens:
            return {}
        per_s = prediction.samples * NS_PER_S / prediction.predicted_ns / sums.steps
        found = {"tokens/s": sums.tokens * per_s}
        if sums.model_flops and facts.peak_flop_per_s:
            peak = facts.peak_flop_per_s * facts.world_size * prediction.ranks
            found["MFU %"] = 100 * sums.model_flops * per_s / peak
        return found

    def items(self, changes: Sequence[Change]) -> Iterable[Drawn]:
        """A usual step of every rank, recorded and predicted, as of one machine."""
        session, made = self._session.header.session_id, dict[tuple[int, bool], Track]()
        text = " ".join(change.text for change in changes)
        for one in self.replays().drawn(changes):
            what = f"predicted: {text}" if one.is_predicted else "recorded"
            whose = one.rank, one.stage
            process = Process(None, None, session, "training", what, *whose, apart=int(one.is_predicted))
            track = made.setdefault((one.rank, one.is_predicted), Track(process, what))
            begins = [one.begin_ns, *one.ends_ns]
            yield Item(f"step {one.iteration}", track, begins[0], max(begins), step=one.iteration)
            for part, begin_ns, end_ns in zip(one.parts, begins, one.ends_ns, strict=False):
                if end_ns > begin_ns:
                    facts = {"name": part.name} if part.name else {}
                    yield Item(PHASES[part.phase], track, begin_ns, end_ns, facts)

    def best(self, doubt: Doubt) -> Sequence[Offer]:
        """The changes that gain the most, the best first."""
        return best(Asked(self.replays(), doubt), self._facts)
