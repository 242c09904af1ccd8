"""Everything about one job on this machine, decided and checked before anything is written or started."""

from __future__ import annotations

import os
import re
import site
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import flagscale_perf
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.launcher.flagscale_root import find_entrypoint, find_flagscale
from flagscale_perf.launcher.paths import ExperimentPaths, section
from flagscale_perf.launcher.settings import (
    PERF_KEYS,
    Setting,
    Settings,
    as_text,
    option,
    read_settings,
    to_argv,
)
from flagscale_perf.spine.errors import PerfError

OUTPUT_KEYS = ("perf_log_dir", "save", "load", "tensorboard_dir", "wandb_save_dir")
_FILE_KEYS = ("tokenizer_model", "tokenizer_path")  # and every *_file
_NOT_TORCHRUN = {
    "type",
    "backend",
    "hostfile",
    "background",
    "enable_monitoring",
    "ssh_port",
    "no_shared_fs",
    "per_node_task",
}
_RENDEZVOUS = {
    "rdzv_backend",
    "rdzv_endpoint",
    "rdzv_conf",
    "master_addr",
    "master_port",
    "node_rank",
    "local_addr",
}
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Plan:
    """One job.

    Attributes:
        paths: where its files lie.
        command: the whole torchrun command, program first.
        env: variables the job gets on top of the caller's; None unsets one.
        pythonpath: directories put before the caller's PYTHONPATH.
        before_start: shell command of the user, run first; "" for none.
        perf: the monitor's options in force; perf_log_dir is absolute.
        settings: the training script's options, paths resolved.
        entrypoint: the training script, absolute.
        resolved: one line for each path that was not written as an absolute one.
    """

    paths: ExperimentPaths
    command: list[str]
    env: dict[str, str | None]
    pythonpath: list[str]
    before_start: str
    perf: PerfConfig
    settings: Settings
    entrypoint: str
    resolved: list[str]


def make_plan(config: Mapping[str, Any], cwd: str, environ: Mapping[str, str]) -> Plan:
    """From the resolved configuration. Writes nothing. Raises PerfError for whatever cannot work."""
    task, runner = section(config, "experiment.task"), section(config, "experiment.runner")
    _check_supported(task, runner)
    paths = ExperimentPaths.from_config(config, cwd)
    env = environment(config)
    job_environ = {**environ, **{name: value for name, value in env.items() if value is not None}}
    root = find_flagscale(task, job_environ)
    entrypoint = find_entrypoint(task, root, cwd)
    settings, resolved = _resolve(_with_default_outputs(read_settings(config)), paths, root)
    perf = perf_options(settings, paths, job_environ)
    settings["perf_log_dir"] = Setting("train.system.perf_log_dir", perf.perf_log_dir)
    own_python = as_text(task.get("python") or sys.executable, "experiment.task.python")
    torchrun = [own_python, "-m", "torch.distributed.run", *_torchrun_options(runner, paths)]
    command = [*torchrun, "-m", "flagscale_perf.launch", entrypoint, *to_argv(settings, perf)]
    pythonpath = [
        *([root, os.path.join(root, "third_party", "Megatron-LM")] if root else []),
        *_own_directory(),
    ]
    return Plan(paths, command, env, pythonpath, _before_start(config), perf, settings, entrypoint, resolved)


def perf_options(settings: Settings, paths: ExperimentPaths, environ: Mapping[str, str]) -> PerfConfig:
    """The monitor's options, checked, with an absolute perf_log_dir. Raises PerfError naming option, value
    and cure.
    """
    given = {key: settings[key].value for key in PERF_KEYS if key in settings}
    for key, value in given.items():
        if value is not None:
            as_text(value, settings[key].path)
    perf = PerfConfig.from_args(given, environ)
    return replace(perf, perf_log_dir=paths.resolve(perf.perf_log_dir))


def _check_supported(task: Mapping[str, Any], runner: Mapping[str, Any]) -> None:
    for path, value, known in (
        ("experiment.task.type", task.get("type", "train"), "train"),
        ("experiment.task.backend", task.get("backend", "megatron"), "megatron"),
        ("experiment.runner.backend", runner.get("backend", "torchrun"), "torchrun"),
        ("experiment.runner.type", runner.get("type", "ssh"), "ssh"),
    ):
        if value != known:
            raise PerfError(
                f"{path}: {value!r} is not supported by this launcher, only {known!r}; use FlagScale's own run.py for it"
            )


