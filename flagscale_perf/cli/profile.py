"""`flagscale-perf profile`: the files of a profile, profiling one's own model, and what a step will need."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from flagscale_perf.analysis.blocks import HeatMap, Report, Series, Waterfall
from flagscale_perf.analysis.job import run_files_in
from flagscale_perf.cli.asking import ask, live_run
from flagscale_perf.cli.base import COMMAND, Command, add_choice, add_count, local_path
from flagscale_perf.cli.instruments import session_of
from flagscale_perf.cli.output import page_of, pictures_of, put_next, write_all
from flagscale_perf.profile.asked import MOST_SECONDS, Request, is_looked_into, requested
from flagscale_perf.profile.prediction import DTYPES, Setup, card_of
from flagscale_perf.profile.standalone.model import GENERATE, TRAIN, Run
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import unwritable
from flagscale_perf.spine.records import EventRecord
from flagscale_perf.spine.units import for_stdout
from flagscale_perf.training.recording.questions import NOT_PROFILED
from flagscale_perf.training.requests import PROFILE

# Steps, tokens, warm-up.
PRESETS = {"debug": (3, 20, 1), "detailed": (10, 100, 3), "production": (20, 200, 5)}
EXIT_NOTHING = 1
MOST_NOW, STEPS_NOW = 100, 3  # steps at once: the most, and if nothing is said
PAGE, AUTO, VLLM = "report.html", "auto", "vllm"
WRITER_S = 60
ALL_SEE_S = 2.0  # until all workers of a server have seen a request
# Each has `check` and `profile` of a `Run`.
BY_TRANSFORMERS = "flagscale_perf.profile.standalone.run"
BY_VLLM = "flagscale_perf.bench.serving.profiled"


class ProfileCommand(Command):
    """Writes the files of a profile, profiles a model made here, or predicts what a step of it needs."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The actions and their options."""
        actions = parser.add_subparsers(dest="action", required=True, metavar=COMMAND, help="what to do")
        report = actions.add_parser("report", help="write the JSON, CSV, PNG, HTML and README of a profile")
        report.add_argument("run", type=local_path, metavar="DIR", help="where the run file is")
        _add_files(report)
        run = actions.add_parser("run", help="profile a Hugging Face model with random weights, then report")
        add_run_options(run)
        _add_files(run)
        predict = actions.add_parser(
            "predict",
            help="say what a step needs before it runs: memory, FLOPs, the least time of each layer",
        )
        _add_prediction(predict)
        about = "profile the next steps of a live training or server of vLLM, without a restart"
        _add_now(actions.add_parser("now", help=about))

    def run(self, args: Namespace) -> int:
        """Raises PerfError for what cannot be profiled, predicted or read."""
        if args.action == "predict":
            return predict_step(args)
        if args.action == "now":
            if args.seconds or args.requests or is_looked_into(args.run):
                return profile_server(args)
            return profile_now(args.run, args.steps or STEPS_NOW)
        if args.action == "run":
            args.run = profile_model(args)
        return report(args.run, args.out or args.run, tuple(args.extend))


def _add_now(parser: ArgumentParser) -> None:
    about = "the --perf-log-dir of a live training, or FLAGSCALE_PERF_PROFILE_DIR of a server of vLLM"
    parser.add_argument("run", type=local_path, metavar="DIR", help=about)
    add_count(parser, "--steps", f"how many to profile, 1 to {MOST_NOW} (default: {STEPS_NOW})")
    add_count(parser, "--seconds", f"of a server: from its next step on, 1 to {MOST_SECONDS:.0f}")
    add_count(parser, "--requests", f"of a server: until so many are answered, {MOST_SECONDS:.0f} s at most")


def profile_server(args: Namespace) -> int:
    """Returns once the server's profile is written. Raises PerfError if none comes."""
    directory, seconds = args.run, args.seconds or MOST_SECONDS
    if seconds > MOST_SECONDS:
        raise PerfError(f"--seconds {seconds:g}: profiled steps take longer; give 1 to {MOST_SECONDS:g}")
    if is_looked_into(directory) is False:
        raise PerfError(
            f"no server of vLLM looks into {str(directory)!r}; start it with"
            f" FLAGSCALE_PERF_PROFILE_DIR={directory}, and without steps"
        )
    is_by_steps = not (args.seconds or args.requests)
    steps = args.steps or (STEPS_NOW if is_by_steps else None)
    _check_steps(steps)
    request = Request(os.urandom(8).hex(), time.time() + ALL_SEE_S, seconds, args.requests, steps)
    before = set(run_files_in(directory))
    with requested(directory, request):
        written(directory, before, seconds + WRITER_S)
    print(f"profiled; then see: flagscale-perf profile report {directory}")
    return 0


