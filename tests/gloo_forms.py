"""The ways to start a collective, each run under a profiler of its own: a rank of two, started by
`tests/gloo_ranks.py`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed import all_reduce as bound_at_import

from flagscale_perf.profile.communication import collectives_of, filled, numbered
from flagscale_perf.profile.events import Nesting
from flagscale_perf.profile.flight import flown, groups
from flagscale_perf.profile.kineto import Session

TENSOR = "TENSOR_MODEL_PARALLEL_GROUP"
MANY = 10_000_000


def forms(rank: int, group: dist.ProcessGroup) -> Iterator[tuple[str, Callable[[], object]]]:
    """Name and what runs it; 1024 floats where a form has a size of its own."""
    peer = 1 - rank
    yield "dist.all_reduce", lambda: dist.all_reduce(floats(1024))
    yield "async_op=True", lambda: dist.all_reduce(floats(1024), async_op=True).wait()
    yield "all_gather_into_tensor", lambda: dist.all_gather_into_tensor(floats(2048), floats(1024), group)
    yield "reduce_scatter_tensor", lambda: dist.reduce_scatter_tensor(floats(512), floats(1024), group=group)
    yield "all_gather_object", lambda: dist.all_gather_object([None, None], {"rank": rank})
    yield "bound at import", lambda: bound_at_import(floats(1024), group=group)
    yield "pg.allreduce", lambda: dist.group.WORLD.allreduce(floats(1024)).wait()
    yield "functional", lambda: functional.all_reduce(floats(1024), "sum", group) + 1
    yield "torch.ops._c10d_functional", lambda: reduced_by_operator(group.group_name)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32))
    yield "DDP", lambda: model(floats(64).view(2, 32)).sum().backward()
    yield "batch_isend_irecv", lambda: exchanged(peer)
    yield (
        "send, recv",
        lambda: dist.send(floats(1024), 1, group) if rank == 0 else dist.recv(floats(1024), 0, group),
    )
    yield "barrier", dist.barrier


def floats(count: int) -> torch.Tensor:
    """Of 4 bytes each."""
    return torch.ones(count)


def reduced_by_operator(group: str) -> torch.Tensor:
    """As compiled programs do."""
    operators = torch.ops._c10d_functional
    made: torch.Tensor = operators.wait_tensor(operators.all_reduce(floats(1024), "sum", group))
    return made


def exchanged(peer: int) -> None:
    """As pipelines do."""
    send, receive = (dist.P2POp(op, floats(1024), peer) for op in (dist.isend, dist.irecv))
    for work in dist.batch_isend_irecv([send, receive]):
        work.wait()


def main(directory: Path, rank: int) -> None:
    """Writes what was found of each form."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2)
    group = dist.new_group([0, 1], group_desc=TENSOR)
    found = {}
    for name, run in forms(rank, group):
        run()
        plain, shaped = (_profiled(run, shapes) for shapes in (False, True))
        found[name] = [asdict(each) for each in numbered(filled(plain, shaped))]
    (directory / f"rank{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def _profiled(run: Callable[[], object], shapes: bool) -> list:
    dist.barrier()
    session = Session(shapes=shapes)
    session.start()
    run()
    session.stop()
    events = session.events(MANY)
    return collectives_of(events, Nesting.of(events), flown(), groups())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
