"""The configuration, read once: from the resolved mapping to checked, typed values. Nothing behind this file
sees the mapping.

The outer keys of nested sections of `train.{system,model,data}` are dropped, as FlagScale's runner does:
`system.checkpoint.save_interval` is `--save-interval`. Unlike there, two keys that end in one option may not
disagree.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from flagscale_perf.arguments import flag_of
from flagscale_perf.launcher.settings import HOST_PERF_KEYS, PERF_KEYS, Setting, Settings, as_text
from flagscale_perf.spine.errors import PerfError, did_you_mean, is_misspelt

ACTIONS = ("run", "dryrun", "test", "stop", "query")
SECTIONS = ("system", "model", "data")
_OWN_KEYS = {
    "log_dir",
    "details_dir",
    "scripts_dir",
    "pids_dir",
}  # of the launcher, not of the training script
_OF_RUN_PY = {"background", "check_memory"}  # keys of the runner that nobody else knows
_OWN_RUNNER_KEYS = {"type", "backend", "hostfile"} | _OF_RUN_PY | {
    "enable_monitoring", "ssh_port", "no_shared_fs", "per_node_task", "enable_gpu_health_check", "heartbeat",
    "nsys_bin_path", "nsys_rep_file_path", "deploy",
}  # fmt: skip
_MONITOR_KEYS = {*PERF_KEYS, *HOST_PERF_KEYS}  # FlagScale's runner takes them in its own section, too
_TORCHRUN_KEYS = {
    "duplicate_stderr_filters", "duplicate_stdout_filters", "event_log_handler", "local_addr",
    "local_ranks_filter", "log_dir", "logs_specs", "master_addr", "master_port", "max_restarts", "module",
    "monitor_interval", "nnodes", "no_python", "node_rank", "nproc_per_node", "numa_binding", "rdzv_backend",
    "rdzv_conf", "rdzv_endpoint", "rdzv_id", "redirects", "role", "run_path", "shutdown_timeout",
    "signals_to_handle", "standalone", "start_method", "tee", "virtual_local_rank",
}  # fmt: skip
_TASK_KEYS = {"type", "backend", "entrypoint", "flagscale_root", "python"}
_EXPERIMENT_KEYS = {"exp_name", "exp_dir", "seed", "task", "runner", "envs", "cmds"}
_COUNT = r"[1-9]\d{0,8}"
_FROM_ZERO = ("0|" + _COUNT, "a whole number from 0 on", "0")
# Option of torchrun -> what it may be, in a pattern and in words, and an example.
_TORCHRUN_VALUES = {
    "nproc_per_node": (f"{_COUNT}|auto|cpu|gpu|xpu|npu|mlu|musa",
                       "a whole number above 0, auto, gpu or cpu", "8"),
    "nnodes": (f"{_COUNT}(:{_COUNT})?", "a whole number above 0, or MIN:MAX", "2"),
    "node_rank": _FROM_ZERO,
    "max_restarts": _FROM_ZERO,
    "master_port": (r"\d{1,4}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5]",
                    "a port from 0 to 65535", "29500"),
}  # fmt: skip
_SUPPORTED = (
    ("task", "type", "train"),
    ("task", "backend", "megatron"),
    ("runner", "backend", "torchrun"),
    ("runner", "type", "ssh"),
)
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Directories:
    """Where an experiment's files go, as it is written.

    Attributes:
        exp_dir: `experiment.exp_dir`.
        log_dir: `train.system.logging.log_dir`; None if it is not given.
    """

    exp_dir: str
    log_dir: str | None


@dataclass(frozen=True)
class Job:
    """The whole configuration.

    Attributes:
        action: one of `ACTIONS`.
        directories: of its files.
        flagscale_root, entrypoint: of `experiment.task`; None if they are not given.
        python: the interpreter of the job.
        background: whether run.py returns once the job is started.
        check_memory: whether a job that cannot fit into this machine's memory is refused.
        torchrun: its options by name; None for one without a value.
        runner: `experiment.runner` for FlagScale's own runner, without the keys of run.py alone and without
            the monitor's.
        env: variables of the job; None unsets one.
        before_start: shell command of the user, run first; "" for none.
        settings: options of the training script.
    """

    action: str
    directories: Directories
    flagscale_root: str | None
    entrypoint: str | None
    python: str
    background: bool
    check_memory: bool
    torchrun: dict[str, str | None]
    runner: dict[str, Any]
    env: dict[str, str | None]
    before_start: str
    settings: Settings


def read_action(config: Mapping[str, Any]) -> str:
    """Raises PerfError for one that does not exist."""
    name = config.get("action", "run")
    if not isinstance(name, str) or name not in ACTIONS:
        raise PerfError(f"action: {name!r} is not one of {', '.join(ACTIONS)}; write for example action=run")
    return name


def read_hostfile(config: Mapping[str, Any]) -> str | None:
    """Where the machines of the job are listed; None for this machine alone."""
    given = _section(config, "experiment.runner").get("hostfile")
    return str(given) if given else None


def read_directories(config: Mapping[str, Any]) -> Directories:
    """All that `stop` needs. Raises PerfError without a usable `experiment.exp_dir`."""
    exp_dir = _directory(_section(config, "experiment").get("exp_dir"), "experiment.exp_dir", "./outputs")
    log_dir = _section(config, "train.system.logging").get("log_dir")
    return Directories(
        exp_dir, None if log_dir is None else _directory(log_dir, "train.system.logging.log_dir", "null")
    )


def read_job(config: Mapping[str, Any]) -> Job:
    """The whole configuration. Raises PerfError naming key, value and cure."""
    task, runner = _section(config, "experiment.task"), _section(config, "experiment.runner")
    refuse_misspelt(_section(config, "experiment"), "experiment", _EXPERIMENT_KEYS)
    refuse_misspelt(task, "experiment.task", _TASK_KEYS)
    refuse_misspelt(runner, "experiment.runner", _TORCHRUN_KEYS | _OWN_RUNNER_KEYS | _MONITOR_KEYS)
    for name, key, known in _SUPPORTED:
        value = (task if name == "task" else runner).get(key, known)
        if value != known:
            raise PerfError(
                f"experiment.{name}.{key}: {value!r} is not supported by this launcher, only {known!r};"
                " use FlagScale's own run.py for it"
            )
    root, entrypoint = task.get("flagscale_root"), task.get("entrypoint")
    before_start = _section(config, "experiment.cmds").get("before_start")
    return Job(
        action=read_action(config),
        directories=read_directories(config),
        flagscale_root=str(root) if root else None,
        entrypoint=str(entrypoint) if entrypoint else None,
        python=as_text(task.get("python") or sys.executable, "experiment.task.python"),
        background=_switch(runner, "background", False),
        check_memory=_switch(runner, "check_memory", True),
        torchrun=_torchrun(runner),
        runner={
            key: value for key, value in runner.items() if key not in _OF_RUN_PY and key not in _MONITOR_KEYS
        },
        env=_environment(_section(config, "experiment.envs")),
        before_start="" if before_start is None else as_text(before_start, "experiment.cmds.before_start"),
        settings=read_settings(config),
    )


def refuse_misspelt(section: Mapping[str, Any], path: str, known: Set[str]) -> None:
    """Raises PerfError for a key that is so like a known one that it can hardly mean anything else."""
    for key in section:
        if is_misspelt(str(key), known):
            raise PerfError(f"{path}.{key}: there is no such key{did_you_mean(str(key), known, 1)}")


def _switch(runner: Mapping[str, Any], key: str, default: bool) -> bool:
    value = runner.get(key, default)
    if not isinstance(value, bool):
        raise PerfError(f"experiment.runner.{key}: {value!r} is neither true nor false; write true or false")
    return value


def _torchrun(runner: Mapping[str, Any]) -> dict[str, str | None]:
    options: dict[str, str | None] = {}
    for key, value in runner.items():
        path = f"experiment.runner.{key}"
        if key in _TORCHRUN_VALUES and value is not None:
            _check_torchrun(path, value, *_TORCHRUN_VALUES[key])
        if key in _OWN_RUNNER_KEYS or key in _MONITOR_KEYS or value is None or value is False:
            continue
        text = as_text(value, path)
        if not _ENV_NAME.fullmatch(str(key)):
            raise PerfError(f"{path!r}: {key!r} cannot be an option of torchrun; use letters, digits and _")
        options[key] = None if value is True else text
    return options


def _check_torchrun(path: str, value: Any, pattern: str, what: str, example: str) -> None:
    if isinstance(value, bool) or not re.fullmatch(pattern, as_text(value, path), re.ASCII):
        raise PerfError(f"{path}: {value!r} is not {what}; write for example {example}")


def _environment(section: Mapping[str, Any]) -> dict[str, str | None]:
    env: dict[str, str | None] = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    for name, value in section.items():
        path = f"experiment.envs.{name}"
        if not isinstance(name, str) or not _ENV_NAME.fullmatch(name):
            raise PerfError(f"{path!r}: {name!r} cannot be a variable's name; use letters, digits and _")
        if isinstance(value, bool):
            value = int(value)
        env[name] = None if value is None else as_text(value, path)
    return env


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Every option of the training script, in the order system, model, data; the monitor's may be in
    `experiment.runner` instead, as with FlagScale's own runner. Raises PerfError.
    """
    train = _train_section(config)
    found: Settings = {}
    for name in SECTIONS:
        for key, setting in _leaves(train.get(name) or {}, f"train.{name}"):
            earlier = found.get(key, Setting("", None))
            if setting.value is None and earlier.value is not None:
                continue
            if earlier.value is not None and not _same(earlier.value, setting.value):
                raise PerfError(
                    f"{earlier.path}={earlier.value!r} and {setting.path}={setting.value!r} both mean"
                    f" {flag_of(key)};"
                    " remove one of them"
                )
            found[key] = setting
    for key, value in _section(config, "experiment.runner").items():
        if key in _MONITOR_KEYS and (key not in found or found[key].value is None):
            found[key] = Setting(f"experiment.runner.{key}", value)
    return found


