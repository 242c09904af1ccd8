"""Which steps of a block count where the host asks about checkpoints all the time."""

from flagscale_perf.training.ranks.blocks import BlockBuilder
from tests.fakes import MS, make_step


def test_asking_for_a_checkpoint_in_every_iteration_interrupts_nothing() -> None:
    builder = BlockBuilder(0)
    for iteration in (1, 2, 3):
        builder.add(make_step(iteration, checkpoint_ns=MS), None)  # one hundredth of its 100 ms
    block = builder.add(make_step(4, checkpoint_ns=MS + 1), None)
    assert block is not None
    assert (block.iteration, block.steps) == (4, 3)
