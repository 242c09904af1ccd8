"""The engine beside ByteDance's published analysis of three trainings on 8, 64 and 128 GPUs.

Of a checkout of github.com/ByteDance-Seed/StragglerAnalysis (Apache-2.0; nothing of it is kept here). Held
against its results: the step as recorded, the same without the gaps between operations, the ideal step by its
definition (each computation at the mean of its kind, each exchange at the median), and which stage, replica
and kind of operation make the step slower than that. Its code is timed, too, where an interpreter has what it
requires: both by the processor, from reading a trace to the last of these.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq

from flagscale_perf.analysis.replays import Kind, Layout, Part, RankStep
from flagscale_perf.whatif.engine import replays_of
from flagscale_perf.whatif.graph import Lane
from flagscale_perf.whatif.replay import Replay, Times

NAMES = {"ST": "a long last stage", "AR": "one slow worker", "SE": "uneven sequences"}
NS = 1e9
WORK = {
    "forward-compute": Kind.FORWARD,
    "backward-compute": Kind.BACKWARD,
    "optimizer": Kind.WORK,
    "gc": Kind.WORK,
}
ALONE = "layernorm-grads-all-reduce"  # an exchange, but of a worker's own GPUs
AGREEMENT, EMBEDDINGS = "optimizer-clip-main-grad", "embedding-grads-all-reduce"
WAYS = ("forward-send", "backward-send", "forward-recv", "backward-recv")  # as a name of an exchange has them
TOGETHER = {"forward-send-backward-recv", "backward-send-forward-recv"}
GAP = 0  # the phase of the time between operations
BASE_WITHIN, IDEAL_WITHIN, TIMES_AS_FAST = 0.001, 0.005, 5
THEIRS = """
import sys, time, yaml, logging
sys.path[:0] = sys.argv[1], f"{sys.argv[1]}/analyzer"
from analyzer.metatypes import JobMeta
from analyzer.wia import WhatIfAnalyzer
logging.disable()
begin_s = time.process_time()
meta = JobMeta(**yaml.safe_load(open(f"{sys.argv[1]}/data/meta-{sys.argv[2]}.yaml")))
WhatIfAnalyzer(f"{sys.argv[1]}/data/trace-{sys.argv[2]}.parquet", root=None, steps=None).analyze(meta)
print(time.process_time() - begin_s)
"""
Numbers = npt.NDArray[np.int64]
Lags = list[dict[Lane, Times]]  # of each arrangement of steps


class Trace(NamedTuple):
    """What is recorded.

    Attributes:
        phases: names of operations, by the number of their parts; that of GAP is "".
        begins_ns: of each step, on the clock that all workers share.
    """

    layout: Layout
    steps: list[RankStep]
    phases: list[str]
    begins_ns: dict[int, int]


def read(path: Path) -> Trace:
    """A file of theirs."""
    table = pq.read_table(path)
    name = pc.dictionary_encode(pc.cast(table["optype"], "string")).combine_chunks()
    phases = ["", *name.dictionary.to_pylist()]
    step, rank, stage = (table[each].to_numpy().astype(np.int64) for each in ("step", "rank", "stage"))
    begin_s, took_s = table["start_ts"].to_numpy(), table["duration"].to_numpy()
    begin_ns, end_ns = (np.rint(each * NS).astype(np.int64) for each in (begin_s, begin_s + took_s))
    order = np.lexsort((end_ns, begin_ns, rank, step))
    step, rank, begin_ns, end_ns = (each[order] for each in (step, rank, begin_ns, end_ns))
    codes = name.indices.to_numpy()[order] + 1
    cuts = np.flatnonzero((np.diff(step) != 0) | (np.diff(rank) != 0)) + 1
    bounds = [0, *cuts.tolist(), len(step)]
    begins_ns = {int(each): int(begin_ns[step == each].min()) for each in np.unique(step)}
    made: dict[bytes, tuple[tuple[Part, ...], Numbers, Numbers]] = {}
    known: dict[tuple[Part, ...], tuple[Part, ...]] = {}
    steps = []
    for first, last in zip(bounds, bounds[1:], strict=False):
        own, at = codes[first:last], int(step[first])
        if own.tobytes() not in made:
            made[own.tobytes()] = _parts(own.tolist(), phases)
        parts, starts, ends = made[own.tobytes()]
        until_ns = np.maximum.accumulate(end_ns[first:last])[ends]
        from_ns = np.maximum(begin_ns[first:last][starts], [begins_ns[at], *until_ns[:-1]])
        edges = np.column_stack([from_ns, until_ns]).ravel()
        durs_ns = np.diff(edges, prepend=begins_ns[at]).tolist()
        steps.append(RankStep(int(rank[first]), at, known.setdefault(parts, parts), durs_ns, begins_ns[at]))
    stages = dict(zip(rank.tolist(), stage[order].tolist(), strict=True))
    strict = frozenset({"grads-reduce-scatter", "params-all-gather"})
    clocks = dict.fromkeys(stages, "one clock")
    layout = Layout(stages, clocks, "1f1b", agreement=AGREEMENT, embeddings=EMBEDDINGS, strict=strict)
    return Trace(layout, steps, phases, begins_ns)


def _parts(codes: Sequence[int], phases: list[str]) -> tuple[tuple[Part, ...], Numbers, Numbers]:
    """The parts of a worker's operations, and which operations begin and end each that is no gap: what is
    sent and received in one exchange is two operations of theirs.
    """
    parts, starts, ends = [], [], []
    for name, first, last in _exchanges([phases[code] for code in codes]):
        if name not in phases:
            phases.append(name)
        kind = WORK.get(name, Kind.MESSAGE if name.startswith(WAYS) else Kind.MEETING)
        begins = Kind.BEFORE if kind in (Kind.FORWARD, Kind.BACKWARD) else Kind.WORK
        kind = Kind.WORK if name == ALONE else kind
        parts += [Part(begins, GAP), Part(kind, phases.index(name), name)]
        starts.append(first)
        ends.append(last)
    return tuple(parts), np.array(starts), np.array(ends)


def _exchanges(names: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Each with its first and its last operation; no garbage collection, which takes no time."""
    at = 0
    while at < len(names):
        pair = sorted(names[at : at + 2], key=lambda name: WAYS.index(name) if name in WAYS else len(WAYS))
        together = "-".join(pair) in TOGETHER
        if names[at] != "gc":
            yield ("-".join(pair) if together else names[at]), at, at + together
        at += 1 + together


