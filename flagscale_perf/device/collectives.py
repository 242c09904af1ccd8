"""What torch's flight recorders hold, and its debug server, where a program has them on.

Torch keeps the last 2000 collectives of a process (`TORCH_FR_BUFFER_SIZE`) at no cost to us. Nothing here
imports torch, or waits for a device.
"""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

_C10D = "torch._C._distributed_c10d"
# Of backends that have no recorder of their own, gloo among them, and of NCCL.
_RECORDERS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
_DONE = "completed"


class Last(NamedTuple):
    """The last collective of a process group on this rank.

    Attributes:
        group: torch's number for it, which is the same on all its ranks, and its description.
        begun: its number in the group, from 1.
        is_over: whether this process has seen its end.
        op: its name, such as "gloo:all_reduce".
        shapes: of its tensors.
    """

    group: str
    begun: int
    is_over: bool
    op: str
    shapes: str


def recorded() -> list[dict[str, Any]]:
    """The entries of the flight recorders, oldest first; empty if there is none. Takes some 50 us an entry,
    and blocks other threads for half of that.
    """
    c10d = sys.modules.get(_C10D)
    recorders = [getattr(c10d, name) for name in _RECORDERS if hasattr(c10d, name)]
    return [entry for each in recorders for entry in json.loads(each(True, False)).get("entries", [])]


def last_ones() -> list[Last]:
    """Of each group; see `recorded` for what it takes."""
    last: dict[str, dict[str, Any]] = {}
    for entry in recorded():
        if not entry.get("is_p2p"):
            number, description = entry["process_group"]
            last[f"{number} ({description})"] = entry
    return [
        Last(
            group,
            entry["collective_seq_id"],
            # gloo's stay "scheduled", and are retired when they are over
            bool(entry.get("retired")) or entry.get("state") == _DONE,
            entry["profiling_name"],
            str(entry["input_sizes"]),
        )
        for group, entry in last.items()
    ]


def debug_server() -> int | None:
    """The port on which torch.distributed.debug answers for this rank; None where it is not on."""
    server = getattr(sys.modules.get("torch.distributed.debug"), "_WORKER_SERVER", None)
    return None if server is None else int(server.port)
