"""The host's arguments and environment as a run file keeps them: JSON, bounded in size, without secrets."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import Enum
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any

from flagscale_perf.spine.jsonl import dump

MAX_TEXT, MAX_ITEMS, MAX_DEPTH = 200, 64, 4
MAX_BYTES = 1 << 16  # of all of them as JSON: Megatron has some 700, which take 20 KiB
MASKED = "***"
_MAX_INT = 1 << 120  # the codec refuses what is larger
_SECRET = re.compile(
    r"(^|_)(password|passwd|passphrase|secret|secrets|credential|credentials)(_|$)"
    r"|(^|_)(api_?key|access_?key|private_?key|key|token|auth)$",
    re.IGNORECASE,
)
_USER_IN_ADDRESS = re.compile(r"://[^/@\s]+@")
_VARIABLE = re.compile(
    r"NCCL_\w+|PYTORCH_(CUDA_)?ALLOC_CONF|TORCHINDUCTOR_CACHE_DIR|TORCHDYNAMO_DISABLE|TRITON_CACHE_DIR|CUDA_DEVICE_MAX_CONNECTIONS|CUDA_LAUNCH_BLOCKING|OMP_NUM_THREADS"
)


def recorded(arguments: Mapping[str, Any], leave_out: Collection[str] = ()) -> dict[str, Any]:
    """All arguments but those left out, by their names. A secret, known by its name, is masked; a long text
    is cut; an object that JSON does not have is its type's name. The largest go where all of them are too
    large.
    """
    kept = {
        name: _plain(name, value, 1)
        for name, value in sorted(arguments.items())
        if name not in leave_out and not name.startswith("_")
    }
    sizes = {name: len(dump(value)) + len(name) for name, value in kept.items()}
    total = sum(sizes.values())
    for name in sorted(sizes, key=lambda each: sizes[each], reverse=True):
        if total <= MAX_BYTES:
            break
        total -= sizes[name]
        del kept[name]
    return kept


def recorded_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Variables that change how fast a training is, and no others: an environment is full of secrets."""
    return recorded({name: value for name, value in environ.items() if _VARIABLE.fullmatch(name)})


def _plain(name: str, value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if value and _SECRET.search(name):
        return MASKED
    if isinstance(value, str | PurePath):
        return _cut(_USER_IN_ADDRESS.sub(f"://{MASKED}@", str(value)))
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Integral):
        number = int(value)
        return number if -_MAX_INT < number < _MAX_INT else _cut(str(number))
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, Mapping | list | tuple | set | frozenset) and depth < MAX_DEPTH:
        return _items(name, value, depth)
    # Only types whose text is known to be short and to fail never: an object of the host may be anything.
    is_dtype = (type(value).__module__, type(value).__name__) == ("torch", "dtype")
    return str(value) if is_dtype else f"<{type(value).__name__}>"


def _items(name: str, values: Any, depth: int) -> Any:
    if not isinstance(values, Mapping):
        return [_plain(name, value, depth + 1) for value in list(values)[:MAX_ITEMS]]
    return {
        _cut(str(key)): _plain(str(key), value, depth + 1)
        for key, value in list(values.items())[:MAX_ITEMS]
        if isinstance(key, str | int)
    }


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."
