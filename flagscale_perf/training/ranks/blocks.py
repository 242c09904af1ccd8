"""Every rank's steps in blocks of a few iterations: short enough to send for thousands of ranks, long enough
for a median.

Blocks are cut by the iteration's number, so that those of all ranks can be put side by side. See
docs/metrics.md, "Ranks".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flagscale_perf.spine.averages import median_known
from flagscale_perf.training.hardware import Readings
from flagscale_perf.training.host import HostRecord, HostStretch, HostWindow
from flagscale_perf.training.ledger.cuts import MAX_NS, WAITING, is_undisturbed
from flagscale_perf.training.phases import PHASES, StepPhases
from flagscale_perf.training.ranks import rows
from flagscale_perf.training.ranks.rows import MachineCuts
from flagscale_perf.training.rates import highest
from flagscale_perf.training.records import HardwareRecord, StepRecord
from flagscale_perf.training.window import end_mono_ns
from flagscale_perf.training.work import Microbatch

BLOCK_STEPS = 5
LARGE = 1000  # ranks; with every so many blocks are longer, and all together cost the gathering as much
MAX_RANKS = 1 << 20
_FORMAT = 6  # first element of an encoded block
_MAX_REASONS = 256  # characters
_DATA = PHASES.index("data_loading")
_TIMES = ("work_ns", "wait_ns", "data_ns")
_OPTIONAL = ("iteration_ns", *_TIMES, "memory_peak_bytes", "sm_clock_mhz", "xid", "ecc_uncorrected")


def block_steps(ranks: int) -> int:
    """Steps of a block in a job of so many ranks."""
    return BLOCK_STEPS * max(1, min(ranks, MAX_RANKS) // LARGE)


class RankIdentity(NamedTuple):
    """A rank's identity.

    Attributes:
        rank: its global number.
        hostname, pid: its process.
        device: its name, e.g. "NVIDIA H200".
        device_uuid: as in `RunFacts`; None without a device.
        stage: its place in the pipeline, from 0.
        lockstep: number of the group of ranks that do every step together: same data-parallel place and
            stage, another tensor- or context-parallel place. Each of them waits for the slowest inside its
            forward and backward pass.
        chunks, samples, sample_tokens: of its micro-batches, see `Microbatch`.
    """

    rank: int
    hostname: str
    pid: int
    device: str
    device_uuid: str | None
    stage: int
    lockstep: int
    chunks: int = 0
    samples: int | None = None
    sample_tokens: int | None = None

    @property
    def microbatch(self) -> Microbatch:
        """What is known of its micro-batches."""
        return Microbatch(self.chunks, self.samples, self.sample_tokens)


class Block(NamedTuple):
    """One rank's report of the iterations that have one `iteration // block_steps(ranks)`: medians over the
    steps that show how fast the rank is.

    Attributes:
        rank: the rank.
        first_iteration, iteration: the first and the last one in it.
        steps: how many the medians are over: those with a warm-up, an evaluation, a checkpoint or skipped
            data are left out.
        iteration_ns: median; None without a step.
        work_ns, wait_ns, data_ns: medians, as in `RanksRecord`; None where no phases were measured, and the
            last of them where the host has none for it.
        memory_peak_bytes: highest; None between readings and without a device.
        sm_clock_mhz: lowest reading; None without one, like what follows.
        throttle: every reason read, as in `HardwareRecord`.
        xid: the last critical error the driver has reported; 0 for none.
        ecc_uncorrected: last reading of the counter.
        host: between the readings that were made until the end of the block; none in many a short one.
        cuts: of all ranks of its machine, in the last block of theirs that has this number. Without steps
            next to a disturbance.
    """

    rank: int
    first_iteration: int
    iteration: int
    steps: int
    iteration_ns: int | None
    work_ns: int | None
    wait_ns: int | None
    data_ns: int | None
    memory_peak_bytes: int | None
    sm_clock_mhz: int | None
    throttle: str | None
    xid: int | None
    ecc_uncorrected: int | None
    host: HostStretch = HostStretch()
    cuts: tuple[MachineCuts, ...] = ()


class BlockBuilder:
    """Folds one rank's records into blocks."""

    def __init__(self, rank: int, steps: int = BLOCK_STEPS) -> None:
        """`rank` whose records they are; `steps` of a block."""
        self._rank = rank
        self._steps = steps
        self._host = HostWindow()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._first: StepRecord | None = None
        self._last: StepRecord | None = None
        self._is_warmup = False
        self._times_ns: list[int] = []
        self._phases_ns: list[tuple[int, int, int | None]] = []
        self._memory: int | None = None
        self._read = Readings()
        self._xid: int | None = None
        self._ecc: int | None = None

    def add(self, step: StepRecord, phases: StepPhases | None) -> Block | None:
        """Takes in a step, with its phases if measured. Returns the block that ends with it or before it."""
        last, finished = self._last, None
        if last is not None and (
            step.iteration // self._steps != last.iteration // self._steps or step.iteration <= last.iteration
        ):
            finished = self.close()
        self._take_in(step, phases)
        if finished is None and step.iteration % self._steps == self._steps - 1:
            finished = self.close()
        return finished

    def _take_in(self, step: StepRecord, phases: StepPhases | None) -> None:
        self._first, self._last = self._first or step, step
        self._host.advance(end_mono_ns(step))
        self._memory = highest(self._memory, step.memory_peak_bytes)
        if step.warmup:
            # The steps behind it are not at their pace yet, either.
            self._is_warmup = True
            self._times_ns, self._phases_ns = [], []
        if self._is_warmup or not is_undisturbed(step):
            return
        self._times_ns.append(step.iteration_ns)
        if phases is not None:
            self._phases_ns.append(_parts_of(phases.record[1:]))

    def add_reading(self, reading: HardwareRecord | HostRecord) -> None:
        """One more reading of the rank's device, which belongs to the block under way, or of its host."""
        if isinstance(reading, HostRecord):
            self._host.add(reading)
            return
        self._read.add(reading)
        if reading.xid is not None:
            self._xid = reading.xid or self._xid or 0
        if reading.ecc_uncorrected is not None:
            self._ecc = reading.ecc_uncorrected

    def close(self) -> Block | None:
        """The block under way, as far as it has come; None before its first step."""
        if self._first is None or self._last is None:
            return None
        data_ns = [data_ns for _, _, data_ns in self._phases_ns]
        block = Block(
            rank=self._rank,
            first_iteration=self._first.iteration,
            iteration=self._last.iteration,
            steps=len(self._times_ns),
            iteration_ns=median_known(self._times_ns),
            work_ns=median_known([work_ns for work_ns, _, _ in self._phases_ns]),
            wait_ns=median_known([wait_ns for _, wait_ns, _ in self._phases_ns]),
            data_ns=median_known(ns or 0 for ns in data_ns)
            if any(ns is not None for ns in data_ns)
            else None,
            memory_peak_bytes=self._memory,
            sm_clock_mhz=self._read.clock_mhz,
            throttle=self._read.throttle,
            xid=self._xid,
            ecc_uncorrected=self._ecc,
            host=self._host.close(),
        )
        self._begin_anew()
        return block


