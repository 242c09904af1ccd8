"""`flagscale-perf bench parallelism`: what several devices gain over one, and where the rest goes."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from flagscale_perf.bench.experiment import Experiment, Plan, say
from flagscale_perf.bench.names import (
    AGAIN,
    DECODE,
    DURATION,
    FLOW,
    JOB,
    PREFILL,
    STEP,
    STEP_CLEAN,
    STEP_PART,
)  # fmt: skip
from flagscale_perf.bench.recording import Part
from flagscale_perf.bench.serving import measure, options
from flagscale_perf.bench.serving.cases import SEED, Arm, Case, Turn, turns
from flagscale_perf.bench.serving.driver import Driver, Load
from flagscale_perf.bench.serving.options import Chosen
from flagscale_perf.bench.serving.vllm_python import version_of
from flagscale_perf.spine.errors import PerfError

FULL_CASES = (Case(1, 512, 100), Case(2, 1024, 200))
QUICK_CASES = (Case(1, 128, 16),)
REPEATS = 3
FLOWS = 4  # requests in flight for each device, so that a pipeline is full
WAVES = 2  # of them
PROFILED, PROFILED_STEPS = (
    10,
    "1-3",
)  # requests, one at a time, of whose prefills and decodes the steps are profiled
CPU_PIPELINE = (
    "vLLM's CPU backend has no pipeline that works (0.32.0 ends with an assertion: no intermediate tensors"
    " come from the stage before); --try-pipeline starts it all the same"
)


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the options for model, cases and arms."""
    options.add_model(parser)
    options.add_arms(parser)
    parser.add_argument(
        "--case", type=_case, action="append", metavar="SEQ,BATCH,OUTPUT",
        help="tokens of a prompt, requests at a time, tokens that each makes; may be given several times"
             " (default: 512,1,100 and 1024,2,200)",
    )  # fmt: skip
    parser.add_argument("--test-all", action="store_true", help="TP and PP, which is the default")
    parser.add_argument(
        "--try-pipeline",
        action="store_true",
        help="start vLLM's pipeline on a CPU, too, where it is known to fail",
    )
    parser.add_argument(
        "--no-profile", action="store_true", help="no profiled steps, so no answer where the time goes"
    )


def prepare(args: Namespace) -> Plan:
    """Raises PerfError for what cannot be measured here."""
    chosen = options.chosen(args, _cases(args), bool(args.case), [2], REPEATS)
    if chosen.python is None:
        raise PerfError(
            "bench parallelism needs vLLM, which this Python has not: give --vllm-python PROGRAM"
            " (`make venv-vllm` makes .venv_vllm/bin/python)"
        )
    out = _not_here(chosen, args.try_pipeline)
    chosen = replace(chosen, arms=[arm for arm in chosen.arms if arm.name not in out])
    order = turns(chosen.arms, chosen.cases, chosen.repeats)
    settings = {
        "model": chosen.model.name, "weights": chosen.model.weights,
        "device": chosen.devices.what, "devices": chosen.devices.count, "eager": chosen.is_eager,
        "repeats": chosen.repeats, "arms": [arm.name for arm in chosen.arms], "seed": SEED,
        "in_flight_per_device": FLOWS, "vllm": version_of(chosen.python or ""),
    }  # fmt: skip

    def run(part: Part) -> None:
        """Measures point by point."""
        for case, why in chosen.left_out:
            part.value(DURATION, "s", case._asdict(), None, why)
        for arm, why in out.values():
            part.value(DURATION, "s", {**arm.case, "engine": measure.VLLM}, None, why)
            say(f"{arm.name} is not measured: {why}")
        _measure(part, chosen, args, order)

    return Plan(2 * measure.points_of(order), run, settings)


def _cases(args: Namespace) -> list[Case]:
    return list(args.case or (QUICK_CASES if args.quick else FULL_CASES))


def _case(text: str) -> Case:
    parts = text.split(",")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) for part in parts):
        raise ArgumentTypeError(f"{text!r} is not SEQ,BATCH,OUTPUT in whole numbers, such as 512,1,100")
    seq, batch, output = map(int, parts)
    return Case(batch, seq, output)


def _not_here(chosen: Chosen, is_tried: bool) -> Mapping[str, tuple[Arm, str]]:
    """Arms that are known to fail on this machine."""
    if is_tried or not options.is_cpu(chosen.devices):
        return {}
    return {arm.name: (arm, CPU_PIPELINE) for arm in chosen.arms if arm.pipeline > 1}


