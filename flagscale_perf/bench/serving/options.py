"""Options shared by latency and parallelism; options of one name mean the same in both."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from flagscale_perf.bench.experiment import whole
from flagscale_perf.bench.serving.cases import SEED, Arm, Case, arms_of, check_devices, fitting, numbers
from flagscale_perf.bench.serving.model import Model, read_model
from flagscale_perf.bench.serving.vllm_python import Devices, devices, find_python, version_of

START_S = 600.0
RAW = "vllm"  # folder for the files of vLLM's bench, beside the run file


class Sizes(NamedTuple):
    """The sizes to measure by default."""

    batches: tuple[int, ...]
    seqs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Chosen:
    """The checked choice of what is measured.

    Attributes:
        python: that has vLLM.
        model: what runs.
        devices: of this machine.
        arms, cases, repeats: what is measured.
        left_out: cases that the model cannot do, each with the reason.
        directory: of what vLLM writes.
        is_eager: whether nothing is compiled.
        start_s: that a server may take until it answers.
    """

    python: str
    model: Model
    devices: Devices
    arms: list[Arm]
    cases: list[Case]
    repeats: int
    left_out: list[tuple[Case, str]]
    directory: Path
    is_eager: bool
    start_s: float = START_S

    @property
    def served(self) -> Path:
        """The directory with the configuration and the tokenizer that vLLM is given."""
        return self.directory / "model"

    @property
    def widest(self) -> int:
        """Devices of the largest arm."""
        return max(arm.devices for arm in self.arms)

    @property
    def longest(self) -> int:
        """Tokens of a request, prompt and output, at most."""
        return self.model.longest or max(case.tokens for case in self.cases) + 1

    @property
    def settings(self) -> dict[str, Any]:
        """The settings in the run file."""
        return {
            "model": self.model.name,
            "weights": self.model.weights,
            "device": self.devices.what,
            "devices": self.devices.count,
            "eager": self.is_eager,
            "repeats": self.repeats,
            "arms": [arm.name for arm in self.arms],
            "seed": SEED,
            "vllm": version_of(self.python),
        }


def add_model(parser: ArgumentParser) -> None:
    """Adds the options for model and vLLM."""
    parser.add_argument(
        "--model",
        metavar="DIR",
        help="a local directory with a config.json; without weights in it they are random (default: a small"
        " Qwen3 that is built in)",
    )
    parser.add_argument(
        "--max-model-len",
        "--max_model_len",
        type=whole,
        metavar="N",
        help="longest sequence, prompt and output (default: what the model is made for)",
    )
    parser.add_argument(
        "--vllm-python", metavar="PROGRAM", help="Python of the environment that has vLLM (default: this one)"
    )
    parser.add_argument(
        "--eager",
        action="store_true",
        help="vLLM compiles nothing and has no CUDA graphs (--quick does that)",
    )
    parser.add_argument(
        "--start-timeout",
        type=whole,
        default=int(START_S),
        metavar="S",
        help="seconds that vLLM may take to start (default: %(default)s)",
    )


def add_arms(parser: ArgumentParser) -> None:
    """Adds the options for repetitions and for the arms beside the single device."""
    parser.add_argument(
        "--repeats",
        type=whole,
        default=3,
        metavar="N",
        help="how often each is measured (default: %(default)s)",
    )
    for name, what in (("--tp", "tensor-parallel sizes"), ("--pp", "pipeline sizes")):
        parser.add_argument(
            name, type=numbers, metavar="N,...", help=f"{what} beside one device (default: 2 where measured)"
        )


def add_sizes(parser: ArgumentParser) -> None:
    """Adds the options for sizes; lists are written as 128,512."""
    parser.add_argument("--batch-sizes", type=numbers, metavar="N,...", help="requests at a time")
    parser.add_argument("--seq-lens", type=numbers, metavar="N,...", help="tokens of a prompt")
    parser.add_argument("--output-lens", type=numbers, metavar="N,...", help="tokens that a request makes")


def cases_of(args: Namespace, usual: Sizes) -> list[Case]:
    """Every combination of the given sizes, or of the default ones."""
    return [
        Case(batch, seq, output)
        for output in args.output_lens or usual.outputs
        for seq in args.seq_lens or usual.seqs
        for batch in args.batch_sizes or usual.batches
    ]


def chosen(args: Namespace, cases: list[Case], is_given: bool, advice: str, parallel: list[int]) -> Chosen:
    """The cases to measure. Raises PerfError for what this machine or the model cannot do.

    Args:
        args: of the command line.
        cases: what is wanted; `is_given`: by the user.
        advice: what to give instead of cases that are too long.
        parallel: sizes of TP, and of PP, where none are given.
    """
    model, found = read_model(args.model, args.max_model_len), devices()
    arms = arms_of(parallel if args.tp is None else args.tp, parallel if args.pp is None else args.pp)
    check_devices(arms, found.count, found.what)
    fit, left_out = fitting(cases, model, is_given, advice)
    return Chosen(
        find_python(args.vllm_python),
        model,
        found,
        arms,
        fit,
        args.repeats,
        left_out,
        (args.out / RAW).absolute(),
        bool(args.eager or args.quick),
        float(args.start_timeout),
    )
