"""What a training's findings advise to set, as a yaml overlay or an argument line; which a run has."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from flagscale_perf.analysis.rules import Finding
from flagscale_perf.analysis.session import Session
from flagscale_perf.training.analysis.findings.advice import YAML_HOST, name_of
from flagscale_perf.training.analysis.findings.own_names import is_trainer, override, plain
from flagscale_perf.training.analysis.fold import read_report
from flagscale_perf.training.facts import RunFacts

_OURS = "--perf-"  # to look closer, which changes nothing
# FlagScale's runner takes the last one's of its sections system, model and data
_SECTION = "data"
# Hydra reads it on the first line: the keys are not below the file's group.
_PACKAGE = "# @package _global_"


class Setting(NamedTuple):
    """A setting that is advised.

    Attributes:
        head: the host's flag, such as `--num-workers`, the place in Bridge's configuration, such as
            `dataset.num_workers`, or the variable.
        value: True for a switch; that of a place is Bridge's.
        finding: the costliest that advises it.
    """

    head: str
    value: Any
    finding: str

    @property
    def is_flag(self) -> bool:
        """Whether it stands on the command line, and is no variable."""
        return self.head.startswith("--") or self.is_place

    @property
    def is_place(self) -> bool:
        """Whether it is one of Bridge's configuration."""
        return "." in self.head

    @property
    def text(self) -> str:
        """As it stands on a command line."""
        if self.is_place:
            return shlex.quote(override(self.head, self.value))
        if not self.is_flag:
            return f"{self.head}={shlex.quote(str(self.value))}"
        return self.head if self.value is True else f"{self.head} {shlex.quote(plain(self.value))}"

    def is_in(self, facts: RunFacts) -> bool:
        """Whether a run with these facts has it."""
        if not self.is_flag:
            return str((facts.environment or {}).get(self.head)) == str(self.value)
        arguments, name = facts.arguments or {}, name_of(self.head)
        if self.value is True and name.startswith("no_"):
            return arguments.get(name) is True or arguments.get(name.removeprefix("no_")) is False
        return bool(_plain(arguments.get(name)) == _plain(self.value))


class Patch(NamedTuple):
    """What all findings of a run advise.

    Attributes:
        settings: each once, those of costlier findings first.
        others: flags that need a value of the user's, another one than a costlier finding wants, or are the
            monitor's own; each with its finding.
    """

    settings: list[Setting]
    others: list[tuple[str, str]]


def patch_of(findings: Sequence[Finding]) -> Patch:
    """What these findings of a run advise, the costliest first."""
    settings: dict[str, Setting] = {}
    others: dict[tuple[str, str], None] = {}
    for finding in findings:
        for change in finding.changes:
            for flag in change.flags:
                head = flag.split(" ")[0] if flag.startswith("--") else flag.partition("=")[0]
                made = Setting(head, change.settings.get(head), finding.name)
                is_set = made.value is not None and not head.startswith(_OURS)
                if not is_set or settings.setdefault(head, made).value != made.value:
                    others[flag, finding.name] = None
    return Patch([*settings.values()], [*others])


def _plain(value: Any) -> Any:
    """Numbers are compared as such: `0.5` in an argument may be a text."""
    if isinstance(value, bool) or value is None:
        return value
    try:
        return float(value)
    except (ValueError, TypeError):
        return str(value)


def _yaml(patch: Patch) -> list[str]:
    """An overlay for the configuration that FlagScale's runner reads."""
    flags = [each for each in patch.settings if each.is_flag]
    variables = [each for each in patch.settings if not each.is_flag]
    lines = ["train:", f"  {_SECTION}:"] if flags else []
    lines += [f"    {name_of(each.head)}: {json.dumps(each.value)}  # {each.finding}" for each in flags]
    lines += ["experiment:", "  envs:"] if variables else []
    return lines + [f"    {each.head}: {json.dumps(str(each.value))}  # {each.finding}" for each in variables]


def _line(patch: Patch) -> list[str]:
    """Variables and arguments, one line each, to be put before and behind the command."""
    flags = " ".join(each.text for each in patch.settings if each.is_flag)
    variables = [f"# in the environment: {each.text}" for each in patch.settings if not each.is_flag]
    return [*variables, *([flags] if flags else [])]


def remark(base: Sequence[Finding], facts: Sequence[RunFacts]) -> list[str]:
    """Which of the settings that BASE's findings advise NEW has; `facts` of both. Nothing where the arguments
    of one are not known, or none is advised.
    """
    if any(one.arguments is None for one in facts):
        return []
    advised = [each for each in patch_of(base).settings if not each.is_in(facts[0])]
    if not advised:
        return []
    taken = [each.text for each in advised if each.is_in(facts[1])]
    left = [each.text for each in advised if not each.is_in(facts[1])]
    said = [f"has {', '.join(taken)}"] * bool(taken) + [f"has not {', '.join(left)}"] * bool(left)
    return [f"of what BASE's findings advise NEW {' and '.join(said)}"]


def lines_of(patch: Patch, facts: RunFacts, run: str) -> list[str]:
    """The overlay, or the line, behind comments: whose findings advise it, and what is left to a person."""
    is_yaml, count = facts.host.startswith(YAML_HOST), len(patch.settings)
    head = f"# what the findings of {run} advise: {count} setting{'s' * (count != 1)}"
    lines = [_PACKAGE] * is_yaml + [head]
    lines += [f"# not set here: {flag} ({finding})" for flag, finding in patch.others]
    if is_trainer(facts.host) and (given := [each for each in patch.settings if each.is_flag]):
        words = ", ".join(f"{name_of(each.head)}={each.value!r}" for each in given)
        lines.append(f"# of a script that parses no arguments: TrainingArguments(..., {words})")
    return lines + (_yaml(patch) if is_yaml else _line(patch))


def text_of(session: Session) -> str:
    """What the findings of the session advise, for its host."""
    facts = RunFacts.of(session.header.facts)
    lines = lines_of(patch_of(read_report(session).findings), facts, session.header.session_id)
    return "\n".join(lines) + "\n"
