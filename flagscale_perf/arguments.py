"""Options: one dataclass is the source of the flags, the environment variables and the yaml keys.

    field  perf_log_interval
    flag   --perf-log-interval N
    env    FLAGSCALE_PERF_LOG_INTERVAL
    yaml   train.system.perf_log_interval

A flag wins over the environment, the environment over the default. Imports neither torch nor Megatron.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from typing import Any

from flagscale_perf.device.peak_option import PeakOption
from flagscale_perf.spine import stop_note
from flagscale_perf.spine.address import parse_address
from flagscale_perf.spine.delays import Delays
from flagscale_perf.spine.errors import PerfError, did_you_mean
from flagscale_perf.spine.steps import Steps, parse_ranks
from flagscale_perf.spine.units import for_stdout

ENV_PREFIX = "FLAGSCALE_PERF_"
# Variables between parts of the package, not options; the first is set by `launcher/entrypoint.py`.
_OWN_VARIABLES = (
    "FLAGSCALE_PERF_ENTRYPOINT",
    stop_note.VARIABLE,
    *(f"{ENV_PREFIX}PROFILE_{word}" for word in ("DIR", "JOB", "EVENTS")),  # of `profile/options.py`
)
REHEARSAL_MODES = ("auto", "always", "never")
REPLACE, KEEP = HOST_MONITOR_MODES = ("replace", "keep")
GROUP_TITLE = "flagscale_perf"
_TRUE, _FALSE = {"1", "true", "yes", "on", "y", "t"}, {"0", "false", "no", "off", "n", "f"}
MAX_CAPTURE_STEPS = 1000
_UNSET = {"none", "null"}  # what yaml `null` becomes on FlagScale's command line
# Megatron prints every parsed argument, and a path that stdout cannot encode would end the job there. Such a
# value is handed to the host with escapes: what the host has got -> what was typed.
_typed: dict[str, Any] = {}


def parse_bool(text: str) -> bool:
    """True for "true", "1", "yes" or "on", False for their opposites, in any case. Raises PerfError."""
    word = str(text).strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise PerfError(f"{text!r} is neither true nor false; write true or false")


def _whole(least: int, most: int, example: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(str(text).strip())
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise PerfError(
                f"{text!r} is not a whole number from {least} to {most}; write for example {example}"
            )
        return number

    return parse


_parse_count = _whole(1, 1_000_000_000, 10)


def _canonical(parse: Callable[[str], object]) -> Callable[[str], str]:
    return lambda text: str(parse(str(text)))


def _parse_profile_ranks(text: str) -> str:
    ranks = str(text).strip()
    if not parse_ranks(ranks):
        raise PerfError(f"{text!r} is not a list of ranks; write for example 0,2-3")
    return ranks


def _parse_peak(text: str) -> str:
    peak = str(text).strip()
    PeakOption.parse(peak)
    return peak


def _parse_port(text: str) -> str:
    address = str(text).strip()
    parse_address(address)
    return address


def _parse_textfile(text: str) -> str:
    path = _parse_directory(text)
    if not os.path.isabs(path) or not path.endswith(".prom"):
        raise PerfError(
            f"{text!r} is not an absolute path that ends in .prom; write for example"
            " /var/lib/node_exporter/flagscale_perf.prom"
        )
    return path


def _parse_percent(text: str) -> float:
    try:
        number = float(str(text).strip())
    except ValueError:
        number = math.nan
    if not 0 < number <= 100:
        raise PerfError(f"{text!r} is not a number of percent above 0 and up to 100; write for example 0.1")
    return number


def _parse_directory(text: str) -> str:
    path = str(text)
    if not path.strip() or any(ord(char) < 32 or ord(char) == 127 for char in path):
        raise PerfError(f"{text!r} is not a usable directory name; write for example logs/perf_monitor")
    return path


def _parse_columns(text: str) -> str:
    keys = [key.strip().lower() for key in str(text).split(",")]
    if not all(re.fullmatch(r"[a-z][a-z0-9_]*", key) for key in keys):
        raise PerfError(
            f"{text!r} is not a list of figures; write for example tokens_per_s,mfu,forward_ms: the keys are"
            " in docs/metrics.md"
        )
    return ",".join(dict.fromkeys(keys))


def _word_of(words: Sequence[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if str(text) not in words:
            raise PerfError(f"{text!r} is not one of {', '.join(words)}; write for example {words[0]}")
        return str(text)

    return parse


def _option(default: Any, parse: Callable[[str], Any], help_text: str, metavar: str = "") -> Any:
    return field(default=default, metadata={"parse": parse, "help": help_text, "metavar": metavar})


@dataclass(frozen=True)
class PerfConfig:
    """Every option of the monitor, checked. Its field's name gives flag, variable and yaml key."""

    enable_perf_monitor: bool = _option(False, parse_bool, "switch the performance monitor on")
    perf_log_interval: int = _option(10, _parse_count, "iterations between two lines of the log", "N")
    perf_log_dir: str = _option(
        "logs/perf_monitor",
        _parse_directory,
        "directory of the monitor's files, the same on all nodes",
        "PATH",
    )
    perf_log_first: bool = _option(False, parse_bool, "begin the log with a line of iteration 1 alone")
    perf_console_output: bool = _option(False, parse_bool, "print the log's lines to the console, too")
    perf_memory_tracking: bool = _option(True, parse_bool, "record device memory")
    perf_breakdown: bool = _option(False, parse_bool, "split the iteration's time into phases, and show them")
    perf_columns: str | None = _option(
        None,
        _parse_columns,
        "columns of the text logs after time and step, by the figures' keys, such as tokens_per_s,mfu",
        "KEY,...",
    )
    perf_capture_steps: int | None = _option(
        None, _whole(1, MAX_CAPTURE_STEPS, 20),
        "keep the raw marks of all ranks for N steps soon after the start; needs --perf-breakdown", "N",
    )  # fmt: skip
    perf_profile_steps: str | None = _option(
        None,
        _canonical(Steps.parse),
        "profile these iterations by layer and operator, with clean ones between them: 20-22 are three from"
        " 20 on, 20-22/100 three in every 100",
        "STEPS",
    )
    perf_profile_ranks: str | None = _option(
        None, _parse_profile_ranks, "profile only these ranks, such as 0,2-3; all without it", "RANKS"
    )
    perf_profile_clean: int = _option(
        1,
        _whole(0, 100, 1),
        "iterations left clean beside each profiled one, to see what profiling costs",
        "N",
    )
    perf_profile_shapes: bool = _option(
        True, parse_bool, "profile one more iteration with shapes, for FLOPs and bytes of every operator"
    )
    perf_profile_memory: bool = _option(True, parse_bool, "profile allocations of memory, too")
    perf_profile_causal: str | None = _option(
        None, _canonical(Delays.parse),
        "after the profiled iterations, slow some down on purpose, to see how much of a delay the step"
        " feels: 1:decoder.layers.0,ms=5/10/20", "DELAYS",
    )  # fmt: skip
    perf_max_log_files: int = _option(10, _parse_count, "keep the files of the newest N sessions", "N")
    perf_peak_tflops: str | None = _option(
        None,
        _parse_peak,
        "dense peak of one device in TFLOP/s, or NAME=TFLOPS,... for each type; overrides the built-in table",
        "TFLOPS",
    )
    perf_max_overhead: float = _option(
        0.1,
        _parse_percent,
        "percent of the training time the monitor may take; above it, it switches parts of itself off",
        "PERCENT",
    )
    perf_prometheus_port: str | None = _option(
        None,
        _parse_port,
        "serve metrics to Prometheus on this port of 127.0.0.1, or at HOST:PORT",
        "PORT",
    )
    perf_prometheus_textfile: str | None = _option(
        None,
        _parse_textfile,
        "keep this .prom file for node_exporter's textfile collector; an absolute path",
        "PATH",
    )
    perf_csv: bool = _option(False, parse_bool, "write a table of the intervals, too: perf_intervals_*.csv")
    perf_wandb: bool = _option(
        False, parse_bool, "log to the host's own W&B run, where it has one in rank 0's process"
    )
    perf_host_monitor: str = _option(
        REPLACE,
        _word_of(HOST_MONITOR_MODES),
        "a monitor of the host's own, as FlagScale's main branch has: replace it, or keep it beside this one",
        "{replace,keep}",
    )
    rehearse_on_cpu: str = _option(
        "auto",
        _word_of(REHEARSAL_MODES),
        "let torch.cuda calls land on the CPU: auto (only without a GPU), always or never",
        "{auto,always,never}",
    )
    perf_debug: bool = _option(False, parse_bool, "print the traceback of a failure inside the monitor, too")

    def __post_init__(self) -> None:
        """Checks every value as if it had been typed. Raises PerfError naming option and value."""
        for option in fields(self):
            value = getattr(self, option.name)
            if value is not None or option.default is not None:
                object.__setattr__(self, option.name, _checked(option, value, flag_of(option.name)))

    @classmethod
    def from_args(cls, args: Any, environ: Mapping[str, str] | None = None) -> PerfConfig:
        """From the host's parsed arguments, a namespace or a mapping.

        What is missing or None there is taken from the environment, else the default. Raises PerfError.
        """
        given = args if isinstance(args, Mapping) else vars(args)
        values = _from_environment(os.environ if environ is None else environ)
        values |= {f.name: given[f.name] for f in fields(cls) if not _is_unset(given.get(f.name))}
        return cls(
            **{
                name: _typed.get(value, value) if isinstance(value, str) else value
                for name, value in values.items()
            }
        )

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> PerfConfig:
        """From the result of `as_dict` of any version: a missing or invalid option gets its default."""
        values = {}
        for option in fields(cls):
            with contextlib.suppress(PerfError):
                if (value := options.get(option.name)) is not None:
                    values[option.name] = _checked(option, value, option.name)
        return cls(**values)

    def columns(self) -> list[str]:
        """The keys of the figures chosen as columns of the text logs; empty if none were chosen."""
        return self.perf_columns.split(",") if self.perf_columns else []

    def as_dict(self) -> dict[str, Any]:
        """Field name to value, JSON-ready."""
        return asdict(self)


