"""`flagscale-perf profile watch`: the same measurement again and again, each compared with a baseline."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from flagscale_perf.analysis.compare import student
from flagscale_perf.analysis.compare.compare import NOT_SLOWER, CompareOptions, Comparison
from flagscale_perf.analysis.compare.judge import SLOWER
from flagscale_perf.analysis.run_file import find_run_file
from flagscale_perf.analysis.runs import find_runs
from flagscale_perf.cli.base import EXIT_SLOWER, EXIT_UNDECIDED, percentage, whole_number
from flagscale_perf.cli.instruments import instrument_for
from flagscale_perf.cli.stopping import Stop
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.figures import csv_line
from flagscale_perf.spine.files import replace_file

DEFAULT = ("profile", "run", "--preset", "detailed")
OUT = {"profile": "--dir", "bench": "-o"}
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
RUN, FAILED = "run_", "failed_"
HISTORY = "history.csv"
HEAD = ("run", "outcome", "change", "low", "high", "noise", "baseline_runs", "worst")
ENOUGH_RUNS = 3  # of a baseline, from which on they show what runs differ by
NORMAL = 1.959964  # what 95 % of a normal distribution lie within, in standard deviations
EXIT_FAILED = 2
END_S = 60.0  # that a run may take to end when it is interrupted: servers end one after another


def add_watch(parser: ArgumentParser) -> None:
    """How often, against what, and which command."""
    add = parser.add_argument
    parser.description = (
        "Runs `flagscale-perf COMMAND` (profile run, or bench ...) once a period, each in a directory of its"
        " own, and compares it with the runs of a baseline. Where there is none, the first runs become it."
    )
    parser.epilog = (
        "exit codes, of the last run with --once or --times: 0 not slower, or it became part of the baseline;"
        " 1 slower; 2 it could not be run or compared; 3 undecided. With --times, 1 if any was slower. Ctrl-C"
        " ends it with 130 and SIGTERM with 143: the run under way is ended, too, and what it wrote is kept."
    )
    add("--every", type=_period, default=3600, metavar="1h", help="period: 30s, 10m, 1h, 1d")
    add(
        "--baseline",
        type=Path,
        required=True,
        metavar="DIR",
        help="runs to compare with, this deep or deeper",
    )
    add(
        "--dir",
        type=Path,
        default=Path("outputs/watch"),
        metavar="DIR",
        help="where the runs go (default: outputs/watch)",
    )
    add(
        "--baseline-runs",
        type=whole_number,
        default=ENOUGH_RUNS,
        metavar="N",
        help="runs that a baseline is made of (default: 3, from which on they show what runs differ by)",
    )
    add(
        "--fail-if-slower",
        type=percentage,
        default=0.05,
        metavar="PERCENT",
        help="what a run may be slower (default: 5%%)",
    )
    add("--keep", type=whole_number, default=24, metavar="N", help="newest runs that are kept (default: 24)")
    add("--once", action="store_true", help="one run and its exit code, for CI")
    add("--times", type=whole_number, metavar="N", help="end after this many runs")
    add("words", nargs="*", metavar="COMMAND", help=f"after --: what is run (default: {' '.join(DEFAULT)})")


@dataclass(frozen=True)
class Outcome:
    """What became of one run.

    Attributes:
        code: as an exit code.
        words: for people; row: of the history.
    """

    code: int
    words: str
    row: Sequence[object]


def watch(args: Namespace) -> int:
    """Raises PerfError for a command that is none."""
    words = tuple(args.words) or DEFAULT
    if len(words) < 2 or words[0] not in OUT or (words[0] == "profile" and words[1] != "run"):
        raise PerfError(
            f"{' '.join(words)!r} is not watched; write profile run ... or bench NAME ... after --"
        )
    codes: list[int] = []
    with Stop() as stop:
        try:
            _again(args, words, codes, stop)
        except KeyboardInterrupt:
            where = f"; runs so far: {len(codes)}, each a line of {args.dir / HISTORY}" if codes else ""
            print(f"stopped by {stop.name}{where}")
            return stop.code
    return EXIT_SLOWER if EXIT_SLOWER in codes else codes[-1]


def _again(args: Namespace, words: Sequence[str], codes: list[int], stop: Stop) -> None:
    """Run by run. Raises KeyboardInterrupt where it is stopped, all that belongs to a run being written."""
    times = 1 if args.once else args.times
    next_s = time.monotonic()
    while times is None or len(codes) < times:
        outcome = _once(args, words, stop)
        print(outcome.words, flush=True)
        _remember(args.dir / HISTORY, outcome.row)
        _forget(args.dir, args.keep)
        codes.append(outcome.code)
        with stop.waiting():
            if times is None or len(codes) < times:
                next_s = _next(next_s, args.every, time.monotonic())
                time.sleep(max(0.0, next_s - time.monotonic()))


def _once(args: Namespace, words: Sequence[str], stop: Stop) -> Outcome:
    """One run, compared, or taken into the baseline."""
    name = f"{RUN}{time.strftime('%Y%m%d_%H%M%S')}"
    base = _runs(args.baseline)
    is_base = len(base) < args.baseline_runs
    directory = (args.baseline if is_base else args.dir) / name
    try:
        _run([*words, OUT[words[0]], str(directory)], directory, stop)
        if is_base:
            said = f"{name}: {len(base) + 1} of {args.baseline_runs} runs of the baseline, {directory}"
            return Outcome(0, said, (name, "baseline", *[None] * 6))
        return _compared(name, directory, base, args.fail_if_slower)
    except (PerfError, KeyboardInterrupt) as error:
        kept = _put_aside(directory, args.dir / f"{FAILED}{name}")
        outcome, why = ("failed", str(error)) if isinstance(error, PerfError) else ("stopped", "stopped")
        return Outcome(EXIT_FAILED, f"{name}: {why}{kept}", (name, outcome, *[None] * 6))


def _put_aside(directory: Path, kept: Path) -> str:
    """What a run that failed has written, where no baseline counts it; returns what to say of it."""
    if not directory.is_dir():
        return ""
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(directory, kept)
    except OSError as error:
        raise PerfError(f"{kept}: cannot be written ({error.strerror}); give another --dir") from None
    return f"; what it wrote is in {kept}"


def _run(words: Sequence[str], directory: Path, stop: Stop) -> None:
    """Raises PerfError where it fails, with its last line, and KeyboardInterrupt where it is stopped."""
    with subprocess.Popen(
        [sys.executable, "-m", "flagscale_perf", *words],
        stdin=subprocess.DEVNULL,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            with stop.waiting():
                printed, _ = process.communicate()
        except KeyboardInterrupt:
            _interrupt(process, stop)
            raise
    if process.returncode:
        lines = [line for line in printed.splitlines() if line.strip()]
        last = lines[-1] if lines else "it printed nothing"
        raise PerfError(f"flagscale-perf {' '.join(words)} ended with {process.returncode}: {last}")
    if not directory.is_dir():
        raise PerfError(f"flagscale-perf {' '.join(words)} has written nothing to {directory}")


def _interrupt(process: subprocess.Popen[str], stop: Stop) -> None:
    """Lets a run end as Ctrl-C would, which it gets once: the terminal's own does not reach its session. A
    second signal kills it.
    """
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt), stop.waiting(for_another=True):
        process.communicate(timeout=END_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _runs(directory: Path) -> list[Path]:
    """Run files of the baseline; of profiles inside an experiment's directory, none."""
    if not directory.is_dir():
        return []
    try:
        found = find_runs(directory).paths
    except PerfError:
        return []
    shallow = min(len(path.parts) for path in found)
    return [path for path in found if len(path.parts) == shallow]


