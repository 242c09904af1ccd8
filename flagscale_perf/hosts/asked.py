"""What the command line and the environment of a process ask of the monitor, before any parser has run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.options.table import env_of, flag_of
from flagscale_perf.options.values import parse_bool
from flagscale_perf.spine.errors import PerfError

ENABLE_FLAG, ENABLE_VARIABLE = flag_of("enable_perf_monitor"), env_of("enable_perf_monitor")
_REHEARSE_FLAG, _REHEARSE_VARIABLE = flag_of("rehearse_on_cpu"), env_of("rehearse_on_cpu")


def asks_for_monitor(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether a command line has the flag, or the environment switches the monitor on."""
    has_flag = any(word == ENABLE_FLAG or word.startswith(ENABLE_FLAG + "=") for word in words)
    return has_flag or _is_true(environ.get(ENABLE_VARIABLE, ""))


def rehearsal_mode(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """The value of --rehearse-on-cpu, unchecked: the host's parser refuses a wrong one later."""
    value = environ.get(_REHEARSE_VARIABLE) or PerfConfig().rehearse_on_cpu
    for word, following in zip_longest(argv, argv[1:], fillvalue=""):
        if word == _REHEARSE_FLAG:
            value = following
        elif word.startswith(_REHEARSE_FLAG + "="):
            value = word.partition("=")[2]
    return value


def _is_true(text: str) -> bool:
    try:
        return parse_bool(text)
    except PerfError:
        return bool(text)  # a wrong value is refused later, by name
