"""Which part of a step follows which, by hand."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.replays import Kind, Layout, NotKnownError, Part
from flagscale_perf.whatif.graph import Edge, Graph, Lane, Node, graph_of
from flagscale_perf.whatif.schedules import Exchange, Pass, Shape, operations_of
from tests.timed_pipelines import AGREE, PIPE, Pipeline


def graph(pipeline: Pipeline, replicas: int = 1) -> Graph:
    steps, _ = pipeline.run()
    own = [step.parts for step in steps[:: pipeline.replicas]]
    return graph_of(pipeline.layout, [tuple(own)] * replicas)


def even(shape: Shape, overlaps: bool = False) -> Pipeline:
    def pass_ns(stage: int, replica: int, one: Pass) -> int:
        return 1000

    return Pipeline(shape, 1, pass_ns, overlaps=overlaps)


def test_one_micro_batch_through_two_stages() -> None:
    """Each side of a message comes to it with the part before."""
    found = graph(even(Shape(2, 1)))
    first, second = Lane(0, 0), Lane(0, 1)
    kinds = [part.name or part.kind.value for part in found.parts[first]]
    assert kinds == [
        "work", "before", "forward", "forward-send", "backward-recv", "before", "backward", "sync", "agree",
        "work",
    ]  # fmt: skip
    assert [part.name or part.kind.value for part in found.parts[second]][:4] == [
        "work", "forward-recv", "before", "forward",
    ]  # fmt: skip
    assert found.edges == {
        Node(second, 1): [Edge(Node(first, 2), is_room=False)],
        Node(first, 3): [Edge(Node(second, 0), is_room=True)],
        Node(first, 4): [Edge(Node(second, 5), is_room=False)],
        Node(second, 6): [Edge(Node(first, 3), is_room=True)],
    }


def test_a_message_that_nobody_waits_for_has_come_when_its_pass_begins() -> None:
    found = graph(even(Shape(2, 4, 2, 2), overlaps=True))
    kinds = {found.parts[node.lane][node.at].kind for node in found.edges}
    assert kinds == {Kind.MESSAGE, Kind.BEFORE}


def test_a_stage_reduces_gradients_and_all_agree() -> None:
    found = graph(even(Shape(2, 2)), replicas=2)
    met = [(one.name, {lane.stage for lane in one.places}, len(one.places)) for one in found.meetings]
    assert sorted(met, key=str) == [
        ("agree", {0, 1}, 4), ("sync", {0}, 2), ("sync", {1}, 2),
    ]  # fmt: skip


def test_the_order_has_every_wait_behind_what_it_is_for() -> None:
    found = graph(even(Shape(4, 8, 2, 4)))
    place = {each: number for number, each in enumerate(found.order)}
    nodes = [each for each in place if isinstance(each, Node)]
    for node, edges in found.edges.items():
        for edge in edges:
            head = max(at for lane, at in nodes if lane == edge.after.lane and at <= edge.after.at)
            assert place[Node(edge.after.lane, head)] < place[node]


@pytest.mark.parametrize("extra", [Part(Kind.MESSAGE, PIPE, "forward-send"), Part(Kind.FORWARD, PIPE)])
def test_another_order_than_the_schedule_s_is_not_guessed(extra: Part) -> None:
    pipeline = even(Shape(2, 2))
    first, second = (step.parts for step in pipeline.run()[0])
    for column in ((first, (*second, extra)), ((*first, extra), second), (first, second[:3])):
        with pytest.raises(NotKnownError, match="schedule"):
            graph_of(pipeline.layout, [column])


def test_a_schedule_that_cannot_be_is_not_guessed() -> None:
    """One micro-batch, where interleaved stages take as many as they are in turns."""
    shape = Shape(2, 1, chunks=2)
    kinds = {True: Kind.FORWARD, False: Kind.BACKWARD}
    columns = []
    for stage in range(2):
        parts = [Part(Kind.WORK, 0)]
        for each in operations_of(shape, stage):
            is_exchange = isinstance(each, Exchange)
            parts.append(
                Part(Kind.MESSAGE, PIPE, each.name) if is_exchange else Part(kinds[each.is_forward], 0)
            )
        columns.append(tuple(parts))
    layout = Layout({0: 0, 1: 1}, {0: "", 1: ""}, "interleaved", chunks=2, group=2)
    with pytest.raises(NotKnownError, match="a stage sends what no other receives"):
        graph_of(layout, [tuple(columns)])


def test_ranks_that_wait_for_one_another_are_no_step() -> None:
    """All agree: one at the step's end, the other before it has got anything from the first."""
    pipeline = even(Shape(2, 1))
    first, second = (step.parts for step in pipeline.run()[0])
    agreement = Part(Kind.MEETING, AGREE, "agree")
    with pytest.raises(NotKnownError, match="wait for one another"):
        graph_of(pipeline.layout, [(first, (second[0], agreement, *second[1:]))])
