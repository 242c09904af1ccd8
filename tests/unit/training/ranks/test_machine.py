"""Cuts of a machine's ranks wait for the last of them, but not for one that has ended or is far behind."""

from __future__ import annotations

from flagscale_perf.training.ranks.blocks import BLOCK_STEPS, Block, BlockBuilder
from flagscale_perf.training.ranks.machine import WAITED_BLOCKS, Machine
from tests.fakes import make_identity, make_step
from tests.schedules import steps_of


def machine_of(ranks: int, blocks: int) -> tuple[Machine, list[list[Block]]]:
    """With the cuts of all of their steps; the blocks of each rank."""
    machine, made = Machine(ranks), list[list[Block]]()
    numbers = range(BLOCK_STEPS * blocks)
    for rank, steps in enumerate(steps_of(ranks, numbers, lambda *_: 0)):
        machine.join(make_identity(rank))
        for step in steps:
            machine.step(rank, step)
        builder = BlockBuilder(rank)
        found = [builder.add(make_step(number), None) for number in numbers]
        made.append([block for block in found if block is not None])
    return machine, made


def steps_with(block: Block) -> list[int]:
    """Whose cuts the block has."""
    return [iteration for cuts in block.cuts for iteration in cuts.iterations]


def test_the_last_rank_s_block_has_the_cuts_of_all() -> None:
    machine, (first, second) = machine_of(2, 1)
    assert steps_with(machine.block(first[0])) == []
    block = machine.block(second[0])
    assert (steps_with(block), [*block.cuts[0].units]) == ([0, 1, 2, 3, 4], [2] * 5)


def test_a_rank_that_has_ended_is_not_waited_for() -> None:
    machine, (first, _) = machine_of(2, 1)
    machine.leave(1)
    assert steps_with(machine.block(first[0])) == [0, 1, 2, 3, 4]


def test_what_only_a_rank_was_waited_for_that_has_ended_goes_with_the_last_block_once_more() -> None:
    machine, (first, second) = machine_of(2, 2)
    machine.block(first[0])
    sent = machine.block(second[0])
    assert steps_with(sent) == [0, 1, 2, 3, 4]
    waiting = machine.block(first[1]._replace(xid=79))
    assert steps_with(waiting) == []
    (again,) = machine.leave(1)
    assert (again._replace(cuts=()), steps_with(again)) == (waiting._replace(xid=None), [5, 6, 7, 8, 9])
    assert machine.leave(0) == []


def test_a_rank_far_behind_is_not_waited_for() -> None:
    machine, (first, second) = machine_of(2, WAITED_BLOCKS + 1)
    *waiting, last = [steps_with(machine.block(block)) for block in first]
    assert waiting == [[]] * WAITED_BLOCKS and last == [0, 1, 2, 3, 4]
    assert [steps_with(machine.block(block)) for block in second[:3]] == [
        [],
        [5, 6, 7, 8, 9],
        [10, 11, 12, 13, 14],
    ]


def test_rings_that_are_read_one_after_the_other_leave_no_step_without_a_rank() -> None:
    machine, numbers = Machine(3), range(BLOCK_STEPS * 10)
    found = []
    for rank, steps in enumerate(steps_of(3, numbers, lambda *_: 0)):
        machine.join(make_identity(rank))
        machine.join(make_identity(2))
        builder = BlockBuilder(rank)
        for step in steps:
            machine.step(rank, step)
            if (block := builder.add(make_step(step.iteration), None)) is not None:
                found += machine.block(block).cuts
    units = {iteration: cuts.units[at] for cuts in found for at, iteration in enumerate(cuts.iterations)}
    assert units == dict.fromkeys(numbers, 3)