def flag_of(name: str) -> str:
    """`perf_log_dir` -> `--perf-log-dir`."""
    return "--" + name.replace("_", "-")


def env_of(name: str) -> str:
    """`perf_log_dir` -> FLAGSCALE_PERF_LOG_DIR, `enable_perf_monitor` -> FLAGSCALE_PERF_ENABLE_MONITOR."""
    return ENV_PREFIX + name.replace("perf_", "").upper()


def unknown_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that look like options but are not, each with what is wrong about it."""
    options = [env_of(option.name) for option in fields(PerfConfig)]
    return {
        name: f"no option of the monitor has this variable{did_you_mean(name, options, 1, ENV_PREFIX)}"
        for name in sorted(environ)
        if name.startswith(ENV_PREFIX) and name not in options and name not in _OWN_VARIABLES
    }


def check_option(name: str, value: Any, label: str) -> None:
    """Raises PerfError beginning with `label` for a value that the option cannot have."""
    if not _is_unset(value):
        _checked(next(option for option in fields(PerfConfig) if option.name == name), value, label)


def check_profile(config: PerfConfig, given: Mapping[str, Any]) -> None:
    """Raises PerfError for invalid profiling options. `given`: the arguments as typed, including the host's
    own.
    """
    steps, ranks = given.get("perf_profile_steps"), given.get("perf_profile_ranks")
    if not _is_unset(steps) and not config.enable_perf_monitor:
        raise PerfError(
            f"--perf-profile-steps {steps}: nothing is profiled without the monitor; add"
            " --enable-perf-monitor"
        )
    if not _is_unset(ranks) and config.perf_profile_steps is None:
        raise PerfError(
            f"--perf-profile-ranks {ranks}: of no steps; add for example --perf-profile-steps 20-22"
        )
    _check_causal(config, given.get("perf_profile_causal"))
    if config.enable_perf_monitor and config.perf_profile_steps is not None and given.get("profile"):
        raise PerfError(
            f"--perf-profile-steps {config.perf_profile_steps} and the host's own --profile: two profilers"
            " take each other's events; leave one of them out"
        )


def _check_causal(config: PerfConfig, causal: Any) -> None:
    if _is_unset(causal):
        return
    said, ranks = f"--perf-profile-causal {causal}", parse_ranks(config.perf_profile_ranks or "")
    if config.perf_profile_steps is None:
        raise PerfError(
            f"{said}: there are no profiled steps before it; add for example --perf-profile-steps 20-22"
        )
    if ranks and not ranks.issuperset(place.rank for place in Delays.parse(causal).places):
        raise PerfError(f"{said}: not all of its ranks are in --perf-profile-ranks; add them there")


def add_perf_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Adds every option to the host's parser, once. Returns the parser.

    A flag that the host defines itself is left to the host; its value is read from the same attribute.
    A wrong value is the parser's usage error, before training.
    """
    group = parser.add_argument_group(GROUP_TITLE, "performance monitor")
    for option in fields(PerfConfig):
        flag = flag_of(option.name)
        if not _knows(parser, flag):
            _add_option(group, option, flag)
        if isinstance(option.default, bool) and not _knows(parser, _negated(flag)):
            group.add_argument(
                _negated(flag),
                dest=option.name,
                action="store_const",
                const=False,
                default=argparse.SUPPRESS,
                help=f"same as {flag} false",
            )
    if not _knows(parser, "--tensorboard"):
        group.add_argument(
            "--tensorboard",
            action="store_true",
            help="accepted for convenience; --tensorboard-dir says where",
        )
    return parser


