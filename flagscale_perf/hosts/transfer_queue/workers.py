"""Hands a driver's options on to Ray's workers, which on another machine, or in a cluster that ran before,
have nothing of its environment.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from flagscale_perf.hosts.patching import Patches
from flagscale_perf.trace.options import TraceOptions

MODULE = "ray"
SETUP_HOOK, VARIABLES = "worker_process_setup_hook", "env_vars"
FORWARDED = ("VERL_LOGGING_LEVEL", "TRANSFER_QUEUE_ENABLE")
SUBMITTED = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # of a submitted job, whose own runtime environment is final
DE_DUPLICATION, OUR_LINES = "RAY_DEDUP_LOGS_ALLOW_REGEX", r"\[TQ-"


def variables(options: TraceOptions, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables of this process's environment for those that it starts. Lines on stdout differ in their
    numbers only: Ray shows one of many that it takes for the same, unless it is told before it is imported.
    """
    has_own = not options.to_stdout or DE_DUPLICATION in environment
    return options.variables | ({} if has_own else {DE_DUPLICATION: OUR_LINES})


def patch_ray(module: ModuleType, options: TraceOptions, patches: Patches, hook: Callable[[], None]) -> None:
    """Adds to the runtime environment that `ray.init` gives its workers; `hook` runs in each of them."""
    init = module.init

    @functools.wraps(init)
    def traced_init(*args: Any, **kwargs: Any) -> Any:
        given = kwargs.get("runtime_env")
        if SUBMITTED not in os.environ and (given is None or isinstance(given, Mapping)):
            kwargs["runtime_env"] = with_tracing(given or {}, options, os.environ, hook)
        return init(*args, **kwargs)

    patches.set(module, "init", traced_init)


def with_tracing(
    given: Mapping[str, Any], options: TraceOptions, environment: Mapping[str, str], hook: Callable[[], None]
) -> dict[str, Any]:
    """A runtime environment with the switches, and with the hook that acts on them. What is in it stays."""
    forwarded = {name: environment[name] for name in FORWARDED if name in environment}
    added = {VARIABLES: options.variables | forwarded | dict(given.get(VARIABLES) or {})}
    return {SETUP_HOOK: hook} | dict(given) | added