def _parts_of(phases_ns: Sequence[int | None]) -> tuple[int, int, int | None]:
    wait_ns = sum(phases_ns[place] or 0 for place in WAITING)
    return sum(ns or 0 for ns in phases_ns) - wait_ns, wait_ns, phases_ns[_DATA]


def encode_block(block: Block) -> list[Any]:
    """The block as a list of JSON types."""
    return [_FORMAT, *block[:-2], list(block.host), list(map(rows.encode, block.cuts))]


def decode_block(content: list[Any]) -> Block:
    """The block. Raises ValueError for what `encode_block` cannot have made: it may come from another
    version, or from anybody.
    """
    if type(content) is not list or len(content) != 1 + len(Block._fields) or content[0] != _FORMAT:
        raise ValueError("not a block of this version")
    _, *values, host, found = content
    if type(found) is not list or type(host) is not list or len(host) != len(HostStretch._fields):
        raise ValueError("cuts are not a list, or the host's readings not a list of this version")
    block = Block._make([*values, HostStretch._make(host), tuple(map(rows.decode, found))])
    _check_numbers(block)
    has_steps, has_phases = block.steps > 0, block.work_ns is not None
    has_wait, has_data = block.wait_ns is not None, block.data_ns is not None
    of_steps = has_steps == (block.iteration_ns is not None) and has_steps >= has_phases
    if not of_steps or has_wait != has_phases or has_data > has_phases:
        raise ValueError(f"steps ({block.steps}) and their times do not belong together")
    if block.throttle is not None and (type(block.throttle) is not str or len(block.throttle) > _MAX_REASONS):
        raise ValueError(f"throttle is not a text of at most {_MAX_REASONS} characters")
    return block


def _check_numbers(block: Block) -> None:
    _check("rank", block.rank, 0, MAX_RANKS - 1)
    _check("first_iteration", block.first_iteration, 0)
    _check("iteration", block.iteration, block.first_iteration)
    if block.iteration - block.first_iteration >= block_steps(MAX_RANKS):
        raise ValueError(f"iterations {block.first_iteration} to {block.iteration} are not of one block")
    _check("steps", block.steps, 0, block.iteration - block.first_iteration + 1)
    for name in _OPTIONAL:
        if (value := getattr(block, name)) is not None:
            _check(name, value, -MAX_NS if name in _TIMES else 0)
    for name, value in zip(HostStretch._fields, block.host, strict=True):
        if value is not None:
            _check(name, value, 0)


def _check(name: str, value: Any, low: int, high: int = MAX_NS) -> None:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} is not an integer from {low} to {high}")
