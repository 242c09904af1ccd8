"""Runs every stage of splitting a model on this machine, and prints what each took beside its floors."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from pathlib import Path
from platform import machine

import needed  # noqa: F401
import torch
from split_inference.model import CONFIGS, ModelChoice
from split_inference.program import run_program
from split_inference.road import ROAD, Measured, Plan, measure
from split_inference.road_table import NOTE, ratio, table

from flagscale_perf.spine.errors import PerfError

# The split in two processes against the same in one: stage, at most.
BARS = (("with a unix socket, float32", 1.35), ("with a unix socket, bfloat16", 1.2))


def main() -> int:
    """Measures and prints; 0 whatever was measured."""
    made = ArgumentParser(description=__doc__, formatter_class=ArgumentDefaultsHelpFormatter)
    made.add_argument("--config", default="small", choices=CONFIGS, help="a model with random weights")
    made.add_argument("--layers", type=int, help="this many, instead of the configuration's number")
    made.add_argument("--tokens", type=int, default=1024, help="of the prompt")
    made.add_argument("--rounds", type=int, default=5, help="of all stages, one after another")
    made.add_argument("--only", metavar="TEXT", help="stages whose name has this")
    made.add_argument("--output", type=Path, help="write there, too")
    args = made.parse_args()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    stops = tuple(stop for stop in ROAD if not args.only or args.only in stop.name)
    try:
        if not stops:
            raise PerfError(
                f"--only {args.only!r} is in no stage's name: {', '.join(stop.name for stop in ROAD)}"
            )
        measured = measure(
            Plan(ModelChoice(args.config, layers=args.layers), args.tokens, args.rounds, stops)
        )
    except PerfError as error:
        print(f"stages.py: {error}", file=sys.stderr)
        return 2
    text = "\n\n".join([heading(args, load), table(measured), NOTE, verdicts(measured)])
    print(text)
    if args.output:
        args.output.write_text(text + "\n", encoding="utf-8")
    return 0


def heading(args: Namespace, load: float) -> str:
    """What was measured, and where."""
    cores = len(os.sched_getaffinity(0))
    model = args.config if args.layers is None else f"{args.config} with {args.layers} layers"
    return (
        f"Stages of splitting {model}, prefill of {args.tokens} tokens, {args.rounds} rounds. "
        f"{machine()}, {cores} cores, load {load:.1f} at the start, torch {torch.__version__}, "
        "one thread a side."
    )


def verdicts(measured: list[Measured]) -> str:
    """Each bar, held or missed."""
    by_name = {each.stop.name: each for each in measured}
    lines = []
    for name, most in BARS:
        if name in by_name:
            reached = ratio(by_name[name])
            word = "held" if reached <= most else "MISSED"
            lines.append(f"Two processes against one, {name}: {reached:.2f}, at most {most}: {word}")
    return "\n".join(lines)


if __name__ == "__main__":
    run_program(main)
