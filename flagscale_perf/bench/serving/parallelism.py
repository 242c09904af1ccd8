"""`flagscale-perf bench parallelism`: scaling efficiency, and where the rest of the time goes."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import replace

from flagscale_perf.bench import names
from flagscale_perf.bench.experiment import Experiment, Plan, say
from flagscale_perf.bench.recording import Part
from flagscale_perf.bench.serving import measure, options
from flagscale_perf.bench.serving.cases import Arm, Case, Load
from flagscale_perf.bench.serving.driver import VLLM, Driver
from flagscale_perf.bench.serving.options import Chosen
from flagscale_perf.bench.serving.profiled import OUTPUT, profile_vllm, read_windows
from flagscale_perf.bench.serving.profiled import Load as ProfiledLoad
from flagscale_perf.spine.errors import PerfError

FULL_CASES = (Case(1, 512, 100), Case(2, 1024, 200))
QUICK_CASES = (Case(1, 128, 16),)
FLOWS = 4  # requests in flight for each device, so that a pipeline is full
WAVES = 2  # of them
PROFILED_STEPS = 3
CPU_PIPELINE = (
    "vLLM's CPU backend has no pipeline that works (0.32.0 ends with an assertion: no intermediate tensors"
    " come from the stage before); --try-pipeline starts it all the same"
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
    parser.add_argument(
        "--try-pipeline",
        action="store_true",
        help="start vLLM's pipeline on a CPU, too, where it is known to fail",
    )
    parser.add_argument("--no-profile", action="store_true", help="skip profiling (no communication times)")


def prepare(args: Namespace) -> Plan:
    """Raises PerfError for what cannot be measured here."""
    cases = list(args.case or (QUICK_CASES if args.quick else FULL_CASES))
    chosen = options.chosen(args, cases, bool(args.case), "give a shorter --case", [2])
    if chosen.python is None:
        raise PerfError(
            "bench parallelism needs vLLM, which this Python has not: give --vllm-python PROGRAM"
            " (`make venv-vllm` makes .venv_vllm/bin/python)"
        )
    may_pipeline = args.try_pipeline or chosen.devices.are_gpus
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
            measure.not_measured(part, arm, VLLM, CPU_PIPELINE)
        for arm in measure.measure(part, chosen, Driver(chosen, in_flight), loads):
            if not args.no_profile:
                _profile(part, chosen, arm)

    settings = chosen.settings | {"in_flight_per_device": FLOWS}
    return Plan(measure.points_of(chosen, len(loads)), run, settings)


def _case(text: str) -> Case:
    parts = text.split(",")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) for part in parts):
        raise ArgumentTypeError(f"{text!r} is not SEQ,BATCH,OUTPUT in whole numbers, such as 512,1,100")
    seq, batch, output = map(int, parts)
    return Case(batch, seq, output)


def _profile(part: Part, chosen: Chosen, arm: Arm) -> None:
    """Profiles a window of an arm: single requests, so that a step is a whole prefill or one token."""
    directory, seq = chosen.directory / "profile" / arm.file, chosen.cases[0].seq
    say(f"profiling {arm.name} ...")
    model = None if chosen.model.directory is None else str(chosen.model.directory)
    sizes = PROFILED_STEPS, 1, seq, 1, seq + OUTPUT, arm.tensor, arm.pipeline
    try:
        profile_vllm(ProfiledLoad(model, *sizes, chosen.python or "", chosen.widest), directory)
        windows = read_windows(directory)
    except PerfError as error:
        part.value(names.STEP, "s", arm.case, None, f"no profile: {error}")
        say(f"{arm.name} is not profiled: {error}")
        return
    for phase, found in windows.items():
        at = {**arm.case, "seq": seq, "batch": 1, "phase": phase}
        part.value(names.STEP, "s", at, found.total, "mean profiled step of a mean rank")
        why = "no step that is not profiled" if found.clean is None else "median step that is not profiled"
        part.value(names.STEP_CLEAN, "s", at, found.clean, why)
        parts = {names.WAIT: found.waiting, names.TRANSFER: found.transfer}
        if found.waiting is None:
            parts = {names.UNSPLIT: found.communication}
        for name, value in parts.items():
            part.value(names.STEP_PART, "s", {**at, "part": name}, value, "of that step, in collectives")


EXPERIMENT = Experiment(add_arguments, prepare)
