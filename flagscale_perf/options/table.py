"""One row of an options table, and what follows from it: argparse, environment, yaml, docs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.units import for_stdout

ENV_PREFIX = "FLAGSCALE_PERF_"
_UNSET = {"none", "null"}  # what yaml `null` becomes on a host's command line
# Megatron prints every parsed argument, and text that stdout cannot encode would end the job there. The host
# gets such a value with escapes: what the host has -> what was typed.
_typed: dict[str, str] = {}


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        name: of the field, and the yaml key.
        default: its value where it is not set; None where it is made later.
        parse: from text, or from what yaml makes of it, to the value. Raises PerfError with the wrong value
            and what to write.
        help: one line.
        variable: its environment variable.
        metavar: what stands for the value in the usage.
    """

    name: str
    default: Any
    parse: Callable[[Any], Any]
    help: str
    variable: str
    metavar: str

    @property
    def flag(self) -> str:
        """`--perf-log-dir` for `perf_log_dir`."""
        return flag_of(self.name)

    @property
    def is_switch(self) -> bool:
        """Whether it is true or false."""
        return isinstance(self.default, bool)

    def read(self, value: Any, label: str) -> Any:
        """The value of a text, or of what yaml makes of one. Raises PerfError beginning with `label`."""
        try:
            return value if self.is_switch and isinstance(value, bool) else self.parse(value)
        except PerfError as error:
            raise PerfError(f"{label}: {error}") from None


def option(
    default: Any, parse: Callable[[Any], Any], help_text: str, variable: str = "", metavar: str = ""
) -> Any:
    """A field of a dataclass that is an option. A `default` to be called makes the value. `variable`: "" for
    the one that follows from the field's name (`env_of`).
    """
    row = {"parse": parse, "help": help_text, "variable": variable, "metavar": metavar}
    if callable(default):
        return field(default_factory=default, metadata=row)
    return field(default=default, metadata=row)


def rows_of(options: type) -> dict[str, Option]:
    """The rows of a dataclass of options, by name, in the order of its fields."""
    return {each.name: _row(each) for each in fields(options) if "parse" in each.metadata}


def _row(each: Field[Any]) -> Option:
    given = dict(each.metadata)
    given["variable"] = given["variable"] or env_of(each.name)
    default = None if each.default is MISSING else each.default
    return Option(name=each.name, default=default, **given)


def flag_of(name: str) -> str:
    """`perf_log_dir` -> `--perf-log-dir`."""
    return "--" + name.replace("_", "-")


def env_of(name: str) -> str:
    """`perf_log_dir` -> FLAGSCALE_PERF_LOG_DIR, `enable_perf_monitor` -> FLAGSCALE_PERF_ENABLE_MONITOR."""
    return ENV_PREFIX + name.replace("perf_", "").upper()


def is_unset(value: Any) -> bool:
    """Whether a value means "not set", as yaml `null` does, whatever has become of it on a command line."""
    return value is None or (isinstance(value, str) and value.strip().lower() in _UNSET)


def from_environment(options: type, environ: Mapping[str, str]) -> dict[str, Any]:
    """The options that have a variable with a value. Raises PerfError naming the variable."""
    return {
        row.name: row.read(text, row.variable)
        for row in rows_of(options).values()
        if (text := environ.get(row.variable, "")) and not is_unset(text)
    }


def to_environment(options: Any) -> dict[str, str]:
    """The variables that give another process the same options; "" for what has no value."""
    values = {row.variable: getattr(options, row.name) for row in rows_of(type(options)).values()}
    return {
        variable: "" if value is None else str(int(value) if isinstance(value, bool) else value)
        for variable, value in values.items()
    }


def from_arguments(
    options: type, given: Mapping[str, Any], label: Callable[[str], str] = flag_of
) -> dict[str, Any]:
    """The options that have a value in a host's parsed arguments or in yaml. Raises PerfError beginning with
    the label of the option's name.
    """
    return {
        name: row.read(_typed.get(value, value) if isinstance(value, str) else value, label(name))
        for name, row in rows_of(options).items()
        if not is_unset(value := given.get(name))
    }


def add_arguments(parser: argparse.ArgumentParser, options: type, title: str, text: str) -> None:
    """Adds the flags that the parser does not know yet. A wrong value is the parser's usage error."""
    group = parser.add_argument_group(title, text)
    for row in rows_of(options).values():
        if not knows(parser, row.flag):
            extra: dict[str, Any] = {"metavar": row.metavar}
            if row.is_switch:
                extra = {"nargs": "?", "const": True, "metavar": "true|false"}
            group.add_argument(
                row.flag,
                dest=row.name,
                default=None,  # so that a flag not given differs from one that repeats the default
                type=_argparse_type(row),
                help=f"{row.help} (default: {row.default}; environment: {row.variable})",
                **extra,
            )
        negated = flag_of("no_" + row.name)
        if row.is_switch and not knows(parser, negated):
            group.add_argument(
                negated,
                dest=row.name,
                action="store_const",
                const=False,
                default=argparse.SUPPRESS,
                help=f"same as {row.flag} false",
            )


def knows(parser: argparse.ArgumentParser, flag: str) -> bool:
    """Whether the parser has the flag."""
    return flag in parser._option_string_actions  # argparse has no public way to ask


def _argparse_type(row: Option) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            value = None if is_unset(text) else row.parse(text)
        except PerfError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        if not isinstance(value, str):
            return value
        shown = for_stdout(value)
        if shown != value:
            _typed[shown] = value
        return shown

    return convert
