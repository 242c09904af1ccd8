"""Reads what a batch tells of itself: its trace id, its step, its rows, and the bytes of its values.

Nothing here imports torch or TransferQueue: values are recognised by their attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from zlib import crc32

Place = tuple[str, int | None]  # a partition and an index in it
TRACE_ID, STEP = "trace_id", "global_steps"
OLDEST, NEWEST = "min_global_steps", "max_global_steps"  # as verl tags what its agents generate
_DEPTH = 5  # of wrappers and lists around a value, and of containers in containers


class Batch(Protocol):
    """What is read of a batch of samples. TransferQueue's `BatchMeta` has it by these names; an adapter of
    another queue gives an object that has.

    Attributes:
        global_indexes: of the samples; a batch of keys has none, and no `partition_ids`.
        partition_ids: of the partition of each.
        extra_info: what the program says of the batch: its trace id and step.
        custom_meta: tags of each sample; `tags` where a batch of keys has them.
        size: samples.
    """

    global_indexes: Sequence[int]
    partition_ids: Sequence[str]
    extra_info: Mapping[str, Any]
    custom_meta: Sequence[dict[str, Any]]
    size: int


def trace_id_of(batch: Any) -> str:
    """The id in the batch's own metadata, otherwise the tag of its first sample; "" if there is none."""
    info = batch.extra_info
    if info and TRACE_ID in info and (found := _text(info[TRACE_ID])):
        return found
    tags = getattr(batch, "custom_meta", None) or getattr(batch, "tags", None)
    return _text(tags[0][TRACE_ID]) if tags and TRACE_ID in tags[0] else ""


def stamp(batch: Any, trace_id: str) -> None:
    """Tags every sample without a trace id with this one."""
    for tags in batch.custom_meta:
        tags.setdefault(TRACE_ID, trace_id)


def step_of(batch: Any) -> int | None:
    """The training step that the batch says it belongs to."""
    info = batch.extra_info
    if not info or STEP not in info:
        return None
    value = _single(info[STEP])
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def versions_of(batch: Any) -> tuple[int, int] | None:
    """The oldest and the newest version of the weights that made the batch's samples, as their tags say."""
    tags = getattr(batch, "custom_meta", None)
    if not tags or OLDEST not in tags[0]:
        return None
    found = [value for tag in tags for name in (OLDEST, NEWEST) if isinstance(value := tag.get(name), int)]
    return (min(found), max(found)) if found else None


def key_number(key: str) -> int:
    """The number that a key is recorded as: its CRC-32, as keys may be of any length."""
    return crc32(key.encode("utf-8", "backslashreplace"))


def fields_of(batch: Any) -> Mapping[str, Any]:
    """The fields of a TensorDict and their values."""
    # a TensorDict's own views of its content cost more than everything else done here
    held = getattr(batch, "_tensordict", None)
    return held if type(held) is dict else dict(batch.items())


def payload_bytes(fields: Mapping[str, Any]) -> int | None:
    """Bytes of the values of all fields, without the offsets of samples. None if a field holds Python objects
    of unknown size.
    """
    total = 0
    for value in fields.values():
        # by the type's name: asking a tensor for a missing attribute costs more than everything else here
        if type(value).__name__ == "Tensor":
            total += value.nbytes  # of a nested one, too, whose samples are stored one after another
            continue
        size = _other_bytes(value)
        if size is None:
            return None
        total += size
    return total


def known_bytes(fields: Mapping[str, Any]) -> tuple[int, list[str]]:
    """Bytes of the values of the fields that have any known, and the names of the other fields."""
    sizes = {name: payload_bytes({name: value}) for name, value in fields.items()}
    known = sum(size for size in sizes.values() if size is not None)
    return known, [str(name) for name, size in sizes.items() if size is None]


def ranges_of(rows: Sequence[int]) -> tuple[int, ...]:
    """First index and count of each run of consecutive indexes; `rows` in any order."""
    ranges: list[int] = []
    end: int | None = None
    for row in sorted(set(rows)):
        if row == end:
            ranges[-1] += 1
        else:
            ranges += (row, 1)
        end = row + 1
    return tuple(ranges)


def extent_of(rows: Sequence[int]) -> tuple[int, int, tuple[int, ...]]:
    """The lowest and the highest index, and all ranges if the rows are not exactly those between the two,
    each once. `rows` must not be empty.
    """
    first, count = rows[0], len(rows)
    if list(rows) == list(range(first, first + count)):  # as nearly always; costs less than what follows
        return first, first + count - 1, ()
    ranges = ranges_of(rows)
    return min(rows), max(rows), () if len(ranges) == 2 and ranges[1] == count else ranges


def place_of(batch: Any) -> Place:
    """The batch's partition and lowest row; "" and None where it has no rows, as a batch of keys."""
    rows = getattr(batch, "global_indexes", None)
    return (batch.partition_ids[0], min(rows)) if rows else ("", None)


def by_partition(batch: Any) -> dict[str, list[int]]:
    """Rows of the batch, grouped by partition."""
    found: dict[str, list[int]] = {}
    if batch is not None:
        for partition, row in zip(batch.partition_ids, batch.global_indexes, strict=True):
            found.setdefault(partition, []).append(row)
    return found


def _other_bytes(value: Any) -> int | None:
    if getattr(value, "_offsets", None) is not None:  # a jagged nested tensor: its samples are in one tensor
        return None if value._lengths is not None else int(value._values.nbytes)  # None: gaps between them
    if hasattr(value, "nbytes") and hasattr(value, "is_nested"):  # a tensor of another class
        return int(value.nbytes)
    if hasattr(value, "tolist"):  # a stack of Python objects
        return _objects_bytes(value.tolist())
    # one Python object, wrapped or as it is
    return _objects_bytes([value.data if hasattr(value, "data") else value])


def _objects_bytes(objects: Any, depth: int = _DEPTH) -> int | None:
    """Bytes of Python objects: of texts as UTF-8, 8 of a number, of containers what is in them. None where
    one is of another type, or too deep.
    """
    total = 0
    for each in objects if isinstance(objects, list | tuple | set) else [objects]:
        size = _object_bytes(each, depth)
        if size is None:
            return None
        total += size
    return total


def _object_bytes(value: Any, depth: int) -> int | None:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "backslashreplace"))
    if isinstance(value, bytes | bytearray):
        return len(value)
    if value is None or isinstance(value, int | float):
        return 0 if value is None else 8
    if isinstance(size := getattr(value, "nbytes", None), int):
        return size
    if not depth or not isinstance(value, dict | list | tuple | set):
        return None
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    return _objects_bytes(parts, depth - 1)


def _single(value: Any) -> Any:
    """Unwraps metadata, which comes as it was given, wrapped for a TensorDict, or as a list of one for each
    part that was joined. None for anything else, such as a tensor, which may be on a device.
    """
    for _ in range(_DEPTH):
        if value is None or isinstance(value, str | bytes | int):
            return value
        if isinstance(value, list | tuple):
            value = value[0] if value else None
        elif type(value).__module__ == "numpy" or not hasattr(value, "nbytes"):
            value = value.tolist() if hasattr(value, "tolist") else getattr(value, "data", None)
        else:
            return None
    return None


def _text(value: Any) -> str:
    value = _single(value)
    if value is None:
        return ""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
