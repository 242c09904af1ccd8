"""Names of collectives: which of a profiler's events are collectives, and which operation they are.

One table for the whole instrument. Another library's operators are one more line of `TABLE`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple


class Role(IntEnum):
    """The role of an event of a collective. An operation has a call and, mostly, what executes it."""

    CALL = 0  # an operator that requests the operation
    EXECUTED = 1  # the operation itself, in a library's thread or on the device
    WAIT = 2  # waits for one requested before


class Named(NamedTuple):
    """A collective's name, taken apart.

    Attributes:
        role: call, execution or wait.
        operation: "all_reduce", "send" ...; "" where the name does not say (a wait, or several at once).
    """

    role: Role
    operation: str


# Substring of a name without underscores -> operation; a word that contains another one comes first.
_WORDS = (
    ("allreduce", "all_reduce"),
    ("reducescatter", "reduce_scatter"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("sendrecv", "send_recv"),
    ("send", "send"),
    ("recv", "recv"),
    ("crossdevicereduce", "all_reduce"),
    ("oneshotreduce", "reduce"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
)

# Name of an event -> role. What it does is read from its words; a name without any is not a collective.
TABLE: list[tuple[re.Pattern[str], Role]] = [
    (re.compile(r"_?c10d_functional(_autograd)?::wait_tensor"), Role.WAIT),
    (re.compile(r"c10d::\w+"), Role.CALL),
    (re.compile(r"_?c10d_functional(_autograd)?::(?!_wrap)\w+"), Role.CALL),
    (
        re.compile(
            r"symm_mem::(one_shot|two_shot|multimem|all_to_all|nvshmem_all|nvshmem_broad|reduce_s)\w*"
        ),
        Role.CALL,
    ),
    (re.compile(r"vllm::(all_reduce|all_gather|reduce_scatter)"), Role.CALL),
    (
        re.compile(
            r"_C\w*::(shm_(allreduce|all_gather|gather|send_tensor_list|recv_tensor_list)|all_reduce\w*"
            r"|qr_all_reduce)"
        ),
        Role.CALL,
    ),
    (re.compile(r"(gloo|nccl|mpi|ucc|xccl|hccl|flagcx):\w.*"), Role.EXECUTED),
    (re.compile(r"(void )?nccl(Dev)?Kernel_\w.*"), Role.EXECUTED),
    (re.compile(r".*\bcross_device_reduce_\w+.*"), Role.EXECUTED),
    (re.compile(r".*\b(one_shot|two_shot|multimem)_all_reduce_\w*kernel.*"), Role.EXECUTED),
    (re.compile(r".*\b(allreduce_prototype|all_?reduce_fusion_kernel)\w*.*"), Role.EXECUTED),
]

# Names that match and are not collectives.
_OTHERS = frozenset({"c10d::check_for_nan", "_c10d_functional::batch_p2p_ops"})

POINT_TO_POINT = frozenset({"send", "recv", "send_recv"})
# Each rank holds a share of the buffer; the whole buffer is counted.
GATHERED, SCATTERED = frozenset({"all_gather", "gather"}), frozenset({"reduce_scatter", "scatter"})


@lru_cache(maxsize=4096)
def named(name: str) -> Named | None:
    """Role and operation of an event of this name; None if it is not a collective's."""
    if name in _OTHERS:
        return None
    for pattern, role in TABLE:
        if pattern.fullmatch(name):
            found = operation_of(name)
            return Named(role, found) if found or role is not Role.CALL else None
    return None


def operation_of(name: str) -> str:
    """ "all_reduce" for "c10d::allreduce_", "gloo:all_reduce" or "ncclDevKernel_AllReduce_Sum"; "": none."""
    bare = name.split(":", 1)[-1].replace("_", "").lower()
    return next((operation for word, operation in _WORDS if word in bare), "")


def bus_factor(operation: str, size: int | None) -> float | None:
    """Factor from an operation's bytes per second among `size` ranks to those on each rank's link, as
    nccl-tests counts them; None if either is unknown or the group has one rank.
    """
    if size is None or size < 2:
        return None
    if operation == "all_reduce":
        return 2 * (size - 1) / size
    if operation in GATHERED or operation in SCATTERED or operation == "all_to_all":
        return (size - 1) / size
    return 1.0 if operation in ("broadcast", "reduce") or operation in POINT_TO_POINT else None


def buffer_bytes(operation: str, given: int | None, made: int | None, size: int | None) -> int | None:
    """Bytes of an operation as nccl-tests counts them: a rank's buffer, or all shares together where each
    rank has a share of it.

    Args:
        operation: as of `operation_of`.
        given, made: bytes of this rank's inputs and outputs; 0 where there are none, None where an element's
            size is not known: then the result is None, too.
        size: ranks in the group.
    """
    if given is None or made is None:
        return None
    if operation == "barrier":
        return 0
    whole, share = (made, given) if operation in GATHERED else (given, made)
    if operation in GATHERED or operation in SCATTERED:
        return max(whole, share) if whole > share or size is None else share * size
    return max(given, made)


_RUN = re.compile(r"(\d+)(?:-(\d+)(?:/(\d+))?)?")


class Group(NamedTuple):
    """A process group.

    Attributes:
        name: what it is for, such as "TENSOR_MODEL_PARALLEL_GROUP".
        ranks: of the job, in the group's order; None where not known.
    """

    name: str
    ranks: tuple[int, ...] | None = None

    def __str__(self) -> str:
        return self.name if self.ranks is None else f"{self.name} {_ranks_text(self.ranks)}"

    @classmethod
    def parse(cls, text: str) -> Group:
        """The group that `str` made the text of."""
        name, _, tail = text.rpartition(" ")
        matches = [_RUN.fullmatch(part) for part in tail.split(",")]
        if not name or not all(matches):
            return cls(text)
        ranks: list[int] = []
        for match in filter(None, matches):
            first, last, stride = match.groups()
            ranks.extend(range(int(first), int(last or first) + 1, int(stride or 1)))
        return cls(name, tuple(ranks))


def _ranks_text(ranks: Sequence[int]) -> str:
    """`0-7`, `0-12/4` for every fourth, otherwise the runs of consecutive ranks: `0-1,6`."""
    parts, at = [], 0
    while at < len(ranks):
        stride = ranks[at + 1] - ranks[at] if at + 1 < len(ranks) else 0
        end = at
        while stride > 0 and end + 1 < len(ranks) and ranks[end + 1] - ranks[end] == stride:
            end += 1
        if end == at or (end == at + 1 and stride > 1 and end + 1 < len(ranks)):
            parts.append(str(ranks[at]))
            at += 1
        else:
            parts.append(f"{ranks[at]}-{ranks[end]}" + (f"/{stride}" if stride > 1 else ""))
            at = end + 1
    return ",".join(parts)