def _compared(name: str, directory: Path, base: list[Path], limit: float) -> Outcome:
    path = find_run_file(directory)
    instrument = instrument_for(path)
    options = CompareOptions(fail_if_slower=limit)
    noise = noise_of([one.judged for one in instrument.compare(base, [path], options).base_runs])
    result = instrument.compare(base, [path], CompareOptions(noise=noise, fail_if_slower=limit))
    render = importlib.import_module("flagscale_perf.report.markdown").render
    replace_file(directory / "comparison.md", render(instrument.comparison(result)).encode())
    return _outcome(name, result, len(base))


def noise_of(judged: Sequence[float]) -> float | None:
    """What the runs of a baseline differ by, as a standard deviation and a share; larger by as much as so few
    runs know it worse. None for fewer than `ENOUGH_RUNS`.
    """
    if len(judged) < ENOUGH_RUNS or not fmean(judged):
        return None
    return stdev(judged) / fmean(judged) * student.quantile(0.975, len(judged) - 1) / NORMAL


def _outcome(name: str, result: Comparison, base: int) -> Outcome:
    whole, gate = result.whole, result.gate
    outcome = gate.outcome if gate is not None else whole.verdict
    code = {NOT_SLOWER: 0, SLOWER: EXIT_SLOWER}.get(outcome, EXIT_UNDECIDED)
    worst = result.culprits[0] if result.culprits else None
    said = (
        f"{name}: {_share(whole.share)} ({_share(whole.share_low)} to {_share(whole.share_high)}), {outcome}"
    )
    said += f", most in {worst}" if worst else ""
    noise = f"{100 * result.noise:.1f} %"
    said += (
        f"; {base} runs of the baseline differ by {noise}"
        if base >= ENOUGH_RUNS
        else f"; noise of {noise} is assumed: a baseline shows its own from {ENOUGH_RUNS} runs on"
    )
    row = (name, outcome, whole.share, whole.share_low, whole.share_high, result.noise, base, worst)
    return Outcome(code, said, row)


def _share(value: float | None) -> str:
    return "?" if value is None else f"{100 * value:+.1f} %"


def _remember(path: Path, row: Sequence[object]) -> None:
    """A line more. Raises PerfError for a directory that cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_bytes() if path.exists() else csv_line(HEAD).encode()
        replace_file(path, before + csv_line(row).encode())
    except OSError as error:
        raise PerfError(f"{path}: cannot be written ({error.strerror}); give another --dir") from None


def _forget(directory: Path, keep: int) -> None:
    """Removes what is older than the newest runs, and than the newest that failed."""
    for kind in (RUN, FAILED):
        for old in sorted(directory.glob(f"{kind}*"))[:-keep]:
            shutil.rmtree(old, ignore_errors=True)


def _next(before_s: float, period_s: float, now_s: float) -> float:
    """The next multiple of the period; those that a long run has missed are left out."""
    missed = max(0, int((now_s - before_s) // period_s))
    return before_s + (missed + 1) * period_s


def _period(text: str) -> int:
    found = re.fullmatch(r"(\d+)([smhd])", text)
    if found is None or not int(found[1]):
        raise ArgumentTypeError(f"{text!r} is not a period; write one such as 30s, 10m, 1h or 1d")
    return int(found[1]) * SECONDS[found[2]]
