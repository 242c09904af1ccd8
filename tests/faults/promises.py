"""What must hold whatever happens to the monitor: the same checks for every fault, and the figures they were
made on.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.cli import main
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.records import EventRecord, Record, RunEnd
from flagscale_perf.spine.session import REALTIME_FILE
from flagscale_perf.store.decoder import decode
from flagscale_perf.store.run_file import RunFile
from flagscale_perf.training.analysis.fold import read_summary
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.phases import PhaseJoin
from flagscale_perf.training.records import IntervalRecord, PhaseRecord, StepRecord
from flagscale_perf.training.summary.totals import RunTotals
from flagscale_perf.training.utilisation import Scale
from flagscale_perf.training.window import IntervalWindow
from tests.faults.fault import ALL, ELSEWHERE, LATER, NOTHING, REMOVED, Fault
from tests.faults.job import LOOP, TENSORBOARD, Job
from tests.processes import flagscale as fs

# beyond the healthy run's: a machine shared with others stalls by itself; a blocked disk does for 5 s and
# more
STALL_LIMIT_S = 2.0
EXIT_LIMIT_S = 2.0 + 2.0  # what the monitor may wait for its writer, and the same again for the machine
HEALTHY = (
    "rehearsing on the CPU",
    "rehearsal changes",
    "not available: ",
    "summary in ",
)  # what every run says
STARVED = "the writer is blocked: others take its CPU"
# the last line of a run whose files are not whole; `late` records may still come after it
CLOSING = re.compile(
    r"nothing was recorded|nothing is recorded yet|not everything was written: "
    r"|(?P<lost>\d+) of \d+ records are missing from |(?P<late>\d+) of \d+ records are not yet in "
)


@dataclass(frozen=True)
class Ended:
    """A run that has ended, by its console and the host's own curve.

    Attributes:
        code: its exit code.
        output: everything it printed.
        lines: the host's iteration lines, without times.
        losses: of the host's own curve, exact.
        done: the last iteration it printed; of several attempts, the greatest.
        attempts: the same for each time that torchrun started the job.
        longest_gap_s: between two iterations of one attempt.
        exit_s: from the last iteration to the end of the process.
    """

    code: int
    output: str
    lines: list[str]
    losses: list[tuple[int, str]]
    done: int
    attempts: list[int]
    longest_gap_s: float
    exit_s: float

    @classmethod
    def of(cls, running: Job, code: int, host: str) -> Ended:
        lines = fs.Finished(code, running.output).lines
        curve = running.directory / TENSORBOARD
        losses = (
            [(step, value.hex()) for step, value in fs.host_losses(curve)]
            if host != LOOP and code == 0
            else []
        )
        printed = running.printed
        # The first iteration warms up; where the iterations begin again, torchrun has started the job anew.
        gaps = [at - before for (last, before), (now, at) in pairwise(printed[1:]) if now > last]
        attempts = [last for (last, _), (now, _) in pairwise([*printed, (0, 0.0)]) if now <= last]
        exit_s = running.ended_s - printed[-1][1] if printed else 0.0
        done = max(attempts, default=0)
        return cls(code, running.output, lines, losses, done, attempts, max(gaps, default=0.0), exit_s)

    def said(self) -> str:
        """What it printed beside its iterations, for a failure's message."""
        others = [line for line in self.output.splitlines() if not fs.ITERATION.search(line)]
        return "\n".join([*others[-60:], f"{self.done} iterations, exit code {self.code}"])


@dataclass(frozen=True)
class Figures:
    """Of one fault, for the page.

    Attributes:
        done: iterations the host printed.
        kept: steps in the run file.
        stall_ms: the longest wait between two iterations less the healthy run's; below 0: it was shorter.
        exit_ms: from the last iteration to the end of the process, less the healthy run's.
        lines: about failures, on the console.
        on_training: file calls in the log directory by the training's own thread.
        times: how often it was run; the figures above are sums (`done`, `kept`) and maxima.
    """

    done: int
    kept: int
    stall_ms: int
    exit_ms: int
    lines: int
    on_training: int
    times: int = 1

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    def joined(self, other: Figures) -> Figures:
        """Of both runs."""
        return Figures(
            self.done + other.done,
            self.kept + other.kept,
            max(self.stall_ms, other.stall_ms),
            max(self.exit_ms, other.exit_ms),
            max(self.lines, other.lines),
            self.on_training + other.on_training,
            self.times + other.times,
        )


@dataclass(frozen=True)
class Kept:
    """What a run file has: the iterations of its steps and intervals, the texts of its events."""

    steps: list[int]
    intervals: list[int]
    events: list[str]


