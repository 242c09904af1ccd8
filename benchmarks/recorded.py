"""Records what a benchmark has planned, training by training, on real FlagScale.

A run that is recorded already is not run again. One at a time: a run beside another has another truth.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.processes import flagscale as fs

MONITOR = ("--enable-perf-monitor", "--perf-breakdown", "--perf-max-overhead", 100, "--perf-log-dir", "perf")


class TrainingFailedError(RuntimeError):
    """A run that has ended otherwise than it should."""


def record_all(
    text: str | None,
    drawn: Callable[[int], Iterable[Any]],
    into: Path,
    truth: str,
    record: Callable[[Any, Path], str],
) -> int:
    """The command of a benchmark: records what is not recorded, a line for each; 1 where a run failed.

    Args:
        text: what the command does.
        drawn: the trainings of a seed, a dataclass each with the `name` of its run.
        into: where runs and truths are kept, unless said otherwise.
        truth: file that a run has once it is recorded, below that; `{}` for its name.
        record: trains, writes that file last, and returns what there is to say.
    """
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("--only", nargs="*", default=["*"], help="names of runs, with * and ?")
    parser.add_argument("--into", type=Path, default=into, help="where the runs are")
    parser.add_argument("--list", action="store_true", help="the names only")
    options = parser.parse_args()
    failed = 0
    for plan in drawn(options.seed):
        if not any(fnmatch.fnmatch(plan.name, pattern) for pattern in options.only):
            continue
        is_recorded = (options.into / truth.format(plan.name)).exists()
        if options.list or is_recorded:
            print(plan.name, "recorded" if is_recorded else "")
            continue
        begin = time.monotonic()
        try:
            said = record(plan, options.into)
        except TrainingFailedError as error:
            failed = 1
            print(error, file=sys.stderr)
            continue
        print(f"{plan.name:36} {said}took {time.monotonic() - begin:.0f} s", flush=True)
    return failed


def train(plan: Any, inside: Path | str, host: Sequence[object], directory: Path) -> fs.Finished:
    """Trains in that directory, with the host's options; `inside`: what plants the plan on each rank. Raises
    TrainingFailedError.
    """
    given = directory / "plan.json"
    given.write_text(json.dumps(asdict(plan)))
    words = fs.launched(*map(str, [inside, given, fs.train_gpt(), *host, *MONITOR]))
    finished = fs.run(fs.workers(plan.ranks, *words), directory)
    if finished.returncode:
        raise TrainingFailedError(f"{plan.name}: the training failed:\n{finished.output[-3000:]}")
    return finished
