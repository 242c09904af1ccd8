"""Everything about one job on this machine, decided and checked before anything is written or started."""

from __future__ import annotations

import os
import site
from collections.abc import Mapping
from dataclasses import dataclass, replace

import flagscale_perf
from flagscale_perf.arguments import PerfConfig, unknown_variables
from flagscale_perf.launcher.config import PERF_KEYS, Directories, Job, Setting, Settings, is_option_like
from flagscale_perf.launcher.flagscale_root import find_entrypoint, find_flagscale, import_paths
from flagscale_perf.options.table import flag_of
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.training.figures import TABLE

OUTPUT_KEYS = ("perf_log_dir", "save", "load", "tensorboard_dir", "wandb_save_dir")
_FILE_KEYS = ("tokenizer_model", "tokenizer_path")  # and every *_file
_RENDEZVOUS = {
    "rdzv_backend",
    "rdzv_endpoint",
    "rdzv_conf",
    "master_addr",
    "master_port",
    "node_rank",
    "local_addr",
}


_HOST = "host_0_localhost"


@dataclass(frozen=True)
class ExperimentPaths:
    """The files of an experiment on this machine, named as FlagScale names them.

    Attributes:
        exp_dir: absolute.
        log_dir: absolute; `<exp_dir>/logs` unless the configuration says otherwise.
        cwd: the directory the command was typed in, absolute.
    """

    exp_dir: str
    log_dir: str
    cwd: str

    @classmethod
    def of(cls, directories: Directories, cwd: str) -> ExperimentPaths:
        """The files of these directories, as a command that was typed in `cwd` names them."""
        exp_dir = os.path.normpath(os.path.join(cwd, directories.exp_dir))
        if directories.log_dir is None:
            return cls(exp_dir, os.path.join(exp_dir, "logs"), cwd)
        return cls(exp_dir, cls(exp_dir, "", cwd).resolve(directories.log_dir), cwd)

    @property
    def script(self) -> str:
        """The bash script that starts the job."""
        return os.path.join(self.log_dir, "scripts", f"{_HOST}_run.sh")

    @property
    def output(self) -> str:
        """The file with what the last job wrote to stdout and stderr."""
        return os.path.join(self.log_dir, f"{_HOST}.output")

    @property
    def pid_file(self) -> str:
        """`PID STARTTIME` of the job's first process."""
        return os.path.join(self.log_dir, "pids", f"{_HOST}.pid")

    @property
    def exit_file(self) -> str:
        """The job's exit status, once it has one."""
        return os.path.join(self.log_dir, "pids", f"{_HOST}.exit")

    @property
    def stop_file(self) -> str:
        """Left by `action=stop` before its signal: the end of the job was the user's wish."""
        return os.path.join(self.log_dir, "pids", f"{_HOST}.stop")

    @property
    def lock_file(self) -> str:
        """Held while a job is being started."""
        return os.path.join(self.log_dir, "pids", f"{_HOST}.lock")

    def resolve(self, path: str) -> str:
        """An output path made absolute against the experiment directory.

        A relative path that names the experiment directory itself (`./outputs/logs` with exp_dir `./outputs`)
        is taken as typed: `outputs/outputs/logs` is never what was meant.
        """
        typed = os.path.normpath(os.path.join(self.cwd, path))
        if os.path.isabs(path) or (_inside(typed, self.exp_dir) and not _inside(self.cwd, self.exp_dir)):
            return typed
        return os.path.normpath(os.path.join(self.exp_dir, path))

    def shown(self, path: str) -> str:
        """An absolute path as it is written where the command was typed: relative, if it is below."""
        return os.path.relpath(path, self.cwd) if _inside(path, self.cwd) else path

    def make(self) -> None:
        """Creates the directories the launcher writes to. Raises PerfError where that cannot be done."""
        for directory in (os.path.dirname(self.script), os.path.dirname(self.pid_file)):
            try:
                os.makedirs(directory, exist_ok=True)
            except OSError as error:
                raise PerfError(
                    f"experiment.exp_dir: cannot create {directory!r}: {error.strerror}; give a directory"
                    " that can be written"
                ) from None


@dataclass(frozen=True)
class Plan:
    """One job.

    Attributes:
        job: as it is configured.
        paths: where its files are.
        root: FlagScale's; None where it is not installed.
        command: the whole torchrun command, program first.
        pythonpath: directories put before the caller's PYTHONPATH.
        perf: the monitor's options in force; perf_log_dir is absolute.
        settings: the training script's options, paths resolved.
        entrypoint: the training script, absolute.
        resolved: one line for each path that was not written as an absolute one.
    """

    job: Job
    paths: ExperimentPaths
    root: str | None
    command: list[str]
    pythonpath: list[str]
    perf: PerfConfig
    settings: Settings
    entrypoint: str
    resolved: list[str]


