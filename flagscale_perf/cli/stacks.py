"""`flagscale-perf stacks`: what every rank of a live training is doing now."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from flagscale_perf.cli.asking import add_run, ask, live_run
from flagscale_perf.cli.base import Command
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.language import said, say
from flagscale_perf.spine.records import EventRecord
from flagscale_perf.spine.units import for_stdout, numbered
from flagscale_perf.training.rank_records import DoingRecord
from flagscale_perf.training.requests import STACKS

MOST_FRAMES = 12


class StacksCommand(Command):
    """Prints what every rank of a live training is doing, with Python's stacks."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Argument: the run."""
        add_run(parser)
        parser.add_argument("--full", action="store_true", help="all frames, and those of other threads")

    def run(self, args: Namespace) -> int:
        """Returns once the run has answered. Raises PerfError if it does not."""
        found = ask(live_run(args.run), {STACKS: True}, _is_last)
        print(for_stdout(said(found[-1].text)))
        for line in lines_of([each for each in found if isinstance(each, DoingRecord)], args.full):
            print(for_stdout(line))
        return 0


def _is_last(record: Any) -> bool:
    return isinstance(record, EventRecord) and record.name == STACKS


def lines_of(ranks: Sequence[DoingRecord], is_full: bool) -> list[str]:
    """The stacks; ranks of which all is the same share one."""
    alike: dict[tuple[str, ...], list[DoingRecord]] = {}
    for one in ranks:
        alike.setdefault((one.phase or one.where or "", *_frames(one, is_full)), []).append(one)
    lines = []
    for (_, *frames), those in alike.items():
        lines += ["", _head(those), *frames]
    return lines


def _head(those: Sequence[DoingRecord]) -> str:
    one = those[0]
    parts = [f"iteration {one.iteration + 1}"] if one.iteration is not None else []
    parts.append(one.phase or one.where or "its process does not answer")
    if one.for_ns is not None:
        parts.append(f"for {one.for_ns / NS_PER_S:.1f} s")
    if one.source not in ("", "itself"):
        parts.append(f"as {one.source} sees it" + f" ({one.state})" * bool(one.state))
    if one.debug_port is not None:
        parts.append(f"torch.distributed.debug answers at {one.hostname}:{one.debug_port}")
    who = numbered("rank", [each.rank for each in those])
    place = f" ({one.hostname}, pid {one.pid})" if len(those) == 1 else ""
    return said(f"{who}{place}") + say(": ") + say(", ").join(map(said, parts))


def _frames(one: DoingRecord, is_full: bool) -> list[str]:
    most = len(one.stack) if is_full else MOST_FRAMES
    lines = [f"    {frame}" for frame in one.stack[:most]]
    if len(one.stack) > most:
        lines.append(say("    ... {0} more: --full", str(len(one.stack) - most)))
    for name, frames in one.threads.items() if is_full else ():
        lines += [say("  thread {0}", name), *(f"    {frame}" for frame in frames)]
    return lines
