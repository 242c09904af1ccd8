"""`flagscale-perf bench parallelism`: scaling efficiency, and what parallelism costs beyond its share."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import replace

from flagscale_perf.bench import names
from flagscale_perf.bench.experiment import Experiment, Plan
from flagscale_perf.bench.recording import Part
from flagscale_perf.bench.serving import measure, options
from flagscale_perf.bench.serving.cases import Case, Load
from flagscale_perf.bench.serving.driver import Driver

FULL_CASES = (Case(1, 512, 100), Case(2, 1024, 200))
QUICK_CASES = (Case(1, 128, 16),)
FLOWS = 4  # requests in flight for each device, so that a pipeline is full
WAVES = 2  # of them
CPU_PIPELINE = (
    "vLLM's CPU backend has no pipeline that works (0.32.0 ends with an assertion: no intermediate tensors"
    " come from the stage before); --pp N starts it all the same"
)


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the options for model, cases and arms."""
    options.add_model(parser)
    options.add_arms(parser)
    parser.add_argument(
        "--case",
        type=_case,
        action="append",
        metavar="SEQ,BATCH,OUTPUT",
        help="tokens of a prompt, requests at a time, tokens that each makes; may be given several times"
        " (default: 512,1,100 and 1024,2,200)",
    )
    parser.add_argument("--test-all", action="store_true", help="TP and PP, which is the default")


def prepare(args: Namespace) -> Plan:
    """Raises PerfError for what cannot be measured here."""
    cases = list(args.case or (QUICK_CASES if args.quick else FULL_CASES))
    chosen = options.chosen(args, cases, bool(args.case), "give a shorter --case", [2])
    may_pipeline = args.pp or chosen.devices.are_gpus
    out = [] if may_pipeline else [arm for arm in chosen.arms if arm.pipeline > 1]
    chosen = replace(chosen, arms=[arm for arm in chosen.arms if arm not in out])
    in_flight = max(FLOWS * chosen.widest, *(case.batch for case in chosen.cases))

    def flow(case: Case) -> Load:
        """A continuous load: always more requests in flight than a pipeline has stages."""
        return Load(case, WAVES * in_flight, in_flight)

    loads = {names.JOB: measure.job, names.FLOW: flow}

    def run(part: Part) -> None:
        for case, why in chosen.left_out:
            part.value(names.DURATION, "s", case._asdict(), None, why)
        for arm in out:
            measure.not_measured(part, arm, CPU_PIPELINE)
        measure.measure(part, chosen, Driver(chosen, in_flight), loads)

    settings = chosen.settings | {"in_flight_per_device": FLOWS}
    return Plan(measure.points_of(chosen, len(loads)), run, settings)


def _case(text: str) -> Case:
    parts = text.split(",")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) for part in parts):
        raise ArgumentTypeError(f"{text!r} is not SEQ,BATCH,OUTPUT in whole numbers, such as 512,1,100")
    seq, batch, output = map(int, parts)
    return Case(batch, seq, output)


EXPERIMENT = Experiment(add_arguments, prepare)
