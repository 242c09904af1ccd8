"""The interface of an experiment for `flagscale-perf bench`, and the list of experiments."""

from __future__ import annotations

import importlib
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flagscale_perf.bench.recording import Part

# Name and module with its `EXPERIMENT`, in the order in which `bench all` runs them.
EXPERIMENTS = {
    "bandwidth": "flagscale_perf.bench.bandwidth.experiment",
    "latency": "flagscale_perf.bench.serving.latency",
    "parallelism": "flagscale_perf.bench.serving.parallelism",
}
HELP = {
    "bandwidth": "bandwidth of memory, links and collectives",
    "latency": "time to first token and per output token",
    "parallelism": "scaling efficiency, and what parallelism costs beyond its share",
}


@dataclass(frozen=True)
class Plan:
    """An experiment whose options have been checked.

    Attributes:
        planned: points that it is going to measure; None where that is not known.
        measure: does it, and puts each point.
        settings: how it measures, and on what.
        follow: what this process does where another one directs and writes; None where this is the one.
    """

    planned: int | None
    measure: Callable[[Part], None]
    settings: Mapping[str, Any] = field(default_factory=dict)
    follow: Callable[[], None] | None = None


@dataclass(frozen=True)
class Experiment:
    """One experiment.

    Attributes:
        add_arguments: adds its own options; those of one name mean the same in all experiments. `--quick` and
            `--out` are there already.
        prepare: checks whatever can be checked before anything is measured. Raises PerfError.
    """

    add_arguments: Callable[[ArgumentParser], None]
    prepare: Callable[[Namespace], Plan]


def load(name: str) -> Experiment:
    """The experiment of that name; its module is imported now."""
    experiment: Experiment = importlib.import_module(EXPERIMENTS[name]).EXPERIMENT
    return experiment


def whole(text: str) -> int:
    """Parses a whole number, 1 or more. Raises ArgumentTypeError."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number, 1 or more")
    return int(text)


def say(line: str) -> None:
    """Prints progress to stderr."""
    print(line, file=sys.stderr, flush=True)
