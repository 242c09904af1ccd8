"""Predicted = measured + (replay of the change - replay of what was), step by step; the median counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from flagscale_perf.analysis.replays import (
    WAITS,
    Change,
    Doubt,
    Layout,
    MissingRecordError,
    Prediction,
)
from flagscale_perf.spine.averages import median
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.whatif import durations, intervals, operators
from flagscale_perf.whatif.changes import ASYNC, PAUSES
from flagscale_perf.whatif.durations import Lags
from flagscale_perf.whatif.regenerated import Regenerated, Run
from flagscale_perf.whatif.replay import Arrangement, Replay, Simulation, Times
from flagscale_perf.whatif.targets import Target, target_of

_PAUSING = {
    "checkpoint": "some hundred steps with --save and --save-interval",
    "evaluation": "some hundred steps with --eval-interval and --eval-iters",
    "gc": "--perf-profile-steps 20-31, which shows where the collector runs",
}
MIN_STEPS = 3  # of fewer nobody knows how far another one would be


def predict(
    runs: tuple[Layout, Sequence[Replay], Sequence[Run]], changes: Sequence[Change], doubt: Doubt
) -> Prediction:
    """The usual step after these changes. Raises MissingRecordError, PerfError for what is impossible.
    `runs`: the run's layout, each arrangement of its steps, and runs of other layouts.
    """
    layout, replays, others = runs
    if not changes:
        raise PerfError("there is no change to predict; write one, such as m=16")
    text = " ".join(change.text for change in changes)
    found = [_of_one((layout, one), changes, others) for one in replays]
    measured, predicted, residual, ceiling, iterations = (
        [*chain.from_iterable(own)] for own in zip(*(steps for steps, _ in found), strict=True)
    )
    if len(measured) < MIN_STEPS:
        raise MissingRecordError(
            text,
            f"{MIN_STEPS} captured steps of every rank; there are {len(measured)}",
            "flagscale-perf capture RUN --steps 20",
        )
    kind = max(change.kind for change in changes)
    parts, plain_ns = intervals.parts_of(kind, measured, predicted, residual, doubt)
    before_ns, after_ns, reach_ns = _paused(layout, changes)
    parts["record"] = intervals.together({"record": parts["record"], "pauses": reach_ns})
    usual_ns, half_ns = median(predicted) + after_ns, intervals.together(parts)
    scores = doubt.scores.get(kind, ())
    samples = found[0][1].samples
    gains = [samples * before - after for before, after in zip(measured, predicted, strict=True)]
    gain_half_ns = intervals.of_gain(kind, intervals.sampling(gains), median(gains), doubt)
    return Prediction(
        text=text,
        kind=kind,
        measured_ns=median(measured) + before_ns,
        predicted_ns=usual_ns,
        low_ns=usual_ns - half_ns,
        high_ns=usual_ns + half_ns,
        parts=parts,
        plain_ns=math.hypot(plain_ns, reach_ns),
        ceiling_ns=median(ceiling) + (after_ns - reach_ns),
        steps=len(measured),
        evidence=f"{len(measured)} captured steps, {min(iterations)}-{max(iterations)}",
        checked=(sum(is_hit for _, is_hit in scores), len(scores)),
        gain_half_ns=math.hypot(gain_half_ns, reach_ns),
        samples=samples,
        ranks=found[0][1].ranks,
        notes=[
            *dict.fromkeys(note for _, both in found for note in both.notes),
            f"between two runs {100 * doubt.drift:.1f} %: {doubt.drift_source}",
        ],
    )


class _Steps(NamedTuple):
    """Of each sound step of one arrangement.

    Attributes:
        measured, predicted, ceiling: how long it takes.
        residual: by how much the replay is longer where messages and collectives take what they usually do.
        iterations: its number.
    """

    measured: list[float]
    predicted: list[float]
    residual: list[float]
    ceiling: list[float]
    iterations: list[int]


class Pipelines:
    """The recorded pipeline, and the one that changes ask for.

    Attributes:
        lags: of the recorded one, after the changes of durations and of operators.
        samples, ranks: how many times as many as before.
        notes: what was assumed.
    """

    def __init__(self, run: Run, changes: Sequence[Change], others: Sequence[Run] = ()) -> None:
        """`others`: runs of other layouts. Raises MissingRecordError, PerfError."""
        (layout, replay), self._text = run, " ".join(one.text for one in changes)
        of_durations = [one for one in changes if one.kind == "A" and one.name not in PAUSES]
        of_operators = operators.checked(layout, changes)
        of_graph = [one for one in changes if one.kind == "B"]
        self.lags = operators.changed(
            layout, replay, durations.changed(layout, replay, of_durations), of_operators
        )
        self._run, self._others = run, others
        self.samples = self.ranks = 1.0
        self.notes: list[str] = []
        self._target: Target | None = None
        self._before_ns = replay.end_ns
        if of_graph or of_operators:
            made = Regenerated(run, replay.lags_ns, others)
            of_graph += operators.graph_of(layout, made.was.shape, [*of_graph, *of_operators])
            self._target = target = target_of(layout, made.was, of_graph)
            simulation, lags = made.put(made.was, self._text)
            self._before_ns = simulation.end(lags)
            growth = operators.growth_of(layout, of_operators)
            self.samples = growth * target.samples / made.was.samples
            self.ranks = target.ranks / made.was.ranks
            if self.ranks != 1:
                self.notes.append(f"on {target.ranks} ranks instead of {made.was.ranks}")

    def put(self, lags: Lags) -> tuple[Simulation, Lags]:
        """The pipeline that is asked for with these lags of the recorded one, and its own."""
        if self._target is None:
            return self._run[1], lags
        made = Regenerated(self._run, lags, self._others)
        found = made.put(self._target, self._text)
        self.notes += [note for note in made.notes if note not in self.notes]
        return found

    def longer(self, lags: Lags) -> Times:
        """By how much each step gets longer."""
        simulation, own = self.put(lags)
        longer_ns: Times = simulation.end(own) - self._before_ns
        return longer_ns


def _of_one(run: Run, changes: Sequence[Change], others: Sequence[Run]) -> tuple[_Steps, Pipelines]:
    layout, replay = run
    found, both = replay.arrangement, Pipelines(run, changes, others)
    measured_ns = replay.end_ns - np.max([own.max(axis=0) for own in found.begin_ns.values()], axis=0)
    columns = (
        measured_ns,
        measured_ns + both.longer(both.lags),
        replay.residual_ns,
        measured_ns + both.longer(perfect(found, both.lags)),
    )
    counts = replay.is_sound & found.since(layout.since)
    measured, predicted, residual, ceiling = ([*map(float, each[counts])] for each in columns)
    return _Steps(measured, predicted, residual, ceiling, np.array(found.iterations)[counts].tolist()), both


def perfect(found: Arrangement, lags: Lags) -> Lags:
    """The same where messages and collectives take no time, and no rank is later than its usual peer."""
    changed = {}
    for lane, parts in found.graph.parts.items():
        waits = np.array([part.kind in WAITS for part in parts])
        own = np.minimum(lags[lane], np.median(lags[lane], axis=1, keepdims=True).astype(np.int64))
        own[waits] = own[waits].clip(None, 0)
        changed[lane] = own
    return changed


def _paused(layout: Layout, changes: Sequence[Change]) -> tuple[float, float, float]:
    """What the pauses that changes are about take of a step on average, what is left of that, and by how much
    it may be otherwise: how long one blocks that is written beside training is not known before.
    """
    before_ns = after_ns = reach_ns = 0.0
    for change in changes:
        if change.name in PAUSES:
            if change.name not in layout.pauses_ns:
                raise MissingRecordError(
                    change.text,
                    f"a pause of that kind: this run has no {change.name}",
                    _PAUSING[change.name],
                )
            own_ns = layout.pauses_ns[change.name]
            half = 0.5 if change.value == ASYNC else 0.0
            before_ns += own_ns
            after_ns += own_ns * (half or float(change.value))
            reach_ns += own_ns * half
    return before_ns, after_ns, reach_ns
