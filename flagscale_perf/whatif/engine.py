"""The engine: recorded steps of all ranks in, their critical paths and what a change would gain out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from flagscale_perf.analysis.predictions import Change, Doubt, Prediction
from flagscale_perf.analysis.replays import (
    DrawnStep,
    Entry,
    Gain,
    Kind,
    Layout,
    NotKnownError,
    PathTimes,
    RankStep,
    together,
)
from flagscale_perf.whatif import predicted
from flagscale_perf.whatif.blame import paths_of
from flagscale_perf.whatif.changes import changes as changes
from flagscale_perf.whatif.clocks import aligned
from flagscale_perf.whatif.drawn import drawn
from flagscale_perf.whatif.flows import ends_of as ends_of
from flagscale_perf.whatif.flows import made_of as made_of
from flagscale_perf.whatif.flows import predict as predict
from flagscale_perf.whatif.flows import resized as resized
from flagscale_perf.whatif.graph import PASSES, Column, Lane, graph_of
from flagscale_perf.whatif.ledger import doubt as doubt
from flagscale_perf.whatif.peers import places, rows_of, usual
from flagscale_perf.whatif.replay import Arrangement, Replay, Times

_NO_DOUBT = Doubt()
_NO_SHARES: Mapping[str, Mapping[int, float]] = {}
_Steps = dict[int, dict[int, RankStep]]  # by iteration and rank


class Replays:
    """Steps that can be replayed.

    Attributes:
        replays: of each arrangement of them.
    """

    def __init__(self, layout: Layout, replays: Sequence[Replay]) -> None:
        self._layout, self.replays = layout, replays

    def paths(self) -> list[PathTimes]:
        """The critical path of each step, by iteration."""
        found = dict(path for replay in self.replays for path in paths_of(self._layout, replay))
        return [path for _, path in sorted(found.items())]

    def slopes(self) -> Mapping[Entry, float]:
        """What a nanosecond more of a rank in a phase costs a mean step."""
        return together(self.paths()).slopes

    def gains(self, ranks: Collection[int], phase: int) -> list[Gain]:
        """For each step what it gains, by iteration; none where a rank has no other to be compared with."""
        return self._counting(gain for replay in self.replays for gain in _gains(replay, {*ranks}, phase))

    def levelled(self, ranks: Collection[int], like: Collection[int]) -> list[Gain]:
        """The same if each pass of these ranks takes as long as the mean of the same pass of those `like`
        which they are to be; none where some have other passes.
        """
        return self._counting(
            gain for replay in self.replays for gain in _levelled(replay, {*ranks}, {*like})
        )

    def _counting(self, gains: Iterable[Gain]) -> list[Gain]:
        return sorted(gain for gain in gains if gain.iteration >= self._layout.since)

    def drawn(self, changes: Sequence[Change]) -> list[DrawnStep]:
        """Every rank in the step of the median time, before and after the changes."""
        return [*drawn(self._layout, self.replays, changes)]

    def predict(
        self,
        changes: Sequence[Change],
        doubt: Doubt = _NO_DOUBT,
        beside: Sequence[Replays] = (),
        operators: Mapping[str, Mapping[int, float]] = _NO_SHARES,
    ) -> Prediction:
        """The usual step after all these changes. Raises MissingRecordError where a record for that is
        missing, PerfError for what is impossible. `beside`: runs of other layouts; `operators`: see `Layout`.
        """
        others = [(one._layout, one.replays[0]) for one in beside]
        layout = self._layout._replace(operators=operators)
        return predicted.predict((layout, self.replays, others), changes, doubt)


def replays_of(layout: Layout, steps: Iterable[RankStep]) -> Replays:
    """The steps of which every rank is there. Raises NotKnownError where there is none, and where it is not
    known what waited for what.
    """
    ranks = _ranks_of(layout)
    whole: _Steps = defaultdict(dict)
    for one in steps:
        whole[one.iteration][one.rank] = one
    alike: dict[tuple[int, ...], _Steps] = defaultdict(dict)
    for iteration, own in sorted(whole.items()):
        if own.keys() >= layout.stages.keys():
            alike[tuple(id(own[rank].parts) for of_stage in ranks for rank in of_stage)][iteration] = own
    whole.clear()
    found, why = [], "no step has the marks of every rank"
    for own_steps in alike.values():
        try:
            arrangement, doubt_ns = aligned(layout, _arranged(layout, ranks, own_steps))
        except NotKnownError as error:
            why = str(error)
            continue
        replay = Replay(layout, arrangement, doubt_ns)
        if replay.is_sound.any():
            found.append(replay)
        else:
            why = "parts end before what they wait for"
    if not any((one.is_sound & one.arrangement.since(layout.since)).any() for one in found):
        raise NotKnownError(why)
    return Replays(layout, found)


def _ranks_of(layout: Layout) -> list[list[int]]:
    """By stage. A rank exchanges messages with those in its place of the stages beside."""
    of_stage: dict[int, list[int]] = defaultdict(list)
    for rank, stage in sorted(layout.stages.items()):
        of_stage[stage].append(rank)
    ranks = [of_stage[stage] for stage in sorted(of_stage)]
    if len({*map(len, ranks)}) != 1 or sorted(of_stage) != [*range(len(ranks))]:
        raise NotKnownError("stages have different numbers of ranks")
    return ranks


def _arranged(layout: Layout, ranks: Sequence[Sequence[int]], steps: _Steps) -> Arrangement:
    """Steps in all of which each rank does the same parts."""
    first = next(iter(steps.values()))
    columns: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for replica, of_replica in enumerate(zip(*ranks, strict=True)):
        columns[tuple(id(first[rank].parts) for rank in of_replica)].append(replica)
    members = [*columns.values()]
    parts: list[Column] = [tuple(first[own[replicas[0]]].parts for own in ranks) for replicas in members]
    lanes = [Lane(column, stage) for column in range(len(members)) for stage in range(len(ranks))]
    durs_ns, begin_ns = {}, {}
    for lane in lanes:
        own = [ranks[lane.stage][replica] for replica in members[lane.column]]
        shape = len(own), len(steps)
        durs_ns[lane] = np.empty((len(parts[lane.column][lane.stage]), *shape), np.int64)
        begin_ns[lane] = np.empty(shape, np.int64)
        for place, rank in enumerate(own):
            for number, step in enumerate(steps.values()):
                one = step.pop(rank)  # frees its memory: there may be a lot of them
                durs_ns[lane][:, place, number] = one.durs_ns
                begin_ns[lane][place, number] = one.begin_ns
    return Arrangement(graph_of(layout, parts), members, ranks, [*steps], durs_ns, begin_ns)


def _gains(replay: Replay, ranks: set[int], phase: int) -> list[Gain]:
    found, changes_ns = replay.arrangement, dict[_Rows, Times]()
    for lane, place, rank in places(found):
        rows = rows_of(found, lane, phase)
        if rank in ranks and rows:
            usual_ns = usual(found, lane, ranks, phase)
            if usual_ns is None:
                return []
            changes_ns[lane, place, rows] = usual_ns - found.durs_ns[lane][rows, place]
    return _changed(replay, changes_ns)


def _levelled(replay: Replay, ranks: set[int], like: set[int]) -> list[Gain]:
    found, changes_ns = replay.arrangement, dict[_Rows, Times]()
    for kind in PASSES:
        own = {rank: (lane, place, *_passes(found, lane, kind)) for lane, place, rank in places(found)}
        sums_ns = {
            rank: np.add.reduceat(found.durs_ns[lane][rows, place], starts)
            for rank, (lane, place, rows, starts) in own.items()
        }
        if len({one.shape for one in sums_ns.values()}) > 1:
            return []
        wanted_ns = np.mean([sums_ns[rank] for rank in sorted(like)], axis=0)
        for rank in ranks:
            lane, place, rows, starts = own[rank]
            factors = wanted_ns / np.maximum(sums_ns[rank], 1) - 1
            spread = np.repeat(factors, np.diff([*starts, len(rows)]), axis=0)
            changes_ns[lane, place, rows] = (found.durs_ns[lane][rows, place] * spread).astype(np.int64)
    return _changed(replay, changes_ns)


def _passes(found: Arrangement, lane: Lane, kind: Kind) -> tuple[tuple[int, ...], list[int]]:
    """The parts of all passes of that kind, and which of them begin one: data that is loaded within a pass
    divides it, and is no part of it.
    """
    parts = found.graph.parts[lane]
    phase = next(part.phase for part in parts if part.kind is kind)
    rows = rows_of(found, lane, phase)
    ends = [number for number, at in enumerate(rows) if parts[at].kind is kind]
    return rows[: ends[-1] + 1], [0, *(end + 1 for end in ends[:-1])]


_Rows = tuple[Lane, int, tuple[int, ...]]  # of a replica's rank the parts that change


def _changed(replay: Replay, changes_ns: Mapping[_Rows, Times]) -> list[Gain]:
    """What each step gains if these parts take so much longer, or less where it is below 0."""
    changed, found = dict(replay.lags_ns), replay.arrangement
    longer_ns = np.zeros(len(found.iterations), np.int64)
    for (lane, place, rows), change_ns in changes_ns.items():
        if changed[lane] is replay.lags_ns[lane]:
            changed[lane] = changed[lane].copy()
        changed[lane][rows, place] += change_ns
        longer_ns = np.maximum(longer_ns, -change_ns.sum(axis=0))
    gain_ns = replay.end_ns - replay.end(changed)
    every = zip(found.iterations, gain_ns.tolist(), longer_ns.tolist(), replay.is_sound.tolist(), strict=True)
    return [Gain(*gain) for *gain, is_sound in every if is_sound]
