"""Changes that know the run: each is made from the host's arguments as the run file has them. What is set
already is not advised, and a value is proposed where the one in force is known.

Of a host or file without arguments every change is advised, without values that depend on the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flagscale_perf.analysis.rules import Advice, Change, unless
from flagscale_perf.training.analysis.findings.case import TrainingCase

Proposed = dict[str, Any]  # flag -> value; True for a flag without one
YAML_HOST = "FlagScale"  # any section below `train` of its yaml will do: all keys become flags
MAX_EXACT = 1 << 53  # the whole numbers up to it are exact in floating point
_ENVIRONMENT = "experiment.envs."


def name_of(flag: str) -> str:
    """`--num-workers` -> `num_workers`."""
    return flag.removeprefix("--").replace("-", "_")


def written(case: TrainingCase, proposed: Proposed, text: str) -> Change:
    """Flags with their values, and the same as keys of the host's yaml where it has one."""
    flags = [_flag(name, value) for name, value in proposed.items()]
    has_yaml = case.knows_arguments and case.facts.host.startswith(YAML_HOST)
    keys = [_key(name, value) for name, value in proposed.items() if value is not None] if has_yaml else []
    return Change(flags, text, keys, {name: value for name, value in proposed.items() if value is not None})


def _flag(name: str, value: Any) -> str:
    if value is None or value is True:
        return name
    return f"{name} {value}" if name.startswith("--") else f"{name}={value}"


def _key(name: str, value: Any) -> str:
    place = name_of(name) if name.startswith("--") else _ENVIRONMENT + name
    return f"{place}: {'true' if value is True else value}"


def switch_on(*flags: str, text: str) -> Advice:
    """Switch these flags on: those that are not; nothing where all of them are."""

    def make(case: TrainingCase) -> Change | None:
        off = [flag for flag in flags if not case.argument(name_of(flag))]
        return written(case, dict.fromkeys(off, True), text) if off else None

    return Advice(list(flags), text, make=make)


def switch_off(flag: str, text: str) -> Advice:
    """Switch something off by its `--no-...` flag; nothing where it is off."""

    def make(case: TrainingCase) -> Change | None:
        is_off = case.argument(name_of(flag).removeprefix("no_")) is False
        return None if is_off else written(case, {flag: True}, text)

    return Advice([flag], text, make=make)


def give(flag: str, text: str) -> Advice:
    """Set the flag to what only the user knows; nothing where it is set."""
    return unless(Change([flag], text), is_set(name_of(flag)))


def set_to(flag: str, value: Any, text: str) -> Advice:
    """Set the flag to a value that is right for every run; nothing where it has it."""

    def make(case: TrainingCase) -> Change | None:
        return None if case.argument(name_of(flag)) == value else written(case, {flag: value}, text)

    return Advice([flag], text, make=make)


def move(flag: str, text: str, next_value: Callable[[TrainingCase, float], float | None]) -> Advice:
    """Raise or lower the flag: to what `next_value` makes of the value in force; nothing where that is None.
    Without a known value, or with one that no host would take, the flag alone.
    """

    def make(case: TrainingCase) -> Change | None:
        now = case.number(name_of(flag))
        if now is None or abs(now) > MAX_EXACT:
            return Change([flag], text)
        then = next_value(case, now)
        return None if then is None else written(case, {flag: _short(then)}, f"{text}; it is {_short(now)}")

    return Advice([flag], text, make=make)


def double(flag: str, text: str, most: float, least: float = 1) -> Advice:
    """Raise the flag: twice as much, at least `least`; nothing from `most` on."""
    return move(flag, text, lambda case, now: None if now >= most else min(most, max(least, 2 * now)))


def while_cores_are_free(advised: Advice) -> Advice:
    """The change to a number of processes, unless the host is known to have fewer cores than what it would be
    and the training together, or a finding says that it is short of them.
    """

    def make(case: TrainingCase) -> Change | None:
        cores, now = case.signals.host.cores, case.number(name_of(advised.flags[0])) or 0
        has_room = cores is None or cores > max(1, 2 * now)
        return advised.for_case(case) if has_room and not case.host_share() else None

    return Advice(list(advised.flags), advised.text, make=make)


def halve(flag: str, text: str, least: float = 1) -> Advice:
    """Lower the flag: half as much; nothing from `least` down."""
    return move(flag, text, lambda case, now: None if now <= least else max(least, now // 2))


def is_set(name: str) -> Callable[[TrainingCase], bool]:
    """Whether the case's run was started with that argument."""
    return lambda case: bool(case.argument(name))


def provided(advised: Change, where: Callable[[TrainingCase], bool]) -> Advice:
    """The change, unless the run's arguments are known and `where` says that it would change nothing."""
    return unless(advised, lambda case: case.knows_arguments and not where(case))


def _short(value: float) -> float:
    return int(value) if value == int(value) else value
