"""The monitor's options: one row each, from which flag, environment variable, yaml key and docs follow.

    field  perf_log_interval
    flag   --perf-log-interval N
    env    FLAGSCALE_PERF_LOG_INTERVAL
    yaml   train.system.perf_log_interval

A flag overrides the environment, which overrides the default. Imports neither torch nor Megatron.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_type_hints

from flagscale_perf.options.peak import PeakOption
from flagscale_perf.options.table import (
    ENV_PREFIX,
    add_arguments,
    env_of,
    flag_of,
    from_arguments,
    from_environment,
    is_unset,
    knows,
    option,
    rows_of,
)
from flagscale_perf.options.values import (
    Steps,
    above_zero,
    absolute_path,
    command,
    http_url,
    keys,
    one_of,
    parse_address,
    parse_bool,
    parse_ranks,
    path,
    run_name,
    whole,
    words_for,
)
from flagscale_perf.spine import stop_note
from flagscale_perf.spine.errors import PerfError, did_you_mean

__all__ = ["PerfConfig", "add_perf_arguments", "env_of", "flag_of", "unknown_variables"]

# Variables between parts of the package, not options; the first is set by `launcher/entrypoint.py`.
_OWN_VARIABLES = (
    "FLAGSCALE_PERF_ENTRYPOINT",
    stop_note.VARIABLE,
    *(f"{ENV_PREFIX}PROFILE_{word}" for word in ("DIR", "JOB")),  # of `profile/options.py`
)
REHEARSAL_MODES = ("auto", "always", "never")
REPLACE, KEEP = HOST_MONITOR_MODES = ("replace", "keep")
TEXT, JSON, BOTH = LOG_FORMATS = ("text", "json", "both")
MAX_CAPTURE_STEPS = 1000
_COUNT = whole(1, 1_000_000_000, 10)


@dataclass(frozen=True)
class PerfConfig:
    """Every option of the monitor. `from_args` checks the values; the constructor takes them as they are."""

    enable_perf_monitor: bool = option(False, parse_bool, "switch the performance monitor on")
    perf_log_interval: int = option(10, _COUNT, "iterations between two lines of the log", metavar="N")
    perf_log_dir: str = option(
        "logs/perf_monitor",
        path("logs/perf_monitor"),
        "directory of the monitor's files, the same on all nodes",
        metavar="PATH",
    )
    perf_log_first: bool = option(False, parse_bool, "log iteration 1 on a line of its own first")
    perf_console_output: bool = option(False, parse_bool, "print the log's lines to the console, too")
    perf_memory_tracking: bool = option(True, parse_bool, "record device memory")
    perf_breakdown: bool = option(False, parse_bool, "split the iteration's time into phases, and show them")
    perf_columns: str | None = option(
        None,
        keys("figures", "tokens_per_s,mfu,forward_ms: the keys are in docs/metrics.md"),
        "columns of the text logs after time and step, by the figures' keys, such as tokens_per_s,mfu",
        metavar="KEY,...",
    )
    perf_capture_steps: int | None = option(
        None,
        whole(0, MAX_CAPTURE_STEPS, 20),
        "keep the raw marks of all ranks for N steps soon after the start; needs --perf-breakdown. Unset: for"
        " seven once the run has settled, and when a rank is late; 0: for none",
        metavar="N",
    )
    perf_profile_steps: str | None = option(
        None,
        lambda text: str(Steps.parse(text)),
        "profile these iterations by layer and operator, with clean ones between them: 20-31 are twelve from"
        " 20 on, 20-31/200 twelve in every 200",
        metavar="STEPS",
    )
    perf_profile_ranks: str | None = option(
        None,
        words_for(parse_ranks),
        "profile only these ranks, such as 0,2-3; all without it",
        metavar="RANKS",
    )
    perf_profile_clean: int = option(
        1,
        whole(0, 100, 1),
        "iterations left clean beside each profiled one, to see what profiling costs",
        metavar="N",
    )
    perf_profile_shapes: bool = option(
        True, parse_bool, "profile one more iteration with shapes, for FLOPs and bytes of every operator"
    )
    perf_profile_memory: bool = option(True, parse_bool, "profile allocations of memory, too")
    perf_max_log_files: int = option(10, _COUNT, "keep the files of the newest N trainings", metavar="N")
    perf_peak_tflops: str | None = option(
        None,
        words_for(PeakOption.parse),
        "dense peak of one device in TFLOP/s, or NAME=TFLOPS,... for each type; overrides the built-in table",
        metavar="TFLOPS",
    )
    perf_max_overhead: float = option(
        0.1,
        above_zero(100, "0.1", " of percent"),
        "percent of the training time the monitor may take; above it, it switches parts of itself off",
        metavar="PERCENT",
    )
    perf_prometheus_port: str | None = option(
        None,
        words_for(parse_address),
        "serve metrics to Prometheus on this port of 127.0.0.1, or at HOST:PORT",
        metavar="PORT",
    )
    perf_prometheus_textfile: str | None = option(
        None,
        absolute_path(".prom", "/var/lib/node_exporter/flagscale_perf.prom"),
        "keep this .prom file for node_exporter's textfile collector; an absolute path",
        metavar="PATH",
    )
    perf_csv: bool = option(False, parse_bool, "write a table of the intervals, too: perf_intervals_*.csv")
    perf_wandb: bool = option(
        False, parse_bool, "log to the host's own W&B run, where it has one in rank 0's process"
    )
    perf_host_monitor: str = option(
        REPLACE,
        one_of(*HOST_MONITOR_MODES),
        "a monitor of the host's own, as FlagScale's main branch has: replace it, or keep it beside this one",
        metavar="{replace,keep}",
    )
    rehearse_on_cpu: str = option(
        "auto",
        one_of(*REHEARSAL_MODES),
        "let torch.cuda calls land on the CPU: auto (only without a GPU), always or never",
        metavar="{auto,always,never}",
    )
    perf_debug: bool = option(False, parse_bool, "print the traceback of a failure inside the monitor, too")
    perf_log_format: str = option(
        BOTH,
        one_of(*LOG_FORMATS),
        "logs beside the run file: text (perf_metrics, perf_realtime), json (perf_summary) or both",
        metavar="{text,json,both}",
    )
    perf_straggler_threshold: float | None = option(
        None,
        above_zero(1000, "10", " of percent"),
        "percent of a step from which a rank that works longer than its peers is named: 5 while the training"
        " lasts and 1 in reports without it",
        metavar="PERCENT",
    )
    perf_ranks_gb: int | None = option(
        None,
        whole(0, 1_000_000, 50),
        "keep the newest GB of what every rank sends, 40 to 70 bytes a rank and step; without it 4 where the"
        " job has more than 256 ranks, else 0",
        metavar="GB",
    )
    perf_on_finding: str | None = option(
        None,
        command,
        "start this when a finding begins, worsens or ends while the training lasts, with the finding as JSON"
        " on its standard input",
        metavar="COMMAND",
    )
    perf_otlp: str | None = option(
        None,
        http_url("/v1/metrics", "http://collector:4318"),
        "send metrics of all ranks to this OpenTelemetry collector, by OTLP over HTTP",
        metavar="URL",
    )
    perf_run_name: str | None = option(
        None,
        run_name,
        "name of the run in lists of runs; without it the host's own exp_name, if any",
        metavar="NAME",
    )

    @classmethod
    def from_args(
        cls, args: Any, environ: Mapping[str, str] | None = None, label: Callable[[str], str] = flag_of
    ) -> PerfConfig:
        """Reads the host's parsed arguments, a namespace or a mapping; every value is checked.

        An option that is missing or None there comes from the environment, else the default. Raises PerfError
        beginning with the variable, or with the label of the option's name.
        """
        given = args if isinstance(args, Mapping) else vars(args)
        values = from_environment(cls, os.environ if environ is None else environ)
        config = cls(**values | from_arguments(cls, given, label))
        _check_profile(config, given)
        _check_reach(config, given)
        return config

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> PerfConfig:
        """Reads the result of `as_dict` of any version: an option that is missing or of another type has its
        default. The values were checked when they were written.
        """
        types = get_type_hints(cls)
        known = {name: value for name, value in options.items() if isinstance(value, types.get(name, ()))}
        return cls(
            **{name: value for name, value in known.items() if type(value) is not bool or types[name] is bool}
        )

    def columns(self) -> list[str]:
        """The keys of the figures chosen as columns of the text logs; empty if none were chosen."""
        return self.perf_columns.split(",") if self.perf_columns else []

    @property
    def left_out(self) -> Collection[str]:
        """Those of a session's files, see `spine.session.file_names`, that `perf_log_format` leaves out."""
        return {TEXT: ("summary",), JSON: ("metrics", "realtime")}.get(self.perf_log_format, ())

    def as_dict(self) -> dict[str, Any]:
        """Field name to value, as JSON has them."""
        return asdict(self)


