"""`flagscale-perf bench latency`: time to the first and to each further token, by length and batch."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace

from flagscale_perf.bench.experiment import Experiment, Plan, say
from flagscale_perf.bench.names import AGAIN, LATENCY
from flagscale_perf.bench.recording import Part
from flagscale_perf.bench.serving import measure, options
from flagscale_perf.bench.serving.cases import SEED, Turn, turns
from flagscale_perf.bench.serving.driver import Driver, Load
from flagscale_perf.bench.serving.options import Chosen, Sizes
from flagscale_perf.bench.serving.vllm_python import devices, version_of
from flagscale_perf.spine.errors import PerfError

FULL = Sizes((1, 2, 4, 8), (128, 256, 512, 1024, 2048, 4096, 8192), (50, 100, 200), 3)
QUICK = Sizes((1, 4), (128, 512), (16,), 3)
TORCH = "torch"
PAIR = 2


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the options for model, sizes and engine."""
    options.add_model(parser)
    options.add_sizes(parser)
    options.add_arms(parser)
    parser.add_argument(
        "--engine", choices=(measure.VLLM, TORCH),
        help="vllm, or torch: transformers' generate in this process (default: vllm where it is found)",
    )  # fmt: skip


def prepare(args: Namespace) -> Plan:
    """Raises PerfError for what cannot be measured here."""
    usual, found = QUICK if args.quick else FULL, devices()
    parallel = [] if options.is_cpu(found) or found.count < PAIR else [PAIR]
    is_given = bool(args.seq_lens or args.output_lens)
    chosen = options.chosen(args, options.cases_of(args, usual), is_given, parallel, usual.repeats)
    engine = _engine(args, chosen)
    if engine == TORCH:
        chosen = _without_parallel(chosen, bool(args.tp or args.pp))
    order = turns(chosen.arms, chosen.cases, chosen.repeats)
    settings = {
        "engine": engine, "model": chosen.model.name, "weights": chosen.model.weights,
        "longest": chosen.model.longest, "device": chosen.devices.what, "devices": chosen.devices.count,
        "eager": chosen.is_eager, "repeats": chosen.repeats,
        "arms": [arm.name for arm in chosen.arms],
        "seed": SEED, "vllm": version_of(chosen.python) if engine == measure.VLLM and chosen.python else None,
    }  # fmt: skip

    def run(part: Part) -> None:
        """Measures point by point."""
        for case, why in chosen.left_out:
            part.value(LATENCY, "s", case._asdict(), None, why)
        if engine == TORCH:
            from flagscale_perf.bench.serving import in_process

            in_process.measure(part, chosen, order)
        else:
            _measure(part, chosen, args, order)

    return Plan(measure.points_of(order), run, settings)


def _engine(args: Namespace, chosen: Chosen) -> str:
    if args.engine == measure.VLLM and chosen.python is None:
        raise PerfError(
            "--engine vllm: this Python has no vllm; give --vllm-python PROGRAM (`make venv-vllm` makes"
            " .venv_vllm/bin/python), or --engine torch"
        )
    return args.engine or (TORCH if chosen.python is None else measure.VLLM)


def _without_parallel(chosen: Chosen, is_asked: bool) -> Chosen:
    if is_asked:
        raise PerfError(
            "--tp, --pp: transformers' generate runs on one device; they need vLLM: --vllm-python"
        )
    return replace(chosen, arms=[arm for arm in chosen.arms if arm.devices == 1])


def _measure(part: Part, chosen: Chosen, args: Namespace, order: list[Turn]) -> None:
    most = max(case.batch for case in chosen.cases)
    say(f"starting vLLM for {', '.join(arm.name for arm in chosen.arms)} ...")
    with Driver(measure.setup_of(chosen, most, args, {}), chosen.arms) as driver:
        for name, why in list(driver.failed.items()):
            measure.fail(part, driver, next(arm for arm in chosen.arms if arm.name == name), why)
        for arm in chosen.arms:
            if arm.name not in driver.failed and arm.name != AGAIN:
                measure.warm(driver, arm, chosen.cases)
        measure.run_turns(part, driver, order, _load, {})
        measure.keep_memory(part, driver, chosen.arms)


def _load(turn: Turn) -> Load:
    case = turn.case
    return Load(case, case.batch, case.batch, 0, SEED + turn.repetition)


EXPERIMENT = Experiment("latency", add_arguments, prepare)
