"""FlagScale's main branch has a performance monitor of its own, under flags that are ours, too.

Where this package's is asked for, the host's stays off: both would write the same files.
`--perf-host-monitor keep` runs both, the host's in a directory of its own.
"""

from __future__ import annotations

import argparse
import copy
import functools
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from flagscale_perf.arguments import KEEP, PerfConfig
from flagscale_perf.hosts.patching import Patches

ARGUMENTS_MODULE = "megatron.training.arguments_fs"
HOOKS_MODULE = "flagscale.train.perf_monitor.hooks"
DIRECTORY = "host_monitor"  # below ours


def patch_arguments(module: ModuleType, patches: Patches) -> None:
    """Adds of its flags only those that the parser does not have: the others are ours, with our defaults."""
    patches.wrap(module, {"_add_perf_monitor_args": _adding_what_is_new})


def _adding_what_is_new(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def add(parser: Any) -> Any:
        own = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
        original(own)
        known = {flag for action in parser._actions for flag in action.option_strings}
        group = parser.add_argument_group("FlagScale's own performance monitor")
        for action in own._actions:
            if known.isdisjoint(action.option_strings):
                group._add_action(action)
        return parser

    return add


def patch_hooks(module: ModuleType, patches: Patches, announce: Callable[[str], None]) -> None:
    """Lets it begin only where it is to be kept. The loop imports what is patched here by name, later."""
    patches.wrap(module, {"initialize_perf_monitor": lambda original: _beginning(original, announce)})


def _beginning(original: Callable[..., Any], announce: Callable[[str], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def begin(args: Any) -> Any:
        config, given = PerfConfig.from_args(args), copy.copy(args)
        is_kept = config.enable_perf_monitor and config.perf_host_monitor == KEEP
        if config.enable_perf_monitor and not is_kept:
            announce(
                "FlagScale's own performance monitor stays off beside this one"
                " (--perf-host-monitor keep runs both)"
            )
        vars(given).update(config.as_dict() | {"enable_perf_monitor": is_kept})
        given.perf_log_dir = os.path.join(config.perf_log_dir, DIRECTORY)
        return original(given)

    return begin


def state_of(config: PerfConfig) -> str | None:
    """What is done about the host's own monitor, "replace" or "keep"; None for a host without one."""
    return config.perf_host_monitor if HOOKS_MODULE in sys.modules else None
