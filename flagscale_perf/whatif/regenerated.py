"""Recorded durations in another graph: more micro-batches, other stages, chunks, or replicas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from flagscale_perf.analysis.replays import Kind, Layout, MissingRecordError, Part
from flagscale_perf.whatif.durations import Lags
from flagscale_perf.whatif.graph import PASSES, Lane, Parts, graph_of, shape_of
from flagscale_perf.whatif.layer_times import LayerTimes, Split, by_kind
from flagscale_perf.whatif.replay import Arrangement, Group, Replay, Simulation, Times, groups_of
from flagscale_perf.whatif.schedules import Exchange, Pass, operations_of
from flagscale_perf.whatif.targets import Target, recorded_target

Run = tuple[Layout, Replay]
_Key = tuple[str, int]  # of an exchange: its name, and for how many messages it waits


class Piece(NamedTuple):
    """Parts that follow one another.

    Attributes:
        lags_ns: by part, replica and step.
    """

    parts: Parts
    lags_ns: Times


class Recorded(NamedTuple):
    """What a stage did, in pieces.

    Attributes:
        head: what comes before its first pass or message.
        passes: each with what comes before it.
        exchanges: the same of messages, in their order.
        tail: what comes behind the last of these.
    """

    head: Piece
    passes: Mapping[Pass, Piece]
    exchanges: Mapping[_Key, Sequence[Piece]]
    tail: Piece


def _recorded(layout: Layout, target: Target, stage: int, whole: Piece) -> Recorded:
    """The stage of a replica in pieces."""
    parts = whole.parts
    told = [at for at, part in enumerate(parts) if part.kind in (*PASSES, Kind.MESSAGE)]
    planned = operations_of(target.shape, stage, layout.overlaps)
    first = told[0]
    if parts[first].kind is not Kind.MESSAGE:
        first = next((at for at in range(first, 0, -1) if parts[at].kind is Kind.BEFORE), first)
    passes, exchanges = {}, defaultdict(list)
    for begin, end, each in zip([first, *(at + 1 for at in told)], told, planned, strict=False):
        piece = _cut(whole, begin, end + 1)
        if isinstance(each, Pass):
            passes[each] = piece
        else:
            exchanges[_key(each)].append(piece)
    return Recorded(_cut(whole, 0, first), passes, exchanges, _cut(whole, told[-1] + 1, len(parts)))


def _cut(whole: Piece, begin: int, end: int) -> Piece:
    return Piece(whole.parts[begin:end], whole.lags_ns[begin:end])


def _key(each: Exchange) -> _Key:
    return each.name, (len(each.sends) + len(each.receives)) * each.waits


class Regenerated:
    """Recorded steps, to be put into other graphs.

    Attributes:
        was: the pipeline that was recorded.
        notes: what was assumed so far.
    """

    def __init__(self, run: Run, lags: Lags, others: Sequence[Run] = ()) -> None:
        """`lags`: the recorded ones, or those after changes of durations; `others`: runs of other layouts."""
        self._layout, self._replay = layout, replay = run
        self._others = [Regenerated(other, other[1].lags_ns) for other in others]
        # what things take is told by what was recorded
        self._recorded = self if lags is replay.lags_ns else Regenerated(run, replay.lags_ns)
        self._text = ""
        found = replay.arrangement
        lane = next(iter(found.graph.parts))
        column = [found.graph.parts[Lane(lane.column, stage)] for stage in range(len(found.ranks))]
        self.was = recorded_target(layout, shape_of(layout, tuple(column)), len(found.ranks[0]))
        self.notes: list[str] = []
        self._stages = {
            lane: _recorded(layout, self.was, lane.stage, Piece(parts, lags[lane]))
            for lane, parts in found.graph.parts.items()
        }
        self._columns = sorted({lane.column for lane in self._stages})

    def put(self, target: Target, text: str) -> tuple[Simulation, Lags]:
        """That pipeline and the lags in it. Raises MissingRecordError; `text`: of the changes."""
        found, layout = self._replay.arrangement, target.layout(self._layout)
        self._text = text
        times = self._layer_times(target)
        members, begin_ns, lags, columns = [], {}, {}, list[list[Parts]]()
        for column in self._columns:
            own = [*self._places(column, target.replicas)]
            members.append([replica for replica, *_ in own])
            columns.append([])
            for stage in range(target.shape.stages):
                lane, source = Lane(column, stage), Lane(column, self._source_stage(target, stage))
                whole = _joined([*self._pieces(lane, target, times)])
                columns[-1].append(whole.parts)
                table = [np.roll(whole.lags_ns[:, at], by, axis=-1) for _, at, by in own]
                lags[lane] = np.stack(table, axis=1)
                begin_ns[lane] = np.array([found.begin_ns[source][at] for _, at, _ in own])
        graph = graph_of(layout, [*map(tuple, columns)])
        ranks = [
            [stage * target.replicas + replica for replica in range(target.replicas)]
            for stage in range(target.shape.stages)
        ]
        made = Simulation(Arrangement(graph, members, ranks, found.iterations, lags, begin_ns))
        made.groups = [*self._groups(layout, made.arrangement)]
        is_room = np.full((1, 1), self._is_rendezvous())
        made.rooms = {
            (node, edge.after): is_room
            for node, edges in graph.edges.items()
            for edge in edges
            if edge.is_room
        }
        return made, lags

    def _places(self, column: int, replicas: int) -> Iterator[tuple[int, int, int]]:
        """Of a column's replicas afterwards their numbers, the place of the one whose times each has, and by
        how many steps these are moved, so that no two have the same.
        """
        members, count = self._replay.arrangement.members[column], self.was.replicas
        for replica in range(replicas):
            if replica % count in members:
                yield replica, members.index(replica % count), replica // count

    def _source_place(self, target: Target, place: int) -> int:
        """The recorded chunk whose times a chunk has: the first, the last, or one between."""
        return _alike(place, target.places, self.was.places)

    def _source_stage(self, target: Target, stage: int) -> int:
        return _alike(stage, target.shape.stages, self.was.shape.stages)

    def _pieces(self, lane: Lane, target: Target, times: Mapping[bool, LayerTimes] | None) -> Iterator[Piece]:
        """Of a stage of these replicas, in the order of its schedule."""
        stages = target.shape.stages
        source = self._stages[Lane(lane.column, self._source_stage(target, lane.stage))]
        is_edge = lane.stage in (0, stages - 1) and stages > 1
        yield self._outside(source.head, target, is_edge)
        planned = operations_of(target.shape, lane.stage, target.overlaps)
        counts: dict[_Key, int] = defaultdict(int)
        for each in planned:
            if isinstance(each, Exchange):
                counts[_key(each)] += 1
        turns: dict[_Key, int] = defaultdict(int)
        for each in planned:
            if isinstance(each, Pass):
                yield self._pass(lane, each, target, times)
            else:
                key = _key(each)
                yield self._exchange(source, key, (turns[key], counts[key]))
                turns[key] += 1
        yield self._outside(source.tail, target, is_edge)

    def _outside(self, piece: Piece, target: Target, is_edge: bool) -> Piece:
        """What comes before or behind passes and messages: only the first and the last stage share
        embeddings, and what replicas exchange takes longer with more of them.
        """
        kept = [
            at
            for at, part in enumerate(piece.parts)
            if is_edge or part.kind is not Kind.MEETING or part.name != self._layout.embeddings
        ]
        lags_ns = piece.lags_ns[kept]
        parts = tuple(piece.parts[at] for at in kept)
        rows = [at for at, part in enumerate(parts) if _is_exchange(part, self._layout)]
        if rows and target.replicas != self.was.replicas:
            lags_ns[rows] = (lags_ns[rows] * self._exchange_factor(target.replicas)).astype(np.int64)
        return Piece(parts, lags_ns)

    def _pass(self, lane: Lane, each: Pass, target: Target, times: Mapping[bool, LayerTimes] | None) -> Piece:
        place = each.chunk * target.shape.stages + lane.stage
        source = self._source_place(target, place)
        chunk, stage = divmod(source, self.was.shape.stages)
        batch = _drawn(each.batch, target.shape.batches, self.was.shape.batches)
        piece = self._stages[Lane(lane.column, stage)].passes[Pass(each.is_forward, chunk, batch)]
        if times is None:
            return piece
        own = times[each.is_forward]
        factor = own.of(target.layers, place) / max(1.0, own.of(self.was.layers, source))
        is_moved = source in (0, self.was.places - 1) and place not in (0, target.places - 1)
        computes = np.array([part.phase == piece.parts[-1].phase for part in piece.parts])
        begins = np.array([part.kind is Kind.BEFORE for part in piece.parts])
        lags_ns = piece.lags_ns.copy()
        lags_ns[computes] = (lags_ns[computes] * factor).astype(np.int64)
        if is_moved:  # only the first and the last stage load data
            lags_ns[~computes & ~begins] = 0
        return Piece(piece.parts, lags_ns)

    def _exchange(self, source: Recorded, key: _Key, turn: tuple[int, int]) -> Piece:
        """Of those of this name the one that comes as early, or where there is none, one that takes what
        messages take on average.
        """
        if own := source.exchanges.get(key):
            return own[_drawn(*turn, len(own))]
        shape = source.head.lags_ns.shape[1:]
        for run in (self, *self._others):
            if every := [each for stage in run._stages.values() for each in stage.exchanges.items()]:
                takes = [own.lags_ns[-1].mean() for (_, waits), pieces in every for own in pieces if waits]
                each_ns = round(np.mean(takes)) if key[1] else 0
                part = Part(Kind.MESSAGE, every[0][1][0].parts[-1].phase, key[0])
                return Piece((part,), np.full((1, *shape), each_ns, np.int64))
        raise MissingRecordError(
            self._text,
            "what a message between stages takes: this run has no pipeline",
            "a run with --pipeline-model-parallel-size 2 --perf-capture-steps 20, given by --with RUN",
        )

    def _telling(self) -> list[Regenerated]:
        """The runs that tell what things take, as they were recorded."""
        return [self._recorded, *self._others]

    def _exchange_factor(self, replicas: int) -> float:
        """How many times as long an exchange among so many ranks of a stage takes: as what goes round a ring
        does, and where runs with several numbers of replicas tell, as a line through what these took.
        """
        every = {_ring(run.was.replicas, run._layout): run._exchange_ns() for run in self._telling()}
        told = {share: ns for share, ns in every.items() if share and ns}
        if not told:
            raise MissingRecordError(
                self._text,
                "what an exchange of gradients between replicas takes: this run has one replica",
                "a run with two replicas and --perf-capture-steps 20, given by --with RUN",
            )
        shares, takes_ns = ([*told], [*told.values()]) if len(told) > 1 else ([0, *told], [0, *told.values()])
        wanted_ns = np.polyval(np.polyfit(shares, takes_ns, 1), _ring(replicas, self._layout))
        return max(0.0, float(wanted_ns)) / max(1.0, self._recorded._exchange_ns())

    def _exchange_ns(self) -> float:
        """What all exchanges between replicas of a stage usually take in a step."""
        rows = [
            piece.lags_ns[[_is_exchange(part, self._layout) for part in piece.parts]].clip(0).sum(axis=0)
            for own in self._stages.values()
            for piece in (own.tail,)
        ]
        return float(np.median(np.concatenate([each.ravel() for each in rows])))

    def _layer_times(self, target: Target) -> dict[bool, LayerTimes] | None:
        """None where no chunk has other layers than before."""
        if target.places == self.was.places and target.layers == self.was.layers:
            return None
        runs = [run for run in self._telling() if run.was.layers]
        splits = {way: [run._split(way) for run in runs] for way in (True, False)}
        times = by_kind(splits, self._text)
        self.notes += {own.note for own in times.values()} - {"", *self.notes}
        return times

    def _split(self, is_forward: bool) -> Split:
        """What a pass of each recorded chunk usually takes."""
        pass_ns = []
        for place in range(self.was.places):
            chunk, stage = divmod(place, self.was.shape.stages)
            sums = [
                piece.lags_ns[[part.phase == piece.parts[-1].phase for part in piece.parts]].sum(axis=0)
                for lane, own in self._stages.items()
                if lane.stage == stage
                for each, piece in own.passes.items()
                if (each.is_forward, each.chunk) == (is_forward, chunk)
            ]
            pass_ns.append(float(np.median(np.concatenate([own.ravel() for own in sums]))))
        return Split(self.was.layers, pass_ns)

    def _groups(self, layout: Layout, made: Arrangement) -> Iterator[list[Group]]:
        """Meetings are left as those of their name were: by all together, or by groups."""
        ways: dict[str, int] = {}
        for one, every in zip(self._replay.arrangement.graph.meetings, self._replay.groups, strict=True):
            if groups := [group for group in every if not group.leaving]:
                left = [sum(int(flags.sum()) for flags in group.holds.values()) for group in groups]
                ways.setdefault(one.name, groups[left.index(max(left))].way)
        for one in made.graph.meetings:
            way = ways.get(one.name)
            every = [group for group in groups_of(layout, one, made) if way is not None and not group.leaving]
            chosen = every[min(way or 0, len(every) - 1) :][:1]
            for group in chosen:
                group.holds.update({lane: np.ones(made.begin_ns[lane].shape, bool) for lane in group.lanes})
            yield chosen

    def _is_rendezvous(self) -> bool:
        """Whether senders wait for their receivers: of those that came first, most did."""
        found, waited = self._replay.arrangement, list[Times]()
        ends = {lane: found.begin_ns[lane] + durs.cumsum(axis=0) for lane, durs in found.durs_ns.items()}
        for (node, after), holds in self._replay.rooms.items():
            came_first = ends[node.lane][node.at - 1] < ends[after.lane][after.at]
            waited.append(np.asarray(holds)[came_first])
        told = np.concatenate(waited) if waited else np.ones(0)
        return not len(told) or bool(told.mean() >= 0.5)


def _is_exchange(part: Part, layout: Layout) -> bool:
    return part.kind is Kind.MEETING and part.phase in layout.exchanges and part.name != layout.embeddings


def _joined(pieces: Sequence[Piece]) -> Piece:
    parts = tuple(part for piece in pieces for part in piece.parts)
    return Piece(parts, np.concatenate([piece.lags_ns for piece in pieces]))


def _ring(ranks: int, layout: Layout) -> float:
    """What a ring of replicas exchanges, in parts of what is exchanged."""
    count = ranks // layout.tensor_parallel
    return (count - 1) / count


def _alike(place: int, count: int, recorded: int) -> int:
    """Of `count` in a row one, among as many as were recorded: the first and the last are what they are, and
    of those between, one as far along; the first one where there are none between.
    """
    if count == recorded:
        return place
    if place in (0, count - 1):
        return 0 if place == 0 else recorded - 1
    return min(recorded - 1, 1 + (place - 1) * (recorded - 2) // (count - 2)) if recorded > 2 else 0


def _drawn(turn: int, count: int, recorded: int) -> int:
    """The same of turns: the first is the first, the last the last, and between each has as many."""
    if recorded < 3 or count < 3 or turn in (0, count - 1):
        return turn * recorded // count if turn < count - 1 or count == 1 else recorded - 1
    return 1 + (turn - 1) * (recorded - 2) // (count - 2)
