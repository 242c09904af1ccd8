"""Everything about one job on this machine, decided and checked before anything is written or started."""

from __future__ import annotations

import os
import site
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import flagscale_perf
from flagscale_perf.arguments import PerfConfig, check_option, check_profile, unknown_variables
from flagscale_perf.launcher.config import Job
from flagscale_perf.launcher.flagscale_root import find_entrypoint, find_flagscale, import_paths
from flagscale_perf.launcher.paths import ExperimentPaths
from flagscale_perf.launcher.settings import HOST_PERF_KEYS, PERF_KEYS, Setting, Settings, option, to_argv
from flagscale_perf.spine.errors import PerfError, did_you_mean, is_misspelt
from flagscale_perf.training.figures import TABLE

_NEGATED = {f"no_{option.name}" for option in fields(PerfConfig) if isinstance(option.default, bool)}
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


@dataclass(frozen=True)
class Plan:
    """One job.

    Attributes:
        job: as it is configured.
        paths: where its files are.
        command: the whole torchrun command, program first.
        pythonpath: directories put before the caller's PYTHONPATH.
        perf: the monitor's options in force; perf_log_dir is absolute.
        settings: the training script's options, paths resolved.
        entrypoint: the training script, absolute.
        resolved: one line for each path that was not written as an absolute one.
    """

    job: Job
    paths: ExperimentPaths
    command: list[str]
    pythonpath: list[str]
    perf: PerfConfig
    settings: Settings
    entrypoint: str
    resolved: list[str]


def make_plan(job: Job, cwd: str, environ: Mapping[str, str]) -> Plan:
    """Decides everything and writes nothing. Raises PerfError for whatever cannot work."""
    paths = ExperimentPaths.of(job.directories, cwd)
    job_environ = {name: text for name, text in {**environ, **job.env}.items() if text is not None}
    _refuse_unknown(job, job_environ)
    _perf_settings(job.settings)  # before paths in them are resolved, so that a wrong one is shown as typed
    root = find_flagscale(job.flagscale_root, job_environ)
    entrypoint = find_entrypoint(job.entrypoint, root, cwd)
    settings, resolved = _resolve(_with_default_outputs(job.settings), paths, root)
    perf = perf_options(settings, paths, job_environ)
    settings["perf_log_dir"] = Setting("train.system.perf_log_dir", perf.perf_log_dir)
    torchrun = [job.python, "-m", "torch.distributed.run", *_torchrun_options(job.torchrun, paths)]
    command = [*torchrun, "-m", "flagscale_perf.launch", entrypoint, *to_argv(settings, perf)]
    pythonpath = [*(import_paths(root) if root else []), *_own_directory()]
    return Plan(job, paths, command, pythonpath, perf, settings, entrypoint, resolved)


def perf_options(settings: Settings, paths: ExperimentPaths, environ: Mapping[str, str]) -> PerfConfig:
    """The monitor's options, perf_log_dir absolute. Raises PerfError naming option, value and cure."""
    given = _perf_settings(settings)
    perf = PerfConfig.from_args({key: setting.value for key, setting in given.items()}, environ)
    _check_columns(perf)
    check_profile(perf, {key: settings[key].value for key in (*given, "profile") if key in settings})
    return replace(perf, perf_log_dir=paths.resolve(perf.perf_log_dir))


def _check_columns(perf: PerfConfig) -> None:
    try:
        TABLE.named(perf.columns())
    except PerfError as error:
        raise PerfError(f"perf_columns: {error}") from None


def _perf_settings(settings: Settings) -> Settings:
    """The monitor's options that have a value. Raises PerfError for a wrong one, by its path in the yaml."""
    given = {key: settings[key] for key in PERF_KEYS if key in settings and settings[key].value is not None}
    for key, setting in given.items():
        setting.text()  # refuses what is no single value
        check_option(key, setting.value, setting.path)
    return given


def _refuse_unknown(job: Job, environ: Mapping[str, str]) -> None:
    """What looks like an option of the monitor and is none would change nothing, and nobody would notice."""
    for key, setting in job.settings.items():
        of_monitor = key.startswith(("perf_", "no_perf_")) or is_misspelt(key, PERF_KEYS)
        if of_monitor and key not in (*PERF_KEYS, *HOST_PERF_KEYS) and key not in _NEGATED:
            raise PerfError(
                f"{setting.path}: the monitor has no such option{did_you_mean(key, PERF_KEYS, 1)}"
            )
    for name, wrong in unknown_variables(environ).items():
        where = f"experiment.envs.{name}" if name in job.env else f"environment variable {name}"
        raise PerfError(f"{where}: {wrong}")


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
        text = setting.text()
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


def _torchrun_options(torchrun: Mapping[str, str | None], paths: ExperimentPaths) -> list[str]:
    given = dict(torchrun)
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
    """Where this package is, unless the job's Python finds it there anyway."""
    directory = os.path.dirname(os.path.dirname(os.path.abspath(flagscale_perf.__file__)))
    return [] if directory in [*site.getsitepackages(), site.getusersitepackages()] else [directory]
