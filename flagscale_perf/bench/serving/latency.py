"""`flagscale-perf bench latency`: time to the first and to each further token, by length and batch."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace

from flagscale_perf.bench.experiment import Experiment, Plan
from flagscale_perf.bench.names import LATENCY
from flagscale_perf.bench.recording import Part
from flagscale_perf.bench.serving import measure, options
from flagscale_perf.bench.serving.driver import VLLM, Driver
from flagscale_perf.bench.serving.options import Sizes
from flagscale_perf.bench.serving.vllm_python import devices
from flagscale_perf.spine.errors import PerfError

FULL = Sizes((1, 2, 4, 8), (128, 256, 512, 1024, 2048, 4096, 8192), (50, 100, 200))
QUICK = Sizes((1, 4), (128, 512), (16,))
TORCH = "torch"
PAIR = 2


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the options for model, sizes and engine."""
    options.add_model(parser)
    options.add_sizes(parser)
    options.add_arms(parser)
    parser.add_argument(
        "--engine",
        choices=(VLLM, TORCH),
        help="vllm, or torch: transformers' generate in this process (default: vllm where it is found)",
    )


def prepare(args: Namespace) -> Plan:
    """Raises PerfError for what cannot be measured here."""
    found = devices()
    parallel = [PAIR] if found.are_gpus and found.count >= PAIR else []
    cases = options.cases_of(args, QUICK if args.quick else FULL)
    is_given, advice = bool(args.seq_lens or args.output_lens), "give shorter --seq-lens or --output-lens"
    chosen = options.chosen(args, cases, is_given, advice, parallel)
    engine = args.engine or (TORCH if chosen.python is None else VLLM)
    if engine == TORCH:
        if args.tp or args.pp:
            raise PerfError(
                "--tp, --pp: transformers' generate runs on one device; they need vLLM: --vllm-python"
            )
        chosen = replace(chosen, arms=chosen.arms[:1])
    elif chosen.python is None:
        raise PerfError(
            "--engine vllm: this Python has no vllm; give --vllm-python PROGRAM (`make venv-vllm` makes"
            " .venv_vllm/bin/python), or --engine torch"
        )
    loads = {"": measure.job}

    def run(part: Part) -> None:
        for case, why in chosen.left_out:
            part.value(LATENCY, "s", case._asdict(), None, why)
        if engine == TORCH:
            from flagscale_perf.bench.serving.in_process import Generate

            measure.measure(part, chosen, Generate(chosen), loads)
        else:
            driver = Driver(chosen, max(case.batch for case in chosen.cases))
            measure.measure(part, chosen, driver, loads)

    settings = chosen.settings | {"engine": engine, "longest": chosen.model.longest}
    settings |= {"weights": "random", "vllm": None} if engine == TORCH else {}
    return Plan(measure.points_of(chosen, len(loads)), run, settings)


EXPERIMENT = Experiment(add_arguments, prepare)
