"""The configuration, read once: from the resolved mapping to checked, typed values. Nothing behind this file
sees the mapping.

The outer keys of nested sections of `train.{system,model,data}` are dropped, as FlagScale's runner does:
`system.checkpoint.save_interval` is `--save-interval`. Unlike there, two keys that end in one option may not
disagree.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.launcher.paths import ExperimentPaths
from flagscale_perf.options.table import flag_of, rows_of
from flagscale_perf.spine.errors import PerfError, did_you_mean, is_misspelt
from flagscale_perf.spine.files import local_path

ACTIONS = ("run", "dryrun", "test", "stop", "query")
SECTIONS = ("system", "model", "data")
PERF_KEYS = tuple(rows_of(PerfConfig))
# Of the monitor that FlagScale's main branch has of its own, beside those that ours has, too.
_HOST_PERF_KEYS = ("perf_model_type",)
_NEGATED = {f"no_{row.name}" for row in rows_of(PerfConfig).values() if row.is_switch}
# Keys of `train` that are the launcher's, not the training script's.
_OWN_KEYS = ("log_dir", "details_dir", "scripts_dir", "pids_dir")
# Keys of the runner that are no options of torchrun: those of run.py alone, and those of FlagScale's runner.
_OF_RUN_PY = ("background", "check_memory")
_OF_FLAGSCALE = (
    *("type", "backend", "hostfile", "enable_monitoring", "ssh_port", "no_shared_fs", "per_node_task"),
    *("enable_gpu_health_check", "heartbeat", "nsys_bin_path", "nsys_rep_file_path", "deploy"),
)
_MONITOR_KEYS = {*PERF_KEYS, *_HOST_PERF_KEYS}  # FlagScale's runner takes them in its own section, too
_COUNT = r"[1-9]\d{0,8}"
_FROM_ZERO = ("0|" + _COUNT, "a whole number from 0 on", "0")
# Option of torchrun -> what it may be, in a pattern and in words, and an example.
_TORCHRUN_VALUES = {
    "nproc_per_node": (
        f"{_COUNT}|auto|cpu|gpu|xpu|npu|mlu|musa",
        "a whole number above 0, auto, gpu or cpu",
        "8",
    ),
    "nnodes": (f"{_COUNT}(:{_COUNT})?", "a whole number above 0, or MIN:MAX", "2"),
    "node_rank": _FROM_ZERO,
    "max_restarts": _FROM_ZERO,
    "master_port": (
        r"\d{1,4}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5]",
        "a port from 0 to 65535",
        "29500",
    ),
}
_SUPPORTED = {
    "experiment.task.type": "train",
    "experiment.task.backend": "megatron",
    "experiment.runner.backend": "torchrun",
    "experiment.runner.type": "ssh",
}
_KNOWN = {
    "experiment": ("exp_name", "exp_dir", "seed", "task", "runner", "envs", "cmds"),
    "experiment.task": ("type", "backend", "entrypoint", "flagscale_root", "python"),
    "experiment.runner": (*_OF_RUN_PY, *_OF_FLAGSCALE, *_TORCHRUN_VALUES, *_MONITOR_KEYS),
}
_LONGEST_BYTES = 128 * 1024 - 1  # Linux: one argument, without its terminating NUL
_NUMBER = re.compile(r"-(\d+|\d*\.\d+)")
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Setting:
    """One option of the configuration.

    Attributes:
        path: where it is written, e.g. `train.system.perf_log_dir`.
        value: as yaml gave it; None leaves the option out.
    """

    path: str
    value: Any

    @property
    def texts(self) -> list[str]:
        """The value as arguments: one, or those of a list."""
        if self.value is None:
            return []
        return list(map(str, self.value)) if isinstance(self.value, list) else [str(self.value)]


Settings = dict[str, Setting]  # by key with underscores


@dataclass(frozen=True)
class Asked:
    """What a command asks for, and where; all that stopping a job needs.

    Attributes:
        action: one of `ACTIONS`.
        hostfile: where the machines of the job are listed; None for this machine alone.
        paths: of its files.
    """

    action: str
    hostfile: str | None
    paths: ExperimentPaths


@dataclass(frozen=True)
class Job(Asked):
    """The whole configuration.

    Attributes:
        name: `experiment.exp_name`; None without one.
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

    name: str | None
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

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables of a process that is started for the job in this environment."""
        return {name: text for name, text in {**environ, **self.env}.items() if text is not None}


class _Source:
    """The mapping, read by dotted paths."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def section(self, path: str) -> Mapping[str, Any]:
        """The section at a path; {} where it is absent or null."""
        found: Any = self._config
        for name in path.split("."):
            found = found.get(name)
            if found is None:
                return {}
            if not isinstance(found, Mapping):
                raise PerfError(
                    f"{path}: {name} is {found!r} and not a section of keys; see conf/train.yaml for the form"
                )
        return dict(found)

    def value(self, path: str, default: Any = None) -> Any:
        """The value at a path; the default where it is absent or null."""
        section, _, key = path.rpartition(".")
        value = (self.section(section) if section else self._config).get(key)
        return default if value is None else value

    def text(self, path: str) -> str | None:
        """None where it is absent or empty."""
        value = self.value(path)
        return str(value) if value else None

    def switch(self, path: str, default: bool) -> bool:
        value = self.value(path, default)
        if not isinstance(value, bool):
            raise PerfError(f"{path}: {value!r} is neither true nor false; write true or false")
        return value

    def directory(self, path: str, example: str) -> str:
        value = self.value(path)
        if (
            not isinstance(value, str)
            or not value.strip()
            or any(ord(c) < 32 or ord(c) == 127 for c in value)
        ):
            raise PerfError(f"{path}: {value!r} is not a directory name; write for example {path}={example}")
        return local(value, path)

    def file(self, path: str) -> str | None:
        """The path of a file or directory; None where it is absent or empty."""
        text = self.text(path)
        return None if text is None else local(text, path)