class Promises:
    """Collects what does not hold; every check adds a phrase with the values."""

    def __init__(self, fault: Fault, running: Job, ended: Ended, healthy: Ended) -> None:
        self._fault, self._running, self._ended, self._healthy = fault, running, ended, healthy
        self._said = complaints(ended.output)
        self.broken: list[str] = []
        is_read = len(ended.attempts) == fault.jobs  # what two jobs beside one another print is read of one
        self._done = ended.attempts if is_read else [ended.done] * fault.jobs

    def check(self) -> Figures:
        """All of them."""
        self._training_is_untouched()
        kept = self._records()
        self._last_line(sum(self._done) - sum(len(each.steps) for each in kept))
        self._console([event for each in kept for event in each.events])
        stall_s = self._ended.longest_gap_s - self._healthy.longest_gap_s - self._fault.stops_s
        exit_s = self._ended.exit_s - self._healthy.exit_s
        self._hold(stall_s < STALL_LIMIT_S, f"the training stood {stall_s:.1f} s longer than a healthy one")
        self._hold(
            self._fault.ends_early or exit_s < EXIT_LIMIT_S,
            f"the end took {exit_s:.1f} s longer than a healthy one",
        )
        on_training = self._running.shim.get("on_training")
        self._hold(on_training == 0, f"{on_training} file calls on the training thread")
        return Figures(
            sum(self._done),
            sum(len(each.steps) for each in kept),
            round(stall_s * 1000),
            round(exit_s * 1000),
            len(self._said),
            on_training,
        )

    def _hold(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.broken.append(otherwise)

    def _training_is_untouched(self) -> None:
        ended, healthy = self._ended, self._healthy
        code = healthy.code if self._fault.code is None else self._fault.code
        self._hold(ended.code == code, f"exit code {ended.code}, not {code}: {ended.output[-2000:]}")
        count = len(ended.lines) if self._fault.ends_early else len(healthy.lines)
        self._hold(
            ended.lines == healthy.lines[:count] and count > 0,
            "the host's lines differ from the healthy run's",
        )
        if not self._fault.ends_early:
            self._hold(ended.losses == healthy.losses, "losses differ from the healthy run's")

    def _records(self) -> list[Kept]:
        """What each run file has, in the order of the sessions."""
        files = self._running.run_files(self._fault.kept_in)
        if self._fault.loses == ALL:
            self._hold(files == [], f"there is a run file: {files}")
            return []
        if self._fault.loses == ELSEWHERE:
            self._hold(files == [], f"there is a run file: {files}")
            places = re.findall(r"what waited is in (\S+)", self._ended.output)
            files = [path for place in places for path in Path(place).glob("perf_records_*.jsonl")]
        self._hold(len(files) == self._fault.jobs, f"{len(files)} run files")
        kept = [self._session(path, done) for path, done in zip(files, self._done, strict=False)]
        if files and self._fault.loses == NOTHING:
            intervals = [iteration for each in kept for iteration in each.intervals]
            self._log("live log", [files[0].with_name(REALTIME_FILE)], intervals)
        return kept

    def _session(self, run_file: Path, done: int) -> Kept:
        """What one run file has; `done`: the last iteration that the host printed in this session."""
        try:
            records = [decode(line) for line in run_file.read_bytes().splitlines(keepends=True)]
        except ValueError as error:
            self.broken.append(f"the run file is damaged: {error}")
            return Kept([], [], [])
        steps = [record for record in records if isinstance(record, StepRecord)]
        kept = Kept(
            [step.iteration for step in steps],
            [record.iteration for record in records if isinstance(record, IntervalRecord)],
            [record.text for record in records if isinstance(record, EventRecord)],
        )
        self._kept(kept.steps, done)
        is_possible = all(0 < step.iteration_ns < fs.DEADLINE_S * 10**9 for step in steps)
        self._hold(is_possible, "a step's time cannot be")
        if self._fault.loses == NOTHING:
            self._summary(run_file, records)
            log = run_file.with_name(run_file.name.replace("records", "metrics")).with_suffix("")
            self._log(
                "text log", [log.with_suffix(".log"), *log.parent.glob(f"{log.name}.*.log")], kept.intervals
            )
        self._report(run_file)
        return kept

    def _kept(self, steps: list[int], done: int) -> None:
        loses = self._fault.loses
        first = steps[0] if loses == REMOVED and steps else 1
        self._hold(steps == list(range(first, first + len(steps))), f"steps are not in a row: {steps}")
        last = steps[-1] if steps else 0
        if loses != LATER:
            fewest = done - 1 if self._fault.ends_early else done
            self._hold(fewest <= last, f"the last step kept is {last} of {done}")

    def _summary(self, run_file: Path, records: list[Record]) -> None:
        path = run_file.with_name(run_file.name.replace("records", "summary")).with_suffix(".json")
        if not path.is_file():
            # The report makes it from the run file; the writer must have said that it could not.
            self._hold(any("summary: " in line for line in self._said), "no summary, and nothing says so")
            return
        written = json.loads(
            path.read_text(), parse_constant=lambda name: self._hold(False, f"{name} in the summary")
        )
        rebuilt = read_summary(open_session(run_file)).as_dict()
        self._is_rebuilt_the_same(written, rebuilt)
        reason = rebuilt["session_info"]["end_reason"]
        self._hold(re.fullmatch(self._fault.reason, reason) is not None, f"the summary's reason is {reason}")
        dropped = written["dropped_records"]
        reported = any(isinstance(record, EventRecord) and record.name == "drop" for record in records)
        self._hold(bool(dropped) == reported, f"{dropped} records dropped, reported: {reported}")
        clean = clean_summary(RunFile(run_file), records)
        for summary in (clean, rebuilt):
            for name in ("end_reason", "end_time"):
                summary["session_info"].pop(name)
            for name in ("failures", "failure_count", "notes", "events"):
                summary.pop(name, None)
        differing = [(name, clean[name], rebuilt[name]) for name in clean if clean[name] != rebuilt[name]]
        self._hold(differing == [], f"differs from a clean end of the same steps: {differing}")

    def _is_rebuilt_the_same(self, written: dict, rebuilt: dict) -> None:
        """Failures that came while the last records were being written are in the run file only."""
        count = len(written["failures"])
        late = rebuilt["failures"][count:]
        both = []
        for summary in (written, rebuilt):
            both.append(summary | {"failures": summary["failures"][:count]})
            both[-1].pop("failure_count")
        self._hold(
            both[0] == both[1] and (not late or self._fault.lines > 0),
            "the report's summary is not the written one",
        )

    def _log(self, name: str, parts: list[Path], intervals: list[int]) -> None:
        """Every interval has its line in one of the parts; a writer that died may take some along."""
        if any(line.startswith(f"{name}: ") or "ended with code" in line for line in self._said):
            return
        lines = [line for part in parts for line in part.read_text().splitlines()]
        shown = [line.split()[2] for line in lines if line.startswith("20")]
        self._hold(sorted(shown) == sorted(map(str, intervals)), f"the {name} shows {shown}, not {intervals}")

    def _report(self, run_file: Path) -> None:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["report", str(run_file)])
        self._hold(
            (code, err.getvalue()) == (0, "") and bool(out.getvalue()),
            f"flagscale-perf report: {code} {err.getvalue()}",
        )

    def _last_line(self, lost: int) -> None:
        """What is missing at the end, the last line says, and nothing else does."""
        closing = [line for line in self._said if CLOSING.match(line)]
        last = self._ended.output.rstrip("\n").rpartition("\n")[2].removeprefix("flagscale_perf: ")
        self._hold(closing in ([], [last]), f"not the last line: {closing}")
        if not lost:
            self._hold(not closing or CLOSING.match(last)["lost"] is None, f"nothing is lost: {closing}")
        elif not self._fault.ends_early and self._fault.loses != REMOVED:
            found = CLOSING.match(last)
            says = found is not None and (found["lost"] or found["late"] or str(lost))
            self._hold(says and int(says) >= lost, f"{lost} steps are lost, the last line is {last!r}")

    def _console(self, events: list[str]) -> None:
        kinds = [kind_of(line) for line in self._said]
        self._hold(len(set(kinds)) == len(kinds), f"said twice: {self._said}")
        self._hold(len(kinds) <= self._fault.lines, f"said: {self._said}")
        everything = [self._ended.output, *events]
        self._hold(
            any(self._fault.says in text for text in everything),
            f"nobody says {self._fault.says!r}: {self._said} {events}",
        )
        tracebacks = self._ended.output.count("Traceback (most recent call last)")
        expected = self._healthy.output.count("Traceback (most recent call last)")
        self._hold(tracebacks <= expected or self._fault.code not in (None, 0), f"{tracebacks} tracebacks")
        self._hold(
            not re.search(r'File ".*/flagscale_perf/(?!hosts/|launch)', self._ended.output),
            "a traceback of the monitor's own",
        )