def _add_option(group: argparse._ArgumentGroup, option: Field[Any], flag: str) -> None:
    extra: dict[str, Any] = {"metavar": option.metadata["metavar"]}
    if isinstance(option.default, bool):
        extra = {"nargs": "?", "const": True, "metavar": "true|false"}
    origin = f"(default: {option.default}; environment: {env_of(option.name)})"
    group.add_argument(
        flag,
        dest=option.name,
        default=None,  # so that a flag not given differs from one that repeats the default
        type=_argparse_type(option),
        help=f"{option.metadata['help']} {origin}",
        **extra,
    )


def _argparse_type(option: Field[Any]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        """The option's value; None if the text stands for "not set"."""
        if _is_unset(text):
            return None
        try:
            return _for_host(option.metadata["parse"](text))
        except PerfError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _for_host(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    shown = for_stdout(value)
    if shown != value:
        _typed[shown] = value
    return shown


def _negated(flag: str) -> str:
    return "--no-" + flag.removeprefix("--")


def _knows(parser: argparse.ArgumentParser, flag: str) -> bool:
    return flag in parser._option_string_actions  # argparse has no public way to ask


def _is_unset(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in _UNSET)


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for option in fields(PerfConfig):
        name = env_of(option.name)
        text = environ.get(name, "")
        if text != "" and not _is_unset(text):
            found[option.name] = _checked(option, text, name)
    return found


def _checked(option: Field[Any], value: Any, name: str) -> Any:
    if isinstance(option.default, bool) and isinstance(value, bool):
        return value
    try:
        return option.metadata["parse"](value)
    except PerfError as error:
        raise PerfError(f"{name}: {error}") from None


assert all(option.default is not MISSING for option in fields(PerfConfig))
