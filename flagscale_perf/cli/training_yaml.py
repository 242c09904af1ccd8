"""A training yaml with the files that its Hydra defaults list names, without Hydra."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flagscale_perf.spine.errors import PerfError, did_you_mean
from flagscale_perf.spine.packages import missing

DEFAULTS = "defaults"
_SELF = "_self_"
_OF_HYDRA = ("override ", "hydra/")  # how Hydra runs, not what it runs


def read_training_yaml(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Its content over that of its defaults, in their order. Raises PerfError naming the file that is wrong.

    Args:
        path: of the file.
        above: the files in whose defaults it is.
    """
    if path in above:
        raise PerfError(f"{above[-1]}: its defaults lead back to {path}; take one of them out")
    content = _parsed(path)
    own = {name: value for name, value in content.items() if name != DEFAULTS}
    listed = list(_entries(content.get(DEFAULTS) or [], path))
    merged: dict[str, Any] = {}
    for group, name in listed if (None, _SELF) in listed else [*listed, (None, _SELF)]:
        is_own = (group, name) == (None, _SELF)
        part = own if is_own else read_training_yaml(_file(path, group, name), (*above, path))
        _merge(merged, {group: part} if group else part)
    return merged


def _entries(listed: Any, path: Path) -> Iterator[tuple[str | None, str]]:
    """Group, or None, and name of each entry that adds something."""
    if not isinstance(listed, list):
        raise PerfError(f"{path}: defaults is {listed!r}; write a list of names")
    for entry in listed:
        given = entry if isinstance(entry, Mapping) else {None: entry}
        for group, name in given.items():
            where = str(group or name)
            if where.startswith(_OF_HYDRA) or name is None:
                continue
            if not isinstance(name, str) or "@" in where or "${" in name:
                raise PerfError(f"{path}: the default {entry!r} is not followed here; write out what it adds")
            yield None if group is None else str(group).removeprefix("optional "), name


def _file(path: Path, group: str | None, name: str) -> Path:
    directory = path.parent / (group or "")
    found = directory / (name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    if not found.is_file():
        near = did_you_mean(name, [other.stem for other in directory.glob("*.yaml")])
        raise PerfError(f"{path}: there is no {found}, which its defaults name{near}")
    return found


def _parsed(path: Path) -> Mapping[str, Any]:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise missing("yaml", error, "--args FILE.yaml", "give the file as JSON") from None
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise PerfError(f"{path}: cannot be read ({why}); give a training yaml") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise PerfError(f"{path}: is neither JSON nor yaml ({reason}); mend it") from None
    if not isinstance(content, Mapping):
        raise PerfError(
            f"{path}: holds no arguments but {type(content).__name__}; write an object of names and values"
        )
    return content


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, Mapping):
            if not isinstance(into.get(name), dict):
                into[name] = {}
            _merge(into[name], value)
        else:
            into[name] = value