def read_asked(config: Mapping[str, Any], cwd: str) -> Asked:
    """What a command that was typed in `cwd` asks for. Raises PerfError for a wrong action or exp_dir."""
    given = _Source(config)
    action, log_dir = config.get("action", "run"), "train.system.logging.log_dir"
    if action not in ACTIONS:
        raise PerfError(
            f"action: {action!r} is not one of {', '.join(ACTIONS)}; write for example action=run"
        )
    paths = ExperimentPaths.of(
        given.directory("experiment.exp_dir", "./outputs"),
        None if given.value(log_dir) is None else given.directory(log_dir, "null"),
        cwd,
    )
    return Asked(action, given.file("experiment.runner.hostfile"), paths)


def read_job(config: Mapping[str, Any], cwd: str) -> Job:
    """The configuration of a command that was typed in `cwd`. Raises PerfError naming key, value and cure."""
    given = _Source(config)
    for path, known in _SUPPORTED.items():
        if (value := given.value(path, known)) != known:
            raise PerfError(
                f"{path}: {value!r} is not supported by this launcher, only {known!r};"
                " use FlagScale's own run.py for it"
            )
    for path, keys in _KNOWN.items():
        for key in given.section(path):
            if is_misspelt(str(key), keys):
                raise PerfError(f"{path}.{key}: there is no such key{did_you_mean(str(key), keys, 1)}")
    python, before_start = "experiment.task.python", "experiment.cmds.before_start"
    runner = given.section("experiment.runner")
    settings = _settings(given.value("train"), runner)
    return Job(
        **vars(read_asked(config, cwd)),
        name=given.text("experiment.exp_name"),
        flagscale_root=given.file("experiment.task.flagscale_root"),
        entrypoint=given.file("experiment.task.entrypoint"),
        python=local(as_text(given.value(python) or sys.executable, python), python),
        background=given.switch("experiment.runner.background", False),
        check_memory=given.switch("experiment.runner.check_memory", True),
        torchrun=_torchrun(runner),
        runner={key: runner[key] for key in runner if key not in _OF_RUN_PY and key not in _MONITOR_KEYS},
        env=_environment(given.section("experiment.envs")),
        before_start=as_text(given.value(before_start, ""), before_start),
        settings=settings,
    )


def _torchrun(section: Mapping[str, Any]) -> dict[str, str | None]:
    options: dict[str, str | None] = {}
    for key, value in section.items():
        path = f"experiment.runner.{key}"
        if key in _TORCHRUN_VALUES and value is not None:
            _check_torchrun(path, value, *_TORCHRUN_VALUES[key])
        if key in {*_OF_RUN_PY, *_OF_FLAGSCALE, *_MONITOR_KEYS} or value is None or value is False:
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


def _settings(train: Any, runner: Mapping[str, Any]) -> Settings:
    """Every option of the training script, in the order system, model, data; the monitor's may be in
    `experiment.runner` instead, as with FlagScale's own runner. Raises PerfError.
    """
    _check_sections(train)
    found: Settings = {}
    for name in SECTIONS:
        for key, setting in _leaves(train.get(name) or {}, f"train.{name}"):
            found[key] = _one_of(found.get(key), setting, key)
    for key, value in runner.items():
        if key in _MONITOR_KEYS and (key not in found or found[key].value is None):
            found[key] = Setting(f"experiment.runner.{key}", value)
    for key, setting in found.items():
        _check_setting(key, setting)
    return found


def _check_setting(key: str, setting: Setting) -> None:
    """Raises PerfError for what cannot stand on a command line, and for an unknown option of the monitor."""
    if isinstance(setting.value, list) and key not in PERF_KEYS:
        _check_list(setting)
    elif setting.value is not None:
        as_text(setting.value, setting.path)
    is_of_monitor = key.startswith(("perf_", "no_perf_")) or is_misspelt(key, PERF_KEYS)
    if is_of_monitor and key not in _MONITOR_KEYS and key not in _NEGATED:
        near = did_you_mean(key, PERF_KEYS, 1)
        raise PerfError(f"{setting.path}: the monitor has no such option{near}")


def _one_of(earlier: Setting | None, setting: Setting, key: str) -> Setting:
    """The setting that counts where one option is written in two places, which may not contradict."""
    if earlier is None or earlier.value is None:
        return setting
    if setting.value is None:
        return earlier
    if type(earlier.value) is not type(setting.value) or earlier.value != setting.value:
        raise PerfError(
            f"{earlier.path}={earlier.value!r} and {setting.path}={setting.value!r} both mean {flag_of(key)};"
            " remove one of them"
        )
    return setting


def _check_list(setting: Setting) -> None:
    if not setting.value:
        raise PerfError(
            f"{setting.path}: an empty list has no meaning on a command line; write null to leave the option"
            " out"
        )
    for index, value in enumerate(setting.value):
        path = f"{setting.path}[{index}]"
        text = as_text(value, path)
        if is_option_like(text):
            raise PerfError(
                f"{path}: {text!r} in a list would be taken for an option; begin it with another character,"
                " for example ./"
            )


def is_option_like(text: str) -> bool:
    """Whether argparse would take an argument for an option: it does not where it is a negative number."""
    return text.startswith("-") and not _NUMBER.fullmatch(text)


def _check_sections(train: Any) -> None:
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


def local(text: str, path: str) -> str:
    """A path with `~` expanded. Raises PerfError naming the key `path`."""
    try:
        return local_path(text)
    except PerfError as error:
        raise PerfError(f"{path}: {error}") from None


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
