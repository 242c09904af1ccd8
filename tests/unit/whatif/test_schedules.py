"""Passes and messages of a stage in order; tests/processes/test_schedules.py asks Megatron for the same."""

from __future__ import annotations

from collections import Counter

import pytest

from flagscale_perf.whatif.schedules import Exchange, Message, Pass, Shape, operations_of, order_of

SHAPES = [
    Shape(stages, batches, chunks, group)
    for stages in (2, 3, 4, 8)
    for chunks in (1, 2, 3, 4)
    for group in ({1} if chunks == 1 else {stages, stages + 1, 2 * stages})
    for batches in range(1 if chunks == 1 else group, 3 * stages + 1)
    if chunks == 1 or not 0 < batches % group < stages
]


@pytest.mark.parametrize("overlaps", [False, True], ids=["waiting", "overlapping"])
def test_each_message_is_sent_once_to_the_stage_that_needs_it_before_it_is_needed(overlaps: bool) -> None:
    for shape in SHAPES:
        sent: Counter[tuple[Message, int]] = Counter()  # with the stage where it is to arrive
        received: Counter[tuple[Message, int]] = Counter()
        for stage in range(shape.stages):
            has: set[Message] = set()
            for each in operations_of(shape, stage, overlaps):
                if isinstance(each, Exchange):
                    for message in each.sends:
                        to = stage + (1 if message.is_forward else -1)
                        sent[message, to % shape.stages] += 1
                    received.update((message, stage) for message in each.receives)
                    has |= {*each.receives}
                else:
                    assert shape.needed(stage, each) in has | {None}, (shape, stage, each)
        assert sent == received, shape
        assert set(sent.values()) <= {1}


@pytest.mark.parametrize("shape", SHAPES[::7], ids=str)
def test_every_micro_batch_passes_every_chunk_forward_and_then_back(shape: Shape) -> None:
    for stage in range(shape.stages):
        order = order_of(shape, stage)
        every = [Pass(True, chunk, batch) for chunk in range(shape.chunks) for batch in range(shape.batches)]
        assert {*order} == {*every, *(one._replace(is_forward=False) for one in every)}
        assert len(order) == 2 * len(every)
        assert all(order.index(one) < order.index(one._replace(is_forward=False)) for one in every)
        assert [one for one in operations_of(shape, stage) if isinstance(one, Pass)] == order


def test_the_calls_of_a_stage_by_the_names_of_their_timers() -> None:
    def names(shape: Shape, stage: int, overlaps: bool = False) -> str:
        short = {True: "F", False: "B"}
        return " ".join(
            each.name if isinstance(each, Exchange) else f"{short[each.is_forward]}{each.batch}"
            for each in operations_of(shape, stage, overlaps)
        )

    assert names(Shape(2, 2), 0) == ("F0 forward-send F1 forward-send-backward-recv B0 backward-recv B1")
    assert names(Shape(2, 2), 1) == ("forward-recv F0 B0 backward-send-forward-recv F1 B1 backward-send")
    assert names(Shape(4, 2), 0) == "F0 forward-send F1 forward-send backward-recv B0 backward-recv B1"
    assert names(Shape(1, 2), 0) == "F0 B0 F1 B1"
    both = "forward-backward-send-forward-backward-recv"
    forth, back = "forward-send-forward-recv", "backward-send-backward-recv"
    assert names(Shape(2, 2, 2, 2), 1) == (
        f"forward-recv F0 {forth} F1 {both} F0 B0 {both} F1 B1 {both} B0 {back} B1 {back}"
    )
    assert names(Shape(2, 2, 2, 2), 1, overlaps=True) == (
        f"forward-recv F0 {forth} F1 {forth} {back} F0 {forth} B0 {back} F1 {forth} B1 {back}"
        f" B0 {back} B1 {back}"
    )
