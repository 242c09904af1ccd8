"""Real FlagScale runs with delays planted in their phases, and what a report has to find in them.

Every micro-batch sleeps, as if a device computed, so that steps are even on a busy machine, too. One run may
carry several plants, in other phases and of other patterns: each has to be found, and nothing besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.rules import Finding
from flagscale_perf.training.analysis.fold import read_report
from tests.processes import flagscale as fs
from tests.processes import padded_stages
from tests.processes.slowed_parts import BURSTS

ITERATIONS, EVERY = 160, 13
SLOWED_PARTS = Path(__file__).with_name("slowed_parts.py")
PADS = {"PADDED_FORWARD_S": "0.015", "PADDED_BACKWARD_S": "0.030"}
MICROBATCHES = 2
# What a busy machine does to a run: steps are uneven, and the first ones slow.
UNPLANTED = {"jitter", "slow_start"}

# Where one run alone has only the FLOPs to expect anything by, a constant plant has to be large.
CONSTANT_S = {"forward": 0.30, "backward": 0.40}
PATTERNS = {
    "constant": "steps",
    "periodic": f"every {EVERY}",
    "bursts": "bursts",
    "growing": f"growing {ITERATIONS}",
}
_SECONDS = {"constant": 0.15, "periodic": 0.4, "bursts": 0.5, "growing": 0.3}


PHASES = (
    "data_loading",
    "forward",
    "backward",
    "exposed_grad_comm",
    "exposed_stat_comm",
    "zero_grad",
    "optimizer",
    "optimizer_inner_step",
    "forward_backward_other",
    "other",
    "between_steps",
)
OF_A_RANK = ("data_loading", "forward", "backward", "zero_grad", "optimizer", "optimizer_inner_step")
TOLERANCE = 0.2
STEP = 3  # from a pattern's phase to the next one's: no phase twice in a run


@dataclass(frozen=True)
class Plant:
    """A delay in a phase; `rank` has it alone, all ranks without one."""

    phase: str
    pattern: str
    rank: int | None = None

    @property
    def seconds(self) -> float:
        """Of one sleep; of a growing one the longest."""
        is_alone = self.rank is not None
        return (
            CONSTANT_S.get(self.phase, _SECONDS["constant"])
            if self.pattern == "constant" and not is_alone
            else _SECONDS[self.pattern]
        )

    @property
    def words(self) -> str:
        """For `slowed_parts`."""
        rank = "" if self.rank is None else f":{self.rank}"
        return f"{self.phase}:{self.seconds}:{PATTERNS[self.pattern]}{rank}"

    def part_of(self, step: int) -> float:
        """Of the seconds, how many the step of that number sleeps."""
        if self.pattern == "growing":
            return step / ITERATIONS
        if self.pattern == "periodic":
            return float(step % EVERY == 0)
        return float(self.pattern == "constant" or step in BURSTS)

    @property
    def planted_s(self) -> float:
        """In all steps but the first, which is warm-up."""
        return self.seconds * sum(map(self.part_of, range(2, ITERATIONS + 1)))

    def is_named_by(self, finding: Finding) -> bool:
        """Whether it says phase, pattern and rank."""
        ranks = [] if self.rank is None else [self.rank]
        return (finding.phase, finding.pattern, finding.ranks) == (self.phase, self.pattern, ranks)


def runs() -> list[tuple[int, list[Plant]]]:
    """Ranks and plants of each run."""
    found: list[tuple[int, list[Plant]]] = [(1, []), (2, [])]
    for ranks in (1, 2):
        for first in range(len(PHASES)):
            places = [(first + STEP * number) % len(PHASES) for number in range(len(PATTERNS))]
            found.append(
                (
                    ranks,
                    [Plant(PHASES[place], pattern) for place, pattern in zip(places, PATTERNS, strict=True)],
                )
            )
    return found + [(2, [Plant(phase, "constant", rank=1)]) for phase in OF_A_RANK]


def is_near(gain: float, true_gain: float) -> bool:
    """Whether a finding's gain is right to 20 %."""
    return abs(gain - true_gain) <= TOLERANCE * true_gain


@dataclass(frozen=True)
class Outcome:
    """What a run was found to have.

    Attributes:
        gains: of each plant that a finding names, by that finding and the true one.
        missed: plants that none names.
        false: findings that name something else.
    """

    gains: dict[Plant, tuple[float, float]]
    missed: list[Plant]
    false: list[str]


def train(plants: Sequence[Plant], ranks: int, directory: Path) -> Outcome:
    """Trains with these plants in an empty directory, and compares the findings with them."""
    script = [SLOWED_PARTS, ",".join(plant.words for plant in plants), padded_stages.__file__, fs.train_gpt()]
    host = [
        *fs.SMALL,
        "--global-batch-size",
        2 * MICROBATCHES * ranks,
        "--train-iters",
        ITERATIONS,
    ]
    monitor = [
        "--enable-perf-monitor",
        "--perf-breakdown",
        "--perf-max-overhead",
        100,
        "--perf-log-dir",
        "perf",
    ]
    words = fs.launched(*map(str, [*script, *host, *monitor]))
    finished = fs.run(fs.torchrun(ranks, *words), directory, **PADS)
    assert finished.returncode == 0, finished.output[-3000:]
    return outcome_of(plants, directory)


def outcome_of(plants: Sequence[Plant], directory: Path) -> Outcome:
    """What the run in this directory was found to have."""
    (path,) = (directory / "perf").glob("perf_records_*.jsonl")
    findings = [each for each in read_report(open_session(path)).findings if each.name not in UNPLANTED]
    whole_s = sum(step["iteration_ns"] for step in fs.records(directory / "perf")[1:]) / 1e9
    gains, missed, named = {}, [], set[int]()
    for plant in plants:
        found = next((each for each in findings if plant.is_named_by(each)), None)
        if found is None:
            missed.append(plant)
        else:
            named.add(id(found))
            gains[plant] = (found.gain or 0.0, plant.planted_s / (whole_s - plant.planted_s))
    return Outcome(gains, missed, [each.title for each in findings if id(each) not in named])
