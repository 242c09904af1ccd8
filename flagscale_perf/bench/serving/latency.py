"""`flagscale-perf bench latency`: time to the first and to each further token, by length and batch."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flagscale_perf.bench.experiment import Experiment, Plan
from flagscale_perf.bench.names import LATENCY
from flagscale_perf.bench.recording import Part
from flagscale_perf.bench.serving import measure, options
from flagscale_perf.bench.serving.driver import Driver
from flagscale_perf.bench.serving.options import Sizes
from flagscale_perf.bench.serving.vllm_python import devices

FULL = Sizes((1, 2, 4, 8), (128, 256, 512, 1024, 2048, 4096, 8192), (50, 100, 200))
QUICK = Sizes((1, 4), (128, 512), (16,))
PAIR = 2


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the options for model and sizes."""
    options.add_model(parser)
    options.add_sizes(parser)
    options.add_arms(parser)


def prepare(args: Namespace) -> Plan:
    """Raises PerfError for what cannot be measured here."""
    found = devices()
    parallel = [PAIR] if found.are_gpus and found.count >= PAIR else []
    cases = options.cases_of(args, QUICK if args.quick else FULL)
    is_given, advice = bool(args.seq_lens or args.output_lens), "give shorter --seq-lens or --output-lens"
    chosen = options.chosen(args, cases, is_given, advice, parallel)
    loads = {"": measure.job}

    def run(part: Part) -> None:
        for case, why in chosen.left_out:
            part.value(LATENCY, "s", case._asdict(), None, why)
        driver = Driver(chosen, max(case.batch for case in chosen.cases))
        measure.measure(part, chosen, driver, loads)

    settings = chosen.settings | {"longest": chosen.model.longest}
    return Plan(measure.points_of(chosen, len(loads)), run, settings)


EXPERIMENT = Experiment(add_arguments, prepare)