def unknown_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that look like options but are not, each with what is wrong about it."""
    options = [row.variable for row in rows_of(PerfConfig).values()]
    return {
        name: f"no option of the monitor has this variable{did_you_mean(name, options, 1, ENV_PREFIX)}"
        for name in sorted(environ)
        if name.startswith(ENV_PREFIX) and name not in options and name not in _OWN_VARIABLES
    }


def _check_profile(config: PerfConfig, given: Mapping[str, Any]) -> None:
    steps, ranks = given.get("perf_profile_steps"), given.get("perf_profile_ranks")
    if not is_unset(steps) and not config.enable_perf_monitor:
        raise PerfError(
            f"--perf-profile-steps {steps}: nothing is profiled without the monitor; add"
            " --enable-perf-monitor"
        )
    if not is_unset(ranks) and config.perf_profile_steps is None:
        raise PerfError(
            f"--perf-profile-ranks {ranks}: of no steps; add for example --perf-profile-steps 20-31"
        )
    if config.enable_perf_monitor and config.perf_profile_steps is not None and given.get("profile"):
        raise PerfError(
            f"--perf-profile-steps {config.perf_profile_steps} and the host's own --profile: two profilers"
            " take each other's events; leave one of them out"
        )


def _check_reach(config: PerfConfig, given: Mapping[str, Any]) -> None:
    """Raises PerfError for what is asked of iterations or ranks that this training cannot have. Where its end
    is not known beforehand, what was not reached is said at its end.
    """
    last, why = _last_iteration(given)
    world_size = given.get("world_size")
    if not config.enable_perf_monitor:
        return
    if last is not None and config.perf_profile_steps is not None:
        first = Steps.parse(config.perf_profile_steps).first
        if first > last:
            raise PerfError(
                f"--perf-profile-steps {config.perf_profile_steps}: the training ends at iteration {last}"
                f" ({why}); write steps from 1 to {last}"
            )
    if isinstance(world_size, int) and config.perf_profile_ranks is not None:
        absent = sorted(rank for rank in parse_ranks(config.perf_profile_ranks) if rank >= world_size)
        if absent:
            raise PerfError(
                f"--perf-profile-ranks {config.perf_profile_ranks}: there is no rank {absent[0]}; write ranks"
                f" from 0 to {world_size - 1}"
            )


def _last_iteration(given: Mapping[str, Any]) -> tuple[int | None, str]:
    """The last iteration that the host's options allow, as far as they fix it, and which option does."""
    ends: list[tuple[int, str]] = []
    sizes = {
        key: given.get(key) for key in ("train_iters", "train_samples", "global_batch_size", "exit_interval")
    }
    known = {key: size for key, size in sizes.items() if type(size) is int and size > 0}
    if "train_iters" in known:
        ends.append((known["train_iters"], f"--train-iters {known['train_iters']}"))
    if {"train_samples", "global_batch_size"} <= known.keys() and given.get("rampup_batch_size") is None:
        samples, batch = known["train_samples"], known["global_batch_size"]
        ends.append((samples // batch, f"--train-samples {samples}, {batch} each"))
    if "exit_interval" in known and given.get("load") is None:  # a checkpoint may be at any iteration
        ends.append((known["exit_interval"], f"--exit-interval {known['exit_interval']}"))
    return min(ends, default=(None, ""))


def add_perf_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Adds every option to the host's parser, once. Returns the parser.

    A flag that the host defines itself is left to the host; its value is read from the same attribute.
    A wrong value is the parser's usage error, before training.
    """
    add_arguments(parser, PerfConfig, "flagscale_perf", "performance monitor")
    if not knows(parser, "--tensorboard"):
        parser.add_argument(
            "--tensorboard",
            action="store_true",
            help="accepted for convenience; --tensorboard-dir says where",
        )
    return parser
