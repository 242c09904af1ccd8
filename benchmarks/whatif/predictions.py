"""Predictions of recorded trainings, each beside what the host itself said of the changed steps.

A recorded training is asked for its steps without a plant, or those with it, and what the other ones would
take: `flagscale-perf what-if` as a user asks it, of a run that has captured only these steps. A ramp is asked
for other numbers of micro-batches, a layout for other layouts. Outcomes are entered as they come, as
`--check` does, so that what is known of a kind of prediction grows.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.whatif.inside import training_of
from benchmarks.whatif.plans import ALL, BEFORE, NONE, Plant, Training, drawn
from flagscale_perf.analysis.replays import Doubt, Prediction, Replays, engine
from flagscale_perf.spine.averages import median
from flagscale_perf.store.decoder import decode
from flagscale_perf.training.analysis.basis import noise_of
from flagscale_perf.training.analysis.nearby import spread_of
from flagscale_perf.training.analysis.replayed import NAMES, ReplayFold
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.phases import NUMBER_OF
from flagscale_perf.training.rank_records import NodeRecord
from flagscale_perf.training.records import CapturedRecord, CaptureRecord

SETTLED = 3  # steps of a ramp's stretch, or of a run, that come before it is even
PASS_ENDS = 2 * NUMBER_OF["forward-compute"] + 1  # the mark
WORDS = {"send": "p2p", "optimizer": "optimizer_inner_step", "between": "between_steps"}
STEP_WITHIN = {"plants": 0.03, "micro-batches": 0.02, "layouts": 0.05}
GAIN_WITHIN, GAIN_OF_STEP = 0.2, 0.02
LEAST, HITS, HALF_WIDTH = 60, 0.9, 0.05
# From one recorded layout to another: what is asked, and which row of the table that is.
LAYOUTS = (
    ("pp2", "pp2_31", "layers=3,1", "split"), ("pp2_again", "pp2_31", "layers=3,1", "split"),
    ("pp2", "pp2_13", "layers=1,3", "split"), ("pp2_31", "pp2", "layers=2,2", "split"),
    ("pp2_31", "pp2_13", "layers=1,3", "split"), ("deep_pp2", "deep_pp2_53", "layers=5,3", "split"),
    ("deep_pp2_53", "deep_pp2", "layers=4,4", "split"),
    ("pp2", "pp4", "pp=4", "pp"), ("pp2_again", "pp4", "pp=4", "pp"), ("pp4", "pp2", "pp=2", "pp"),
    ("deep_pp2", "deep_pp4", "pp=4", "pp"), ("deep_pp2", "deep_pp8", "pp=8", "pp"),
    ("deep_pp4", "deep_pp8", "pp=8", "pp"), ("deep_pp4", "deep_pp2", "pp=2", "pp"),
    ("deep_pp8", "deep_pp4", "pp=4", "pp"),
    ("pp2", "pp2_vpp2", "v=2", "interleaved"), ("pp2_again", "pp2_vpp2", "v=2", "interleaved"),
    ("pp2_vpp2", "pp2", "schedule=1f1b", "interleaved"),
    ("pp2", "pp2_dp2", "dp=2 m=8", "dp"), ("pp2_again", "pp2_dp2", "dp=2 m=8", "dp"),
    ("pp2_dp2", "pp2", "dp=1 m=8", "dp"),
)  # fmt: skip
SAME = "pp2", "pp2_again"  # which differ only as runs do
EXCHANGES = "toggled_pp2_dp2"  # of any seed: has two replicas


class Case(NamedTuple):
    """One question and its answer.

    Attributes:
        kind: a row of the table.
        group: of these, one of STEP_WITHIN.
        run, words: what is asked of which training.
        steps: those that the training has captured.
        drift: standard deviation between two runs, a share; 0 within one that is switched to and fro.
        truth_ms: the usual step where it is so.
        before_ms: the usual step as asked.
        beside: a run of another layout, which tells what this one cannot.
    """

    kind: str
    group: str
    run: Recorded
    words: tuple[str, ...]
    steps: frozenset[int]
    truth_ms: float
    before_ms: float
    drift: float = 0.0
    beside: tuple[Replays, ...] = ()


@dataclass(frozen=True)
class Recorded:
    """A training and its files.

    Attributes:
        training: what was planned.
        step_ms: the host's own.
    """

    directory: Path
    training: Training
    step_ms: Mapping[int, float]

    @classmethod
    def of(cls, directory: Path) -> Recorded:
        """As `record.py` has kept it."""
        truth = json.loads((directory / "truth.json").read_text())
        step_ms = {int(step): float(ms) for step, ms in truth["step_ms"].items()}
        return cls(directory, training_of(truth["training"]), step_ms)

    @cached_property
    def _records(self) -> list[Any]:
        with gzip.open(self.directory / "perf.jsonl.gz") as lines:
            return [decode(line) for line in lines]

    @cached_property
    def captured(self) -> list[CapturedRecord]:
        """Steps of ranks."""
        return [record for record in self._records if isinstance(record, CapturedRecord)]

    @cached_property
    def steps(self) -> dict[int, list[CapturedRecord]]:
        """Those of which all ranks are there, and were before."""
        found = defaultdict(list)
        for record in self.captured:
            found[record.iteration].append(record)
        whole = {step for step, own in found.items() if len(own) == self.training.ranks}
        return {step: found[step] for step in sorted(whole) if step - 1 in whole and step in self.step_ms}

    def batches(self, step: int) -> int:
        """Micro-batches of a replica."""
        return self.steps[step][0].marks[::2].count(PASS_ENDS)

    def in_state(self, state: str) -> frozenset[int]:
        """The steps in which that is planted."""
        return frozenset(step for step in self.steps if step > BEFORE and self.training.state(step) == state)

    def usual_ms(self, steps: Collection[int]) -> float:
        """By the host."""
        return median([self.step_ms[step] for step in steps])

    def replays(self, steps: frozenset[int]) -> Replays:
        """Of a run that has captured no others. Each stretch of steps keeps its number, behind a gap, so that
        none seems to follow another.
        """
        fold = ReplayFold(RunFacts.of(self._records[0].facts))
        numbers: dict[int, int] = {}
        for step in sorted(steps | {step - 1 for step in steps}):
            numbers[step] = len(numbers) and max(numbers.values()) + (1 if step - 1 in numbers else 2)
        fold.window(CaptureRecord(0, max(numbers.values()), []))
        for record in self._records:
            if isinstance(record, NodeRecord):
                fold.node(record)
        for each in self.captured:
            if each.iteration in numbers:
                fold.add(replace(each, iteration=numbers[each.iteration]))
        found = fold.replays()
        assert found is not None, (self.directory.name, fold.why_not)
        return found


def cases(runs: Mapping[str, Recorded]) -> Iterator[Case]:
    """Of recorded trainings, in the order in which they were recorded."""
    drift, _ = drift_of(runs)
    for run in runs.values():
        if run.training.plants:
            yield from _of_plants(run)
        elif run.training.ramps:
            yield from _of_ramp(run, drift)
        else:
            yield from _of_layout(run, runs, drift)


def _seed(name: str) -> str:
    return name.rpartition("_s")[2]


def drift_of(runs: Mapping[str, Recorded]) -> tuple[float, str]:
    """As of these runs nearby: of each seed one layout was trained twice."""
    pairs = [[runs.get(f"{name}_s{seed}") for name in SAME] for seed in sorted({*map(_seed, runs)})]
    both = [[run.usual_ms(run.steps) for run in pair if run is not None] for pair in pairs]
    share = spread_of(both)
    return noise_of(is_on_cpu=True) if share is None else (share, f"{len(both)} layouts trained twice")


def _of_layout(run: Recorded, runs: Mapping[str, Recorded], drift: float) -> Iterator[Case]:
    """Of all its steps: no two runs are alike, so that what differs between runs counts, too."""
    name, _, seed = run.training.name.rpartition("_s")
    for before, after, words, kind in LAYOUTS:
        other = runs.get(f"{after}_s{seed}")
        if before == name and other is not None:
            usual_ms = other.usual_ms(other.steps), run.usual_ms(run.steps)
            needs = kind == "dp" and run.training.replicas == 1
            told = [each for key, each in runs.items() if needs and key.startswith(EXCHANGES)]
            beside = tuple(each.replays(each.in_state(NONE)) for each in told[:1])
            asked = run, tuple(words.split()), frozenset(run.steps)
            yield Case(kind, "layouts", *asked, *usual_ms, drift, beside)


def _of_plants(run: Recorded) -> Iterator[Case]:
    without = run.in_state(NONE)
    off = run.usual_ms(without)
    for plant in run.training.plants:
        with_it = run.in_state(plant.name)
        on = run.usual_ms(with_it)
        kind = (
            plant.part + " of a rank nobody waits for" * plant.hidden + " of a stage" * (plant.stage != ALL)
        )
        yield Case(kind, "plants", run, _words(plant, "+="), without, on, off)
        yield Case(kind, "plants", run, _words(plant, "-="), with_it, off, on)
        if run.training.replicas > 1 and plant.rank != ALL and not plant.hidden:
            words = f"rank={plant.rank}", f"{WORDS.get(plant.part, plant.part)}=peers"
            yield Case(f"{kind} as its peers", "plants", run, words, with_it, off, on)


def _words(plant: Plant, how: str) -> tuple[str, ...]:
    place = f"rank={plant.rank}" if plant.stage == ALL else f"stage={plant.stage}"
    where = () if plant.part == "send" else (place,)
    return *where, f"{WORDS.get(plant.part, plant.part)}{how}{plant.ms}ms"


def _of_ramp(run: Recorded, drift: float) -> Iterator[Case]:
    """One number of micro-batches follows another: what differs between runs differs between these, too."""
    stretches = defaultdict(set)
    for step in run.steps:
        stretches[run.batches(step)].add(step)
    settled = {m: frozenset(step for step in own if step - 1 in own) for m, own in stretches.items()}
    usual_ms = {m: run.usual_ms(own) for m, own in settled.items()}
    for before, own in settled.items():
        for after in sorted(settled.keys() - {before}):
            both_ms = usual_ms[after], usual_ms[before]
            yield Case("m", "micro-batches", run, (f"m={after}",), own, *both_ms, drift)


class Outcome(NamedTuple):
    """A prediction and how it turned out."""

    case: Case
    prediction: Prediction

    def __str__(self) -> str:
        said, case = self.prediction, self.case
        half = f"{self.error:+7.1%} +-{self.half_width:5.1%} {'hit ' if self.is_hit else 'MISS'}"
        gain = "a gain" if said.is_gain else "no gain"
        ms = f"{case.before_ms:6.0f} -> {case.truth_ms:6.0f} ms, predicted {said.predicted_ns / 1e6:6.0f}"
        return f"{case.run.training.name:22} {said.text:36} {ms} {half} {gain}"

    @property
    def error(self) -> float:
        """Of the step, a share."""
        return self.prediction.predicted_ns / 1e6 / self.case.truth_ms - 1

    @property
    def is_hit(self) -> bool:
        """Whether the interval holds what the host said."""
        return self.prediction.low_ns <= self.case.truth_ms * 1e6 <= self.prediction.high_ns

    @property
    def half_width(self) -> float:
        """Of the predicted step, a share."""
        return (self.prediction.high_ns - self.prediction.low_ns) / 2 / self.prediction.predicted_ns

    @property
    def meets(self) -> bool:
        """Whether step, and gain of a plant, are as near as they have to be."""
        gain_ms = self.case.before_ms - self.case.truth_ms
        off_ms = abs(self.prediction.gain_ns / 1e6 - gain_ms)
        near = off_ms <= max(GAIN_WITHIN * abs(gain_ms), GAIN_OF_STEP * self.case.truth_ms)
        return abs(self.error) <= STEP_WITHIN[self.case.group] and (self.case.group != "plants" or near)

    @property
    def score(self) -> float:
        """As `--check` enters it."""
        return abs(self.case.truth_ms * 1e6 - self.prediction.predicted_ns) / self.prediction.plain_ns


def outcomes(runs: Mapping[str, Recorded]) -> Iterator[Outcome]:
    """One after another: each knows how those before it turned out."""
    found = engine()
    assert found is not None
    scores: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for case in cases(runs):
        doubt = Doubt(case.drift, "measured", dict(scores))
        prediction = case.run.replays(case.steps).predict(
            found.changes(case.words, NAMES), doubt, case.beside
        )
        outcome = Outcome(case, prediction)
        scores[prediction.kind].append((outcome.score, outcome.is_hit))
        yield outcome


def read_all(directory: Path) -> dict[str, Recorded]:
    """By name, in the order in which they are drawn, seed by seed."""
    kept = {path.parent.name for path in directory.glob("*/truth.json")}
    names = [each.name for seed in sorted({*map(_seed, kept)}, key=int) for each in drawn(int(seed))]
    return {name: Recorded.of(directory / name) for name in names if name in kept}


ROW = "{:38} {:>11} {:>5} {:>10} {:>10} {:>10} {:>7}"


def table(found: Sequence[Outcome]) -> str:
    """A row for each kind of question, and one for each class."""
    rows = [ROW.format("change", "predictions", "hits", "half width", "error", "worst", "within")]
    kinds = dict.fromkeys((each.prediction.kind, each.case.kind) for each in found)
    for kind, name in kinds:
        own = [each for each in found if (each.prediction.kind, each.case.kind) == (kind, name)]
        rows.append(_row(f"{kind}  {name}", own))
    classes = {kind: [each for each in found if each.prediction.kind == kind] for kind, _ in kinds}
    rows += [_row(f"all of {kind}", own) for kind, own in sorted(classes.items())]
    return "\n".join([*rows, _row("all", found)])


def _row(name: str, own: Sequence[Outcome]) -> str:
    errors = [abs(each.error) for each in own]
    shares = median([each.half_width for each in own]), median(errors), max(errors)
    hits, within = sum(each.is_hit for each in own), sum(each.meets for each in own)
    return ROW.format(name, len(own), hits, *(f"{100 * share:.1f} %" for share in shares), within)


def missed(found: Sequence[Outcome]) -> list[str]:
    """The bars that are not met, in words."""
    said = []
    hits = sum(each.is_hit for each in found)
    if len(found) < LEAST:
        said.append(f"{len(found)} predictions of at least {LEAST}")
    if hits < HITS * len(found):
        said.append(f"{hits} of {len(found)} intervals hold the outcome, of {100 * HITS:.0f} %")
    for kind in ("A", "B"):
        own = [each.half_width for each in found if each.prediction.kind == kind]
        if own and median(own) > HALF_WIDTH:
            said.append(f"class {kind}: median half width {100 * median(own):.1f} % of a step")
    said += [f"{each}" for each in found if not each.meets]
    return said
