"""What torch's flight recorder and process groups say of collectives: group, sequence, sizes.

Point-to-point over gloo is not in the recorder. What is private of torch.distributed is in this file and in
`device.collectives`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flagscale_perf.device.collectives import recorded
from flagscale_perf.profile.operations import Group, buffer_bytes, operation_of
from flagscale_perf.spine.clock import Anchor

# Bytes of an element, by what the flight recorder and the profiler call its type.
_ELEMENTS = {
    **dict.fromkeys(("double", "long", "long int", "complexfloat", "int64", "c10::complex<float>"), 8),
    **dict.fromkeys(("float", "int", "int32", "uint32", "unsigned int", "complexhalf"), 4),
    **dict.fromkeys(("half", "bfloat16", "short", "short int", "uint16", "unsigned short"), 2),
    **dict.fromkeys(("byte", "char", "bool", "unsigned char", "signed char", "float8_e4m3fn"), 1),
    **dict.fromkeys(("float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"), 1),
    **dict.fromkeys(("complexdouble", "c10::complex<double>"), 16),
}
UNDESCRIBED = "undefined"  # what torch calls a group without a description


class Flown(NamedTuple):
    """A collective as the flight recorder has it.

    Attributes:
        asked_ns: monotonic mark of when it was asked for.
        op: name of what is executed, such as "gloo:all_reduce".
        group: text of its `Group`.
        size: ranks in the group; None where that is not known.
        sequence: number in the group, the same on all its ranks.
        size_bytes: as nccl-tests counts them; None where a type is not known.
    """

    asked_ns: int
    op: str
    group: str
    size: int | None
    sequence: int | None
    size_bytes: int | None


class Groups(NamedTuple):
    """The process groups of this process.

    Attributes:
        rank: this process's rank in the job; None without torch.distributed.
        known: each group by torch's number for it, which is the same on all ranks. No two are alike: where a
            name and its ranks come twice, the number is with the name.
    """

    rank: int | None = None
    known: Mapping[str, Group] = {}


def groups() -> Groups:
    """The groups of this process; none without torch.distributed."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    world = getattr(module, "_world", None)
    found: dict[str, Group] = {}
    try:
        names, ranks = world.pg_names, world.pg_group_ranks  # type: ignore[union-attr]
        for each, number in names.items():
            group = Group(_said(each.group_desc, number), tuple(ranks[each]))
            found[number] = (
                group if group not in found.values() else group._replace(name=f"{group.name}#{number}")
            )
    except (AttributeError, KeyError, TypeError):
        return Groups()
    return Groups(_rank(module), found)


def describe(group: Any, name: str) -> bool:
    """Gives a process group this description where it has none; returns whether it did."""
    try:
        if group.group_desc not in ("", UNDESCRIBED):
            return False
        group._set_group_desc(name)
    except (AttributeError, RuntimeError):
        return False
    return True


def forget(group: Any) -> None:
    """Takes back what `describe` did."""
    group._set_group_desc(UNDESCRIBED)


def _rank(module: Any) -> int | None:
    try:
        return int(module.get_rank())
    except (ValueError, RuntimeError, AttributeError):  # no default group
        return None


def flown() -> list[Flown]:
    """The contents of the flight recorder, oldest first: call it after a window, never within one."""
    known, anchor = groups().known, Anchor.now()
    return [_flown(entry, known, anchor) for entry in recorded()]


def _flown(entry: dict[str, Any], known: Mapping[str, Group], anchor: Anchor) -> Flown:
    number, description = entry["process_group"]
    group = known.get(number, Group(_said(description, number)))
    size = None if group.ranks is None else len(group.ranks)
    op = entry["profiling_name"]
    given, made = (bytes_of(entry[f"{way}_sizes"], entry[f"{way}_dtypes"]) for way in ("input", "output"))
    return Flown(
        asked_ns=entry["time_created_ns"] - anchor.wall_ns + anchor.mono_ns,
        op=op,
        group=str(group),
        size=size,
        sequence=entry["p2p_seq_id" if entry["is_p2p"] else "collective_seq_id"],
        size_bytes=buffer_bytes(operation_of(op), given, made, size),
    )


def _said(description: str, number: str) -> str:
    return description if description and description != UNDESCRIBED else f"group#{number}"


def bytes_of(sizes: Sequence[Any], types: Sequence[str]) -> int | None:
    """Bytes of tensors, each size a shape or a number of elements; None if a type is unknown."""
    found = 0
    for size, name in zip(sizes, types, strict=False):
        each = _ELEMENTS.get(name.lower().removeprefix("c10::"), _ELEMENTS.get(name.lower()))
        if each is None:
            return None
        for length in size if isinstance(size, (list, tuple)) else (size,):
            each *= length
        found += each
    return found
