"""From `train.{system,model,data}` to the arguments of the training script.

The outer keys of nested sections are dropped, as FlagScale's runner does: `system.checkpoint.save_interval`
is `--save-interval`. Unlike there, two keys that end in one option may not disagree, and `false` and `null`
keep their meaning.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from flagscale_perf.arguments import PerfConfig, flag_of
from flagscale_perf.spine.errors import PerfError

SECTIONS = ("system", "model", "data")
PERF_KEYS = tuple(option.name for option in fields(PerfConfig))
_LAUNCHER_KEYS = {
    "log_dir",
    "details_dir",
    "scripts_dir",
    "pids_dir",
}  # of the launcher, not of the training script
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_NUMBER = re.compile(r"-(\d+|\d*\.\d+)")  # what argparse takes for a negative number and not for an option
_LONGEST_BYTES = 128 * 1024 - 1  # Linux: one argument, without its terminating NUL


@dataclass(frozen=True)
class Setting:
    """One leaf of the configuration.

    Attributes:
        path: where it is written, e.g. `train.system.perf_log_dir`.
        value: as yaml gave it; None leaves the option out.
    """

    path: str
    value: Any


Settings = dict[str, Setting]  # by key with underscores


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Every option named in the configuration, in the order system, model, data. Raises PerfError."""
    train = config.get("train")
    if not isinstance(train, Mapping):
        raise PerfError(
            "train: no such section in the configuration; pick one with train=NAME, for example train=demo_llama"
        )
    unknown = [str(name) for name in train if name not in SECTIONS]
    if unknown:
        raise PerfError(
            f"train.{unknown[0]}: not one of the sections {', '.join(SECTIONS)}; move its keys into one of them"
        )
    found: Settings = {}
    for name in SECTIONS:
        for key, setting in _leaves(train.get(name) or {}, f"train.{name}"):
            earlier = found.get(key, Setting("", None))
            if setting.value is None and earlier.value is not None:
                continue
            if earlier.value is not None and not _same(earlier.value, setting.value):
                raise PerfError(
                    f"{earlier.path}={earlier.value!r} and {setting.path}={setting.value!r} both mean {flag_of(key)}; remove one of them"
                )
            found[key] = setting
    return found


def _leaves(section: Any, path: str) -> Iterator[tuple[str, Setting]]:
    if not isinstance(section, Mapping):
        raise PerfError(f"{path}: {section!r} is not a section of keys; write {path}.KEY=VALUE")
    for key, value in section.items():
        inner = f"{path}.{key}"
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise PerfError(f"{inner!r}: {key!r} cannot be an option's name; use letters, digits and _")
        if isinstance(value, Mapping):
            yield from _leaves(value, inner)
        elif key not in _LAUNCHER_KEYS:
            yield key.replace("-", "_"), Setting(inner, value)


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def to_argv(settings: Settings, perf: PerfConfig) -> list[str]:
    """The training script's arguments. Options of the monitor are taken from `perf`, in which they are
    checked.

    `true` is the bare flag. `false` is the absent flag; for an option of the monitor it is `--no-...`,
    because some are on by default. Raises PerfError for a value that no command line can carry.
    """
    argv: list[str] = []
    for key, setting in settings.items():
        if setting.value is None:
            continue
        if key in PERF_KEYS:
            value = getattr(perf, key)
            argv += (
                [flag_of("no_" + key)] if value is False else _arguments(key, Setting(setting.path, value))
            )
        else:
            argv += _arguments(key, setting)
    return argv


def _arguments(key: str, setting: Setting) -> list[str]:
    flag = flag_of(key)
    if isinstance(setting.value, bool):
        return [flag] if setting.value else []
    if isinstance(setting.value, list):
        return [flag, *_items(setting)]
    return option(flag, as_text(setting.value, setting.path))


def _items(setting: Setting) -> list[str]:
    if not setting.value:
        raise PerfError(
            f"{setting.path}: an empty list has no meaning on a command line; write null to leave the option out"
        )
    items = []
    for index, value in enumerate(setting.value):
        path = f"{setting.path}[{index}]"
        text = as_text(value, path)
        if text.startswith("-") and not _NUMBER.fullmatch(text):
            raise PerfError(
                f"{path}: {text!r} in a list would be taken for an option; begin it with another character, for example ./"
            )
        items.append(text)
    return items


def option(flag: str, text: str) -> list[str]:
    """`--flag text`, or `--flag=text` where the text could be taken for another option."""
    return [f"{flag}={text}"] if text.startswith("-") and not _NUMBER.fullmatch(text) else [flag, text]


def as_text(value: Any, path: str) -> str:
    """A scalar of the configuration as one argument or environment value. Raises PerfError naming `path`."""
    if value is None or isinstance(value, (list, Mapping)):
        raise PerfError(f"{path}: {value!r} is not a single value; write a number, a text, true or false")
    text = str(value)
    if text == "???":
        raise PerfError(f"{path}: has no value yet; add {path}=VALUE to the command")
    if "\0" in text:
        raise PerfError(
            f"{path}: {text!r} contains a NUL character, which no program can be given; remove it"
        )
    try:
        size_bytes = len(os.fsencode(text))
    except UnicodeEncodeError:
        raise PerfError(
            f"{path}: {text!r} contains half a character (a lone surrogate); write the whole character"
        ) from None
    if size_bytes > _LONGEST_BYTES:
        raise PerfError(
            f"{path}: {size_bytes} bytes are too long for one argument (at most {_LONGEST_BYTES}); put it in a file"
        )
    return text