def environment(config: Mapping[str, Any]) -> dict[str, str | None]:
    """Variables for the job; None unsets one. Raises PerfError for a name or value that no environment can
    hold.
    """
    env: dict[str, str | None] = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    for name, value in section(config, "experiment.envs").items():
        path = f"experiment.envs.{name}"
        if not isinstance(name, str) or not _ENV_NAME.fullmatch(name):
            raise PerfError(f"{path!r}: {name!r} cannot be a variable's name; use letters, digits and _")
        if isinstance(value, bool):
            value = int(value)
        env[name] = None if value is None else as_text(value, path)
    return env


def _with_default_outputs(settings: Settings) -> Settings:
    """The directories FlagScale's runner gives a job that names none; a key that is there keeps its value,
    null included.
    """
    defaults = {"tensorboard_dir": "tensorboard"}
    if _has_value(settings, "save_interval"):
        defaults |= {"save": "checkpoints", "load": "checkpoints"}
    if _has_value(settings, "wandb_project"):
        defaults["wandb_save_dir"] = "wandb"
    return {**{key: Setting(f"train.system.{key}", value) for key, value in defaults.items()}, **settings}


def _has_value(settings: Settings, key: str) -> bool:
    return key in settings and settings[key].value is not None


def _resolve(settings: Settings, paths: ExperimentPaths, root: str | None) -> tuple[Settings, list[str]]:
    resolved, notes = dict(settings), []
    for key, setting in settings.items():
        is_file = key in _FILE_KEYS or key.endswith("_file")
        if setting.value is None or not (is_file or key in OUTPUT_KEYS):
            continue
        text = as_text(setting.value, setting.path)
        path = _input_file(text, paths.cwd, root) if is_file else paths.resolve(text)
        if path != text:
            notes.append(f"{setting.path}: {text} -> {path}")
            resolved[key] = Setting(setting.path, path)
    return resolved, notes


def _input_file(text: str, cwd: str, root: str | None) -> str:
    """A file that is not where the command is typed but in FlagScale (its examples' tokenizers) is taken from
    there.
    """
    in_root = os.path.normpath(os.path.join(root or cwd, text))
    return in_root if not os.path.exists(os.path.join(cwd, text)) and os.path.exists(in_root) else text


def _torchrun_options(runner: Mapping[str, Any], paths: ExperimentPaths) -> list[str]:
    given = {
        str(key): value
        for key, value in runner.items()
        if key not in _NOT_TORCHRUN and value is not None and value is not False
    }
    given.setdefault("nproc_per_node", 1)
    options: list[str] = []
    if not _RENDEZVOUS & given.keys():
        if str(given.pop("nnodes", 1)) not in ("1", "1:1"):
            raise PerfError(
                "experiment.runner.nnodes: several machines need experiment.runner.hostfile=FILE, or else"
                " experiment.runner.rdzv_endpoint=HOST:PORT and this command on each of them"
            )
        given.pop("rdzv_id", None)
        options.append("--standalone")
    for key, value in given.items():
        path = f"experiment.runner.{key}"
        text = as_text(value, path)
        if not _ENV_NAME.fullmatch(key):
            raise PerfError(f"{path!r}: {key!r} cannot be an option of torchrun; use letters, digits and _")
        if key == "log_dir":
            text = paths.resolve(text)
        options += [f"--{key}"] if value is True else option(f"--{key}", text)
    return options


def _before_start(config: Mapping[str, Any]) -> str:
    command = section(config, "experiment.cmds").get("before_start")
    return "" if command is None else as_text(command, "experiment.cmds.before_start")


def _own_directory() -> list[str]:
    """Where this package lies, unless the job's Python finds it there anyway."""
    directory = os.path.dirname(os.path.dirname(os.path.abspath(flagscale_perf.__file__)))
    return [] if directory in [*site.getsitepackages(), site.getusersitepackages()] else [directory]