def _measure(part: Part, chosen: Chosen, args: Namespace, order: Sequence[Turn]) -> None:
    in_flight = FLOWS * max(arm.devices for arm in chosen.arms)
    in_flight = max(in_flight, *(case.batch for case in chosen.cases))
    profiles = {} if args.no_profile else _profiles(chosen)
    say(f"starting vLLM for {', '.join(arm.name for arm in chosen.arms)} ...")
    setup = measure.setup_of(
        chosen, in_flight, args, {name: variables for name, (_, variables) in profiles.items()}
    )
    with Driver(setup, chosen.arms) as driver:
        for name, why in list(driver.failed.items()):
            measure.fail(part, driver, next(arm for arm in chosen.arms if arm.name == name), why)
        for arm in chosen.arms:
            if arm.name not in driver.failed and arm.name != AGAIN:
                _begin(part, driver, arm, chosen.cases, arm.name in profiles)
        measure.run_turns(part, driver, order, _job, {"job": JOB})
        measure.run_turns(part, driver, order, lambda turn: _flow(turn, in_flight), {"job": FLOW})
        measure.keep_memory(part, driver, chosen.arms)
        driver.stop_servers()
        _attribute(part, chosen, {name: where for name, (where, _) in profiles.items()}, driver.failed)


def _job(turn: Turn) -> Load:
    """A fixed job: one batch, from its first request sent to its last token."""
    case = turn.case
    return Load(case, case.batch, case.batch, 0, SEED + turn.repetition)


def _flow(turn: Turn, in_flight: int) -> Load:
    """A continuous load: always more requests in flight than a pipeline has stages."""
    return Load(turn.case, WAVES * in_flight, in_flight, 0, SEED + turn.repetition)


def _profiles(chosen: Chosen) -> dict[str, tuple[Path, dict[str, str]]]:
    """For the single arm and the tensor-parallel ones: the directory of the profile and the environment that
    switches it on.
    """
    made = {}
    for arm in chosen.arms:
        if arm.name == AGAIN or arm.pipeline > 1:
            continue
        where = chosen.directory / "profile" / arm.name.replace(" ", "_").lower()
        made[arm.name] = where, {
            "FLAGSCALE_PERF_PROFILE_STEPS": PROFILED_STEPS, "FLAGSCALE_PERF_PROFILE_DIR": str(where),
            "FLAGSCALE_PERF_PROFILE_SHAPES": "0", "FLAGSCALE_PERF_PROFILE_MEMORY": "0",
        }  # fmt: skip
    return made


def _begin(part: Part, driver: Driver, arm: Arm, cases: Sequence[Case], is_profiled: bool) -> None:
    """Warms up. In a profiled arm, the profiled window falls into these unmeasured requests. An arm that
    fails is reported.
    """
    try:
        if is_profiled:
            alone = _alone(cases)
            driver.run(arm, Load(alone, PROFILED, 1, 0, SEED))
        measure.warm(driver, arm, cases)
    except PerfError as error:
        if arm.devices == 1:
            raise
        measure.fail(part, driver, arm, str(error))


def _alone(cases: Sequence[Case]) -> Case:
    """One request at a time: a step is then a whole prefill or one token."""
    return cases[0]._replace(batch=1)


def _attribute(part: Part, chosen: Chosen, profiles: Mapping[str, Path], failed: Mapping[str, str]) -> None:
    """Writes the parts of a step of each phase, for every profiled arm."""
    from flagscale_perf.bench.serving import attribution  # loads numpy

    case = _alone(chosen.cases)
    for arm in chosen.arms:
        if arm.name not in profiles or arm.name in failed:
            continue
        keys = {**arm.case, "seq": case.seq, "batch": 1}
        try:
            steps = attribution.read_steps(profiles[arm.name])
        except PerfError as error:
            part.value(STEP, "s", keys, None, f"its profile cannot be read: {error}")
            continue
        for phase in (PREFILL, DECODE):
            step = steps.get(phase)
            if step is None:
                part.value(STEP, "s", {**keys, "phase": phase}, None, "its profile has no such step")
                continue
            at = {**keys, "phase": phase}
            for name, value in step.parts.items():
                part.value(STEP_PART, "s", {**at, "part": name}, value, "mean profiled step of a mean rank")
            part.value(STEP, "s", at, step.total, "mean profiled step of a mean rank")
            part.value(STEP_CLEAN, "s", at, step.clean, "median step that is not profiled" if step.clean else
                       "no step that is not profiled")  # fmt: skip


EXPERIMENT = Experiment("parallelism", add_arguments, prepare)