def make_plan(job: Job, cwd: str, environ: Mapping[str, str]) -> Plan:
    """Decides everything and writes nothing. Raises PerfError for whatever cannot work."""
    environ = {name: text for name, text in {**environ, **job.env}.items() if text is not None}
    paths = ExperimentPaths.of(job.directories, cwd)
    perf = perf_options(job.settings, paths, environ)
    for name, wrong in unknown_variables(environ).items():
        raise PerfError(
            f"{'experiment.envs.' if name in job.env else 'environment variable '}{name}: {wrong}"
        )
    root = find_flagscale(job.flagscale_root, environ)
    entrypoint = find_entrypoint(job.entrypoint, root, cwd)
    settings, resolved = _resolve(_with_default_outputs(job.settings), paths, root)
    settings["perf_log_dir"] = Setting("train.system.perf_log_dir", perf.perf_log_dir)
    return Plan(
        job,
        paths,
        root,
        command=[
            *(job.python, "-m", "torch.distributed.run", *_torchrun_options(job, paths)),
            *("-m", "flagscale_perf.launch", entrypoint, *to_argv(settings, perf)),
        ],
        pythonpath=[*(import_paths(root) if root else []), *_own_directory()],
        perf=perf,
        settings=settings,
        entrypoint=entrypoint,
        resolved=resolved,
    )


def perf_options(settings: Settings, paths: ExperimentPaths, environ: Mapping[str, str]) -> PerfConfig:
    """The monitor's options, perf_log_dir absolute. Raises PerfError naming option, value and cure."""
    perf = PerfConfig.from_args(
        {key: setting.value for key, setting in settings.items()}, environ, lambda key: settings[key].path
    )
    try:
        TABLE.named(perf.columns())
    except PerfError as error:
        raise PerfError(f"perf_columns: {error}") from None
    return replace(perf, perf_log_dir=paths.resolve(perf.perf_log_dir))


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
        text = str(setting.value)
        if not text.strip():
            raise PerfError(f"{setting.path}: {text!r} is not a path; write one, or null to leave it out")
        path = _input_file(text, paths.cwd, root) if is_file else paths.resolve(text)
        if path != text:
            notes.append(f"{setting.path}: {text} -> {path}")
            resolved[key] = Setting(setting.path, path)
    return resolved, notes


def _input_file(text: str, cwd: str, root: str | None) -> str:
    """FlagScale's examples name tokenizers by their place in FlagScale: the working directory goes first."""
    in_root = os.path.normpath(os.path.join(root or cwd, text))
    return in_root if not os.path.exists(os.path.join(cwd, text)) and os.path.exists(in_root) else text


def _torchrun_options(job: Job, paths: ExperimentPaths) -> list[str]:
    given = dict(job.torchrun)
    given.setdefault("nproc_per_node", "1")
    options: list[str] = []
    if not _RENDEZVOUS & given.keys():
        if given.pop("nnodes", "1") not in ("1", "1:1"):
            raise PerfError(
                "experiment.runner.nnodes: several machines need experiment.runner.hostfile=FILE, or else"
                " experiment.runner.rdzv_endpoint=HOST:PORT and this command on each of them"
            )
        given.pop("rdzv_id", None)
        options.append("--standalone")
    for key, text in given.items():
        if text is None:
            options.append(f"--{key}")
        else:
            options += option(f"--{key}", paths.resolve(text) if key == "log_dir" else text)
    return options


def _own_directory() -> list[str]:
    """The directory of this package, unless the job's Python finds it anyway."""
    directory = os.path.dirname(os.path.dirname(os.path.abspath(flagscale_perf.__file__)))
    return [] if directory in [*site.getsitepackages(), site.getusersitepackages()] else [directory]


def to_argv(settings: Settings, perf: PerfConfig) -> list[str]:
    """The training script's arguments. Options of the monitor are taken from `perf`, where they are checked.

    `true` is the bare flag. `false` is the absent flag; for an option of the monitor it is `--no-...`,
    because some are on by default.
    """
    argv: list[str] = []
    for key, setting in settings.items():
        if setting.value is None:
            continue
        value = getattr(perf, key) if key in PERF_KEYS else setting.value
        if value is True:
            argv.append(flag_of(key))
        elif value is False:
            argv += [flag_of("no_" + key)] if key in PERF_KEYS else []
        elif isinstance(value, list):
            argv += [flag_of(key), *setting.texts]
        else:
            argv += option(flag_of(key), str(value))
    return argv


def option(flag: str, text: str) -> list[str]:
    """`--flag text`, or `--flag=text` where the text could be taken for another option."""
    return [f"{flag}={text}"] if is_option_like(text) else [flag, text]


def _inside(path: str, directory: str) -> bool:
    return os.path.commonpath([path, directory]) == directory