def _check_steps(steps: int | None) -> None:
    if steps is not None and steps > MOST_NOW:
        raise PerfError(f"--steps {steps}: profiled steps take longer; give 1 to {MOST_NOW}")


def profile_now(path: Path, steps: int) -> int:
    """Returns once the run has said which steps. Raises PerfError if it does not profile them."""
    _check_steps(steps)
    run = live_run(path)
    answer = ask(
        run, {PROFILE: steps}, lambda record: isinstance(record, EventRecord) and record.name == PROFILE
    )[-1]
    if answer.text.startswith(NOT_PROFILED):
        raise PerfError(f"the run of {str(run.path)!r} is {answer.text}")
    print(for_stdout(f"{answer.text}; then see: flagscale-perf profile report {run.path.parent}"))
    return 0


def _add_files(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--out", type=local_path, metavar="DIR", help="where files go (default: beside the run file)")
    add(
        "--extend",
        action="append",
        default=[],
        metavar="MODULE",
        help="import this module first: it registers operators, figures or charts",
    )


def _add_prediction(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--model",
        type=local_path,
        metavar="PATH",
        help="a config.json of Hugging Face or its directory, read offline (default: a small Qwen3 that is"
        " built in)",
    )
    add_count(parser, "--batch-size", "sequences (default: 1)", 1)
    add_count(parser, "--seq-length", "tokens of a sequence (default: 2048)", 2048)
    add_choice(parser, "--dtype", DTYPES, "of parameters, gradients and optimizer state (default: bf16)")
    about = "adamw (default), or none: forward and backward alone"
    add_choice(parser, "--optimizer", ("adamw", "none"), about)
    add("--inference", action="store_true", help="a forward pass without gradients, which keeps its KV cache")
    add(
        "--device",
        metavar="NAME",
        help='a card, such as "H200": whether it fits there, and the least time of each layer',
    )
    add("--json", action="store_true", help="print one JSON object, with each operator")


def predict_step(args: Namespace) -> int:
    """Prints what a step needs before it runs. Raises PerfError."""
    card = None if args.device is None else card_of(args.device, args.dtype)
    if args.model is not None and not args.model.exists():
        raise PerfError(
            f"--model {args.model}: does not exist; give a config.json or its directory (nothing is"
            " downloaded), or leave it out for a small Qwen3"
        )
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from flagscale_perf.profile.analysis.predicted import report_of
    from flagscale_perf.profile.standalone.fake_step import predict
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


def report(run: Path, out: Path, extend: tuple[str, ...]) -> int:
    """Writes every file and says so; 1 where the profile has no rows. Raises PerfError."""
    from flagscale_perf.profile.analysis import blocks, files, timings
    from flagscale_perf.profile.analysis import extend as extensions
    from flagscale_perf.profile.analysis.instrument import read_report
    from flagscale_perf.report import csv, text

    session = session_of(run, "profile")
    extensions.load(extend)
    found = read_report(session)
    whole = blocks.report_of(found)
    if not found.has_rows:
        print(whole.complaint, file=sys.stderr)
        return EXIT_NOTHING
    contents = {
        files.ANALYSIS: files.analysis_report(found),
        files.COMM: files.comm_analysis(found),
        files.WHOLE: files.comprehensive_report(found),
    }
    page = page_of(whole, PAGE)
    for reason in timings.missing(found.profile):
        print(f"{files.TIMINGS}: {reason}", file=sys.stderr)
    pictures = {**files.pictures(found), **_added(whole)}
    drawn = pictures_of({f"{name}.png": picture for name, picture in pictures.items()})
    wanted: dict[str, str | bytes] = {
        files.TIMINGS: b"".join(timings.lines(found.profile)),
        files.SUMS: "".join(csv.lines(whole)),
        **{name: json.dumps(content, indent=1) + "\n" for name, content in contents.items()},
        **page,
        **drawn,
        "README.md": files.readme(found, whole, list(pictures) if drawn else []),
    }
    write_all(out, wanted)
    print(text.screen(whole), end="")
    names = [files.TIMINGS, files.SUMS, "3 JSON files", f"{len(drawn)} pictures", *page, "README.md"]
    print(f"wrote {out}: {', '.join(names)}")
    put_next(run, out / PAGE if page else None)
    return 0


def _added(whole: Report) -> dict[str, Report]:
    return {
        block.key: replace(
            whole, findings=None, facts=[], tiles=[], sections=[replace(section, blocks=[block])]
        )
        for section in whole.sections
        for block in section.blocks
        if section.key == "added" and isinstance(block, HeatMap | Waterfall | Series)
    }


def profile_model(args: Namespace) -> Path:
    """The directory with its run file. Raises PerfError."""
    if args.model is not None and not (args.model / "config.json").is_file():
        raise PerfError(
            f"--model {args.model}: there is no {args.model / 'config.json'}; give a local directory"
            " that has one (nothing is downloaded), or leave it out for a small Qwen3"
        )
    is_vllm = _is_vllm(args)
    mode = args.mode or (GENERATE if is_vllm or args.pp > 1 else TRAIN)
    steps, tokens, warmup = chosen(args)
    sizes = args.batch_size, args.max_seq_len
    run = Run(args.model, steps, warmup, tokens, *sizes, mode, args.dir, args.tp, args.pp)
    engine = importlib.import_module(BY_VLLM if is_vllm else BY_TRANSFORMERS)
    engine.check(run)
    for option, place in (("--dir", args.dir), ("--out", args.out)):
        if place is not None and (why := unwritable(str(place.absolute()))):
            raise PerfError(f"{option} {place}: takes no files ({why}); name another directory")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    where = f" on {run.ranks} ranks (TP {args.tp}, PP {args.pp})" if run.ranks > 1 else ""
    print(
        f"profiling {steps} steps of {args.model or 'a small Qwen3'}{where} behind {warmup} for warm-up ...",
        flush=True,
    )
    before = set(run_files_in(args.dir))
    engine.profile(run)
    return written(args.dir, before)


def _is_vllm(args: Namespace) -> bool:
    """Raises PerfError where vLLM is asked for and not installed."""
    is_there = importlib.util.find_spec(VLLM) is not None
    is_asked: bool = args.engine == VLLM
    if args.engine == AUTO:
        why = "profiling vLLM" if is_there else "vLLM is not in this Python: profiling transformers instead"
        print(why, file=sys.stderr, flush=True)
        return is_there
    if is_asked and not is_there:
        raise PerfError(
            "--engine vllm: this Python has no vllm; `make venv-vllm` makes .venv_vllm, or leave it out for"
            " transformers"
        )
    return is_asked


def written(directory: Path, before: set[Path], limit_s: float = WRITER_S) -> Path:
    """The directory, once the writer, a process of its own, has finished a new run file. Raises PerfError."""
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        are_written = [
            is_written for path, is_written in run_files_in(directory).items() if path not in before
        ]
        if are_written and not any(are_written):
            return directory
        time.sleep(0.1)
    raise PerfError(
        f"{directory}: no writer has finished a run file of a profile in {limit_s:.0f} s: no step has run, or"
        " see the stderr of what is profiled"
    )


def add_run_options(parser: ArgumentParser) -> None:
    """Adds the options that say what is profiled."""
    add = parser.add_argument
    add(
        "--model",
        type=local_path,
        metavar="PATH",
        help="a directory with a config.json, read offline (default: a small Qwen3 that is built in)",
    )
    add_count(parser, "--tp", "tensor-parallel size (default: 1)", 1)
    add_count(parser, "--pp", "pipeline-parallel size (default: 1)", 1)
    about = "steps, tokens, warm-up: debug 3, 20, 1 (default), detailed 10, 100, 3, production 20, 200, 5"
    add_choice(parser, "--preset", PRESETS, about)
    add_count(parser, "--profile-steps", "steps to profile")
    add_count(parser, "--num-tokens", "tokens of a sequence")
    add_count(parser, "--warmup-steps", "steps before the first profiled one")
    add_count(parser, "--max-seq-len", "longest sequence (default: 2048)", 2048)
    add_count(parser, "--batch-size", "sequences (default: 1)", 1)
    add(
        "--mode",
        choices=("train", "generate"),
        help="training steps (default), or generating: prefill and decode apart (default with --pp, and what"
        " vLLM does)",
    )
    about = "transformers (default); vllm, by its own bench latency; auto: vllm where this Python has it"
    add_choice(parser, "--engine", ("transformers", VLLM, AUTO), about)
    add(
        "--dir",
        type=local_path,
        default=Path("logs/profile"),
        metavar="DIR",
        help="where the run file goes (default: logs/profile)",
    )


def chosen(args: Namespace) -> tuple[int, int, int]:
    """Steps, tokens, warm-up: the preset's, unless given."""
    steps, tokens, warmup = PRESETS[args.preset]
    return args.profile_steps or steps, args.num_tokens or tokens, args.warmup_steps or warmup
