"""`flagscale-perf profile`: the files and pictures of a profile, profiling a model of one's own, and what a
step will need before it runs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from flagscale_perf.analysis.blocks import Boxes, HeatMap, Report, Series, Waterfall
from flagscale_perf.analysis.run_file import RunFile, check_instrument, find_run_file
from flagscale_perf.cli.base import Command, whole_number
from flagscale_perf.cli.profile_watch import add_watch, watch
from flagscale_perf.profile.prediction import DTYPES, Setup, card_of
from flagscale_perf.spine.delays import Delays
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import make_directory, replace_file

PRESETS = {
    "debug": (3, 20, 1),
    "detailed": (10, 100, 3),
    "production": (20, 200, 5),
}  # steps, tokens, warm-up
EXIT_NOTHING = 1
CHARTS = "charts"
RUN_FILES, WRITER_S = "perf_records_*.jsonl", 60


class ProfileCommand(Command):
    """Writes the files of a profile, profiles a model made here once or again and again, or predicts what a
    step of it needs.
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The actions and their options."""
        actions = parser.add_subparsers(
            dest="action", required=True, metavar="report | run | predict | watch", help="what to do"
        )
        report = actions.add_parser("report", help="write the JSON, CSV, PNG, HTML and README of a profile")
        report.add_argument("run", type=Path, metavar="DIR", help="where the run file is")
        _add_files(report)
        run = actions.add_parser("run", help="profile a Hugging Face model with random weights, then report")
        add_run_options(run)
        _add_files(run)
        predict = actions.add_parser(
            "predict",
            help="say what a step needs before it runs: memory, FLOPs, the least time of each layer",
        )
        _add_prediction(predict)
        add_watch(actions.add_parser("watch", help="measure again and again, each against a baseline"))

    def run(self, args: Namespace) -> int:
        """Raises PerfError for what cannot be profiled, predicted or read."""
        if args.action == "predict":
            return predict_step(args)
        if args.action == "watch":
            return watch(args)
        if args.action == "run":
            args.run = profile_model(args)
        return report(args.run, args.out or args.run, tuple(args.extend))


def _add_files(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where files go (default: beside the run file)"
    )
    parser.add_argument(
        "--extend", action="append", default=[], metavar="MODULE",
        help="import this module first: it registers operators, figures or charts",
    )  # fmt: skip


def _add_prediction(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--model", type=Path, metavar="PATH",
        help="a config.json of Hugging Face or its directory, read offline (default: a small Qwen3 that is"
        " built in)",
    )  # fmt: skip
    parser.add_argument(
        "--batch-size", type=whole_number, default=1, metavar="N", help="sequences (default: 1)"
    )
    parser.add_argument(
        "--seq-length",
        type=whole_number,
        default=2048,
        metavar="N",
        help="tokens of a sequence (default: 2048)",
    )
    parser.add_argument(
        "--dtype", choices=tuple(DTYPES), default="bf16",
        help="of parameters, gradients and optimizer state (default: bf16)",
    )  # fmt: skip
    parser.add_argument(
        "--optimizer", choices=("adamw", "none"), default="adamw",
        help="adamw (default), or none: forward and backward alone",
    )  # fmt: skip
    parser.add_argument(
        "--inference", action="store_true", help="a forward pass without gradients, which keeps its KV cache"
    )
    parser.add_argument(
        "--device", metavar="NAME",
        help='a card, such as "H200": whether it fits there, and the least time of each layer',
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object, with each operator")


def predict_step(args: Namespace) -> int:
    """Prints it. Raises PerfError."""
    card = None if args.device is None else card_of(args.device, args.dtype)
    if args.model is not None and not args.model.exists():
        raise PerfError(
            f"--model {args.model}: does not exist; give a config.json or its directory (nothing is"
            " downloaded), or leave it out for a small Qwen3"
        )
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from flagscale_perf.hosts.profiling.predicted import predict
    from flagscale_perf.profile.analysis.predicted import report_of
    from flagscale_perf.report import text

    optimizer = "none" if args.inference else args.optimizer
    setup = Setup(
        model=str(args.model or "a small Qwen3"),
        batch=args.batch_size,
        tokens=args.seq_length,
        dtype=DTYPES[args.dtype],
        optimizer=optimizer,
        is_inference=args.inference,
        is_foreach=card is not None and optimizer != "none",
    )
    made = report_of(predict(setup, args.model), card)
    print(json.dumps(made.content.as_dict(), indent=1) + "\n" if args.json else text.render(made), end="")
    return 0


def report(run: Path, out: Path, extend: tuple[str, ...] = ()) -> int:
    """Writes every file and says so; 1 where the profile has no rows. Raises PerfError."""
    from flagscale_perf.profile.analysis import blocks, files, timings
    from flagscale_perf.profile.analysis import extend as extensions
    from flagscale_perf.profile.analysis.report import read_report
    from flagscale_perf.report import csv, html, text

    path = find_run_file(run)
    check_instrument(path, RunFile(path).header, "profile", "give its directory to `flagscale-perf report`")
    extensions.load(extend)
    found = read_report(path)
    whole = blocks.report_of(found)
    if not found.has_rows:
        print(whole.complaint, file=sys.stderr)
        return EXIT_NOTHING
    _directory(out)
    _write(out / files.TIMINGS, b"".join(timings.lines(found.profile)))
    _write(out / files.SUMS, "".join(csv.lines(whole)))
    for name, content in (
        (files.ANALYSIS, files.analysis_report(found)), (files.COMM, files.comm_analysis(found)),
        (files.WHOLE, files.comprehensive_report(found)),
    ):  # fmt: skip
        _write(out / name, json.dumps(content, indent=1) + "\n")
    _write(out / "report.html", html.render(whole))
    for reason in timings.missing(found.profile):
        print(f"{files.TIMINGS}: {reason}", file=sys.stderr)
    shown = _pictures(out, {**files.pictures(found), **_added(whole)})
    _charts(out / CHARTS, whole)
    _write(out / "README.md", files.readme(found, whole, shown))
    print(text.render(whole), end="")
    print(f"\nwrote {out}: {files.TIMINGS}, {files.SUMS}, 3 JSON files, {len(shown)} pictures, report.html,"
          f" README.md, {CHARTS}/*.csv")  # fmt: skip
    return 0


def _added(whole: Report) -> dict[str, Report]:
    """A picture of each registered chart."""
    return {
        block.key: replace(
            whole, findings=None, facts=[], tiles=[], sections=[replace(section, blocks=[block])]
        )
        for section in whole.sections
        for block in section.blocks
        if section.key == "added" and isinstance(block, HeatMap | Waterfall | Boxes | Series)
    }


def _pictures(out: Path, pictures: Mapping[str, Report]) -> list[str]:
    """Those that could be drawn; without matplotlib none, which is said."""
    try:
        from flagscale_perf.report import png

        for name, picture in pictures.items():
            _write(out / f"{name}.png", png.render(picture))
    except PerfError as error:
        print(error, file=sys.stderr)
        return []
    return list(pictures)


def _charts(out: Path, whole: Report) -> None:
    from flagscale_perf.report.chart_rows import rows_of
    from flagscale_perf.spine.figures import csv_line

    _directory(out)
    for section in whole.sections:
        for block in section.blocks:
            made = rows_of(block)
            if made is not None:
                name, rows = made
                _write(out / f"{name}.csv", "".join(map(csv_line, rows)))


def _directory(path: Path) -> None:
    try:
        make_directory(path)
    except OSError as error:
        raise PerfError(f"--out {path}: cannot be made ({error.strerror}); name another directory") from None


def _write(path: Path, content: str | bytes) -> None:
    try:
        replace_file(path, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise PerfError(f"{path}: cannot be written ({error.strerror}); give another --out") from None


def profile_model(args: Namespace) -> Path:
    """The directory with its run file. Raises PerfError."""
    if args.causal is not None and args.mode != "train":
        raise PerfError(
            f"--causal {args.causal}: only training steps are delayed; leave out --mode {args.mode}"
        )
    if args.model is not None and not (Path(args.model) / "config.json").is_file():
        raise PerfError(
            f"--model {args.model}: there is no {Path(args.model) / 'config.json'}; give a local directory"
            " that has one (nothing is downloaded), or leave it out for a small Qwen3"
        )
    from flagscale_perf.hosts.profiling.own_model import OwnRun, check, profile_own
    from flagscale_perf.hosts.profiling.own_ranks import run_ranks

    steps, tokens, warmup = chosen(args)
    directory: Path = args.dir
    model = None if args.model is None else Path(args.model)
    sizes = args.batch_size, args.max_seq_len
    causal = "" if args.causal is None else str(args.causal)
    run = OwnRun(model, steps, warmup, tokens, *sizes, args.mode, directory, args.tp, args.pp, causal)
    check(run)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    where = f" on {run.ranks} ranks (TP {run.tensor}, PP {run.pipeline})" if run.ranks > 1 else ""
    print(
        f"profiling {steps} steps of {model or 'a small Qwen3'}{where} behind {warmup} for warm-up ...",
        flush=True,
    )
    before = set(directory.glob(RUN_FILES))
    (run_ranks if run.ranks > 1 else profile_own)(run)
    return written(directory, before)


def written(directory: Path, before: set[Path]) -> Path:
    """The directory, once the writer, a process of its own, has written a run file that was not there before.
    Raises PerfError.
    """
    end_s = time.monotonic() + WRITER_S
    while time.monotonic() < end_s:
        new = set(directory.glob(RUN_FILES)) - before
        if new and all(path.stat().st_size and not RunFile(path).is_live() for path in new):
            return directory
        time.sleep(0.1)
    raise PerfError(f"--dir {directory}: the writer has not finished a run file in {WRITER_S} s; see stderr")


def add_run_options(parser: ArgumentParser) -> None:
    """Model, sizes, steps."""
    parser.add_argument(
        "--model",
        metavar="PATH",
        help="a directory with a config.json, read offline (default: a small Qwen3 that is built in)",
    )
    parser.add_argument(
        "--tp", type=whole_number, default=1, metavar="N", help="tensor-parallel size (default: 1)"
    )
    parser.add_argument(
        "--pp", type=whole_number, default=1, metavar="N", help="pipeline-parallel size (default: 1)"
    )
    parser.add_argument(
        "--preset",
        choices=tuple(PRESETS),
        default="debug",
        help="steps, tokens, warm-up: debug 3, 20, 1 (default), detailed 10, 100, 3, production 20, 200, 5",
    )
    parser.add_argument("--profile-steps", type=whole_number, metavar="N", help="steps to profile")
    parser.add_argument("--num-tokens", type=whole_number, metavar="N", help="tokens of a sequence")
    parser.add_argument(
        "--warmup-steps", type=whole_number, metavar="N", help="steps before the first profiled one"
    )
    parser.add_argument(
        "--max-seq-len", type=whole_number, default=2048, metavar="N", help="longest sequence (default: 2048)"
    )
    parser.add_argument(
        "--batch-size", type=whole_number, default=1, metavar="N", help="sequences (default: 1)"
    )
    parser.add_argument(
        "--mode",
        choices=("train", "generate"),
        default="train",
        help="training steps (default), or generating: prefill and decode apart",
    )
    parser.add_argument(
        "--causal",
        type=_delays,
        metavar="DELAYS",
        help="after the profiled steps, slow training steps down on purpose, to see how much of a delay the"
        " step feels: 0:model.layers.0,ms=5/10/20",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path("logs/profile"),
        metavar="DIR",
        help="where the run file goes (default: logs/profile)",
    )


def _delays(text: str) -> Delays:
    try:
        return Delays.parse(text)
    except PerfError as error:
        raise ArgumentTypeError(str(error)) from None


def chosen(args: Namespace) -> tuple[int, int, int]:
    """Steps, tokens, warm-up: the preset's, unless given."""
    given = (args.profile_steps, args.num_tokens, args.warmup_steps)
    steps, tokens, warmup = (
        one if one is not None else other for one, other in zip(given, PRESETS[args.preset], strict=True)
    )
    return steps, tokens, warmup