def _train_section(config: Mapping[str, Any]) -> Mapping[str, Any]:
    train = config.get("train")
    if not isinstance(train, Mapping):
        raise PerfError(
            "train: no such section in the configuration; pick one with train=NAME, for example"
            " train=demo_llama"
        )
    unknown = [str(name) for name in train if name not in SECTIONS]
    if unknown:
        raise PerfError(
            f"train.{unknown[0]}: not one of the sections {', '.join(SECTIONS)}; move its keys into one of"
            " them"
        )
    return train


def _leaves(section: Any, path: str) -> Iterator[tuple[str, Setting]]:
    if not isinstance(section, Mapping):
        raise PerfError(f"{path}: {section!r} is not a section of keys; write {path}.KEY=VALUE")
    for key, value in section.items():
        inner = f"{path}.{key}"
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise PerfError(f"{inner!r}: {key!r} cannot be an option's name; use letters, digits and _")
        if isinstance(value, Mapping):
            yield from _leaves(value, inner)
        elif key not in _OWN_KEYS:
            yield key.replace("-", "_"), Setting(inner, value)


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _section(config: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The section at a dotted path; {} where it is absent or null."""
    found: Any = config
    for name in path.split("."):
        found = found.get(name)
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            raise PerfError(
                f"{path}: {name} is {found!r} and not a section of keys; see conf/train.yaml for the form"
            )
    result: Mapping[str, Any] = found
    return result


def _directory(value: Any, key: str, example: str) -> str:
    if (
        not isinstance(value, str)
        or not value.strip()
        or any(ord(char) < 32 or ord(char) == 127 for char in value)
    ):
        raise PerfError(f"{key}: {value!r} is not a directory name; write for example {key}={example}")
    return value