def complaints(output: str) -> list[str]:
    """The monitor's lines about trouble, but not that a busy machine has no CPU for the writer."""
    lines = [
        line.partition("flagscale_perf: ")[2] for line in output.splitlines() if "flagscale_perf: " in line
    ]
    return [line for line in lines if line and not line.startswith(HEALTHY) and STARVED not in line]


def kind_of(line: str) -> str:
    """What failed and how, without the particulars: the same kind may be said once only."""
    return re.sub(r"\d+", "#", ": ".join(line.split(": ")[:2]))


def clean_summary(run: RunFile, records: list[Record]) -> dict:
    """Of a session of the same steps that ended well, made from these alone."""
    header = run.header
    window = IntervalWindow(
        header.config["perf_log_interval"],
        Anchor(header.start_wall_ns, header.start_mono_ns),
        Scale.of(RunFacts.of(header.facts)),
    )
    phases, totals = PhaseJoin(RunFacts.of(header.facts)), RunTotals(header)
    last, end_wall_ns = 0, header.start_wall_ns
    for record in records:
        interval = None
        if isinstance(record, PhaseRecord):
            phases.hold(record)
        elif isinstance(record, StepRecord):
            last = record.iteration
            interval = window.add(record, 0, phases.take(record))
        elif isinstance(record, RunEnd):
            end_wall_ns = record.end_wall_ns
        if not isinstance(record, IntervalRecord | RunEnd):
            _add(totals, record, interval)
    _add(totals, window.close(0), RunEnd("completed", end_wall_ns, last, 0))
    return totals.result().as_dict()


def _add(totals: RunTotals, *records: Record | IntervalRecord | None) -> None:
    for record in records:
        if record is not None:
            totals.add(record)