class Analysis:
    """Their quantities, by our engine.

    Attributes:
        recorded, no_gaps, ideal: what each part takes.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._replays: Sequence[Replay] = replays_of(trace.layout, trace.steps).replays
        self.recorded: Lags = [dict(replay.lags_ns) for replay in self._replays]
        self.no_gaps = self._without_gaps()
        self.ideal = self._ideal()
        self._ideal_s = mean(self.steps_s(self.ideal))

    def steps_s(self, lags: Lags) -> dict[int, float]:
        """How long each step takes with these."""
        found = {}
        for replay, lags_ns in zip(self._replays, lags, strict=True):
            ends_ns = np.max([own[-1].max(axis=0) for own in replay.ends(lags_ns).values()], axis=0)
            for step, end_ns in zip(replay.arrangement.iterations, ends_ns.tolist(), strict=True):
                found[step] = (end_ns - self._trace.begins_ns[step]) / NS
        return found

    def _rows(self, replay: Replay, lane: Lane) -> list[int]:
        """The phase of each part."""
        return [part.phase for part in replay.arrangement.graph.parts[lane]]

    def _without_gaps(self) -> Lags:
        return [
            {
                lane: np.where(np.equal(self._rows(replay, lane), GAP)[:, None, None], 0, own)
                for lane, own in replay.lags_ns.items()
            }
            for replay in self._replays
        ]

    def _ideal(self) -> Lags:
        values: dict[int, list[Times]] = defaultdict(list)
        for replay, lags in zip(self._replays, self.no_gaps, strict=True):
            for lane, own in lags.items():
                rows = np.array(self._rows(replay, lane))
                for phase in np.unique(rows).tolist():
                    values[phase].append(own[rows == phase].ravel())
        each_ns = np.zeros(len(self._trace.phases), np.int64)
        for phase, found in values.items():
            usual = np.mean if self._trace.phases[phase] in WORK else np.median
            each_ns[phase] = round(float(usual(np.concatenate(found))))
        return [
            {
                lane: np.zeros_like(own) + each_ns[self._rows(replay, lane)][:, None, None]
                for lane, own in lags.items()
            }
            for replay, lags in zip(self._replays, self.no_gaps, strict=True)
        ]

    def slowdowns(self) -> dict[str, dict[str, float]]:
        """By what factor the ideal step is slower if the workers of one stage, or of one replica, or all in
        one kind of operation, work as they did.
        """
        stages = sorted({*self._trace.layout.stages.values()})
        count = sum(map(len, self._replays[0].arrangement.members))
        return {
            "stage": {str(each): self._slowdown(stage=each) for each in stages},
            "dp_rank": {str(each): self._slowdown(replica=each) for each in range(count)},
            "optype": {
                name: self._slowdown(phase=phase)
                for phase, name in enumerate(self._trace.phases)
                if phase != GAP
            },
        }

    def _slowdown(
        self, stage: int | None = None, replica: int | None = None, phase: int | None = None
    ) -> float:
        mixed = []
        for replay, ideal, real in zip(self._replays, self.ideal, self.no_gaps, strict=True):
            lags = dict(ideal)
            for lane in ideal if stage is None else [lane for lane in ideal if lane.stage == stage]:
                if phase is not None:
                    rows = np.equal(self._rows(replay, lane), phase)
                    lags[lane] = np.where(rows[:, None, None], real[lane], ideal[lane])
                else:
                    members = replay.arrangement.members[lane.column]
                    meant = [replica is None or each == replica for each in members]
                    lags[lane] = np.where(np.array(meant)[:, None], real[lane], ideal[lane])
            mixed.append(lags)
        return mean(self.steps_s(mixed)) / self._ideal_s


def mean(values: Mapping[int, float]) -> float:
    """Of a step."""
    return sum(values.values()) / len(values)


def analysed(folder: Path, name: str) -> tuple[str, float, bool]:
    """What is said of a trace, how many seconds of a processor that took, and whether it is as theirs."""
    begin_s = time.process_time()
    trace = read(folder / "data" / f"trace-{name}.parquet")
    found = Analysis(trace)
    every = {"base": found.recorded, "nodelay": found.no_gaps, "noblk": found.ideal}
    steps = {key: found.steps_s(lags) for key, lags in every.items()}
    slowdowns = found.slowdowns()
    took_s = time.process_time() - begin_s
    theirs = json.loads((folder / "data" / f"result-{name}.json").read_text())
    errors = {}
    for key, own in steps.items():
        their_s = theirs[f"step_t_{key}"]
        assert {*map(str, own)} == their_s.keys(), "not the same steps"
        errors[key] = max(abs(step_s / their_s[str(step)] - 1) for step, step_s in own.items())
    said = ", ".join(f"{100 * error:.3f} %" for error in errors.values())
    is_same = errors["base"] <= BASE_WITHIN and errors["noblk"] <= IDEAL_WITHIN
    text = [f"{name}: {NAMES[name]}, {len(trace.layout.stages)} workers, {len(steps['base'])} steps: {said}"]
    for key, ours in slowdowns.items():
        their = theirs[f"blocking_decompose_by_{key}"]
        most, their_most = max(ours, key=ours.__getitem__), max(their, key=their.__getitem__)
        is_same &= most == their_most
        text.append(f"  slowest {key:7} {most} {ours[most]:.3f}, theirs {their_most} {their[their_most]:.3f}")
    return "\n".join(text), took_s, is_same


def compared(folder: Path, python: str | None) -> bool:
    """Prints what is said of each trace; whether every bar is met."""
    pq.read_table(next(folder.glob("data/*.parquet")))  # imports the rest of pyarrow
    print("published traces: largest error of a step as recorded, without gaps, ideal")
    is_met = True
    for name in NAMES:
        text, took_s, is_same = analysed(folder, name)
        said = f"  {took_s:.2f} s of a processor"
        if python:
            words = [python, "-c", THEIRS, str(folder), name]
            their_s = float(subprocess.check_output(words, text=True).split()[-1])
            is_same &= their_s >= TIMES_AS_FAST * took_s
            said += f", theirs {their_s:.2f} s: {their_s / took_s:.1f} times as fast"
        is_met &= is_same
        print(text, said, "  as theirs" if is_same else "  missed a bar", sep="\n", flush=True)
    return is_met
