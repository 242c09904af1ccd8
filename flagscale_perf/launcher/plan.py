"""Everything about one job on this machine, decided and checked before anything is written or started."""

from __future__ import annotations

import os
import site
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import flagscale_perf
from flagscale_perf.arguments import PerfConfig, unknown_variables
from flagscale_perf.launcher.config import PERF_KEYS, Job, Setting, Settings, is_option_like, local
from flagscale_perf.launcher.flagscale_root import find_entrypoint, find_flagscale, import_paths
from flagscale_perf.launcher.paths import ExperimentPaths
from flagscale_perf.options.table import flag_of
from flagscale_perf.options.values import MAX_NAME, one_line
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.training.figures import TABLE

OUTPUT_KEYS = ("perf_log_dir", "save", "load", "tensorboard_dir", "wandb_save_dir")
_HOSTS_OWN = ("save", "load")  # Megatron opens addresses of its multi-storage client itself: msc://
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
        root: FlagScale's; None where it is not installed.
        command: the whole torchrun command, program first.
        pythonpath: directories put before the caller's PYTHONPATH.
        perf: the monitor's options in force; perf_log_dir is absolute.
        settings: the training script's options, paths resolved.
        entrypoint: the training script, absolute.
        resolved: one line for each path that was not written as an absolute one.
    """

    job: Job
    root: str | None
    command: list[str]
    pythonpath: list[str]
    perf: PerfConfig
    settings: Settings
    entrypoint: str
    resolved: list[str]


def make_plan(job: Job, environ: Mapping[str, str]) -> Plan:
    """Decides everything and writes nothing. Raises PerfError for whatever cannot work."""
    environ = job.environment(environ)
    perf = perf_options(job, environ)
    for name, wrong in unknown_variables(environ).items():
        raise PerfError(
            f"{'experiment.envs.' if name in job.env else 'environment variable '}{name}: {wrong}"
        )
    root = find_flagscale(job.flagscale_root, environ)
    entrypoint = find_entrypoint(job.entrypoint, root, job.paths.cwd)
    settings, resolved = _resolve(_with_default_outputs(job.settings), job.paths, root)
    settings["perf_log_dir"] = Setting("train.system.perf_log_dir", perf.perf_log_dir)
    return Plan(
        job,
        root,
        command=[
            *(job.python, "-m", "torch.distributed.run", *_torchrun_options(job)),
            *("-m", "flagscale_perf.launch", entrypoint, *to_argv(settings, perf), *_named(settings, perf)),
        ],
        pythonpath=[*(import_paths(root) if root else []), *_own_directory()],
        perf=perf,
        settings=settings,
        entrypoint=entrypoint,
        resolved=resolved,
    )


def perf_options(job: Job, environ: Mapping[str, str]) -> PerfConfig:
    """The monitor's options, perf_log_dir absolute. Raises PerfError naming option, value and cure."""
    settings = job.settings
    perf = PerfConfig.from_args(
        {key: setting.value for key, setting in settings.items()}, environ, lambda key: settings[key].path
    )
    try:
        TABLE.named(perf.columns())
    except PerfError as error:
        raise PerfError(f"perf_columns: {error}") from None
    name = None if job.name is None else one_line(job.name)[:MAX_NAME] or None
    return replace(
        perf,
        perf_log_dir=job.paths.resolve(perf.perf_log_dir),
        perf_run_name=name if perf.perf_run_name is None else perf.perf_run_name,
    )


def _named(settings: Settings, perf: PerfConfig) -> list[str]:
    """The experiment's name as the run's, where no other one is given."""
    is_given = settings.get("perf_run_name", Setting("", None)).value is not None
    return [] if is_given or perf.perf_run_name is None else option("--perf-run-name", perf.perf_run_name)


def _with_default_outputs(settings: Settings) -> Settings:
    """The directories FlagScale's runner gives a job that names none; a key that is there keeps its value,
    null included.
    """
    given = {key for key, setting in settings.items() if setting.value is not None}
    defaults = {"tensorboard_dir": "tensorboard"}
    if "save_interval" in given:
        defaults |= {"save": "checkpoints", "load": "checkpoints"}
    if "wandb_project" in given:
        defaults["wandb_save_dir"] = "wandb"
    return {**{key: Setting(f"train.system.{key}", value) for key, value in defaults.items()}, **settings}


def _resolve(settings: Settings, paths: ExperimentPaths, root: str | None) -> tuple[Settings, list[str]]:
    resolved, notes = dict(settings), []
    for key, setting in settings.items():
        is_file = key in _FILE_KEYS or key.endswith("_file")
        if setting.value is None or not (is_file or key in OUTPUT_KEYS):
            resolved[key] = Setting(setting.path, _at_home(key, setting))
            continue
        text = str(setting.value)
        if not text.strip():
            raise PerfError(f"{setting.path}: {text!r} is not a path; write one, or null to leave it out")
        if "://" in text and key in _HOSTS_OWN:
            continue
        path = local(text, setting.path)
        path = _input_file(path, paths.cwd, root) if is_file else paths.resolve(path)
        if path != text:
            notes.append(f"{setting.path}: {text} -> {path}")
            resolved[key] = Setting(setting.path, path)
    return resolved, notes


def _input_file(text: str, cwd: str, root: str | None) -> str:
    """FlagScale's examples name tokenizers by their place in FlagScale: the working directory goes first."""
    in_root = os.path.normpath(os.path.join(root or cwd, text))
    return in_root if not os.path.exists(os.path.join(cwd, text)) and os.path.exists(in_root) else text


def _at_home(key: str, setting: Setting) -> Any:
    """Another option's value with `~/` expanded, as no shell does that for the script. A directory is no
    address, of which the host would make a directory here; those of msc:// it opens itself.
    """
    is_directory = key.endswith(("_dir", "_cache_path"))

    def at_home(word: Any) -> Any:
        text = str(word)
        is_path = text.startswith("~/") or (is_directory and not text.startswith("msc://"))
        return local(text, setting.path) if isinstance(word, str) and is_path else word

    value = setting.value
    return [at_home(word) for word in value] if isinstance(value, list) else at_home(value)


def _torchrun_options(job: Job) -> list[str]:
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
            options += option(f"--{key}", _log_dir(job, text) if key == "log_dir" else text)
    return options


def _log_dir(job: Job, text: str) -> str:
    return job.paths.resolve(local(text, "experiment.runner.log_dir"))


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
