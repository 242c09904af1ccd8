"""Options of the training script, from the configuration to the command line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from flagscale_perf.arguments import PerfConfig, flag_of
from flagscale_perf.spine.errors import PerfError

PERF_KEYS = tuple(option.name for option in fields(PerfConfig))
# Of the monitor that FlagScale's main branch has of its own, beside those that ours has, too.
HOST_PERF_KEYS = ("perf_log_format", "perf_model_type")
_NUMBER = re.compile(r"-(\d+|\d*\.\d+)")  # what argparse takes for a negative number and not for an option
_LONGEST_BYTES = 128 * 1024 - 1  # Linux: one argument, without its terminating NUL


@dataclass(frozen=True)
class Setting:
    """One option of the configuration.

    Attributes:
        path: where it is written, e.g. `train.system.perf_log_dir`.
        value: as yaml gave it; None leaves the option out.
    """

    path: str
    value: Any

    def text(self) -> str:
        """The value as one argument. Raises PerfError naming `path`."""
        return as_text(self.value, self.path)


Settings = dict[str, Setting]  # by key with underscores


def to_argv(settings: Settings, perf: PerfConfig) -> list[str]:
    """The training script's arguments. Options of the monitor are taken from `perf`, where they are checked.

    `true` is the bare flag. `false` is the absent flag; for an option of the monitor it is `--no-...`,
    because some are on by default. Raises PerfError for a value that no command line can carry.
    """
    argv: list[str] = []
    for key, setting in settings.items():
        if setting.value is None:
            continue
        value = getattr(perf, key) if key in PERF_KEYS else setting.value
        if key in PERF_KEYS and value is False:
            argv.append(flag_of("no_" + key))
        else:
            argv += _arguments(flag_of(key), Setting(setting.path, value))
    return argv


def _arguments(flag: str, setting: Setting) -> list[str]:
    if isinstance(setting.value, bool):
        return [flag] if setting.value else []
    if isinstance(setting.value, list):
        return [flag, *_items(setting)]
    return option(flag, setting.text())


def _items(setting: Setting) -> list[str]:
    if not setting.value:
        raise PerfError(
            f"{setting.path}: an empty list has no meaning on a command line; write null to leave the option"
            " out"
        )
    items = []
    for index, value in enumerate(setting.value):
        path = f"{setting.path}[{index}]"
        text = as_text(value, path)
        if text.startswith("-") and not _NUMBER.fullmatch(text):
            raise PerfError(
                f"{path}: {text!r} in a list would be taken for an option; begin it with another character,"
                " for example ./"
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
            f"{path}: {size_bytes} bytes are too long for one argument (at most {_LONGEST_BYTES}); put it in"
            " a file"
        )
    return text
