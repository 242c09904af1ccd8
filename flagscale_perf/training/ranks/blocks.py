"""Every rank's steps in blocks of a few iterations: short enough to send for thousands of ranks, long enough
for a median.

Blocks are cut by the iteration's number, so that those of all ranks can be put side by side. See
docs/metrics.md, "Ranks".
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from flagscale_perf.training.hardware import REASONS, highest, lowest, reasons_in
from flagscale_perf.training.ledger import cuts
from flagscale_perf.training.ledger.cuts import StepCuts, is_undisturbed
from flagscale_perf.training.phases import PHASES, StepPhases
from flagscale_perf.training.records import HardwareRecord, StepRecord

BLOCK_STEPS = 5
MAX_RANKS = 1 << 20
_FORMAT = 2  # first element of an encoded block
_MAX = 1 << 53  # what JSON readers keep exactly; no measurement comes near it
_MAX_REASONS = 256  # characters


class RankIdentity(NamedTuple):
    """Who a rank is.

    Attributes:
        rank: its global number.
        hostname, pid: of its process.
        device: its name, e.g. "NVIDIA H200".
        device_uuid: as in `RunFacts`; None without a device.
        stage: its place in the pipeline, from 0.
        lockstep: number of the group of ranks that do every step together: same data-parallel place and
            stage, another tensor- or context-parallel place. Each of them waits for the slowest inside its
            forward and backward pass.
    """

    rank: int
    hostname: str
    pid: int
    device: str
    device_uuid: str | None
    stage: int
    lockstep: int


class Block(NamedTuple):
    """What one rank reports of the iterations with one `iteration // BLOCK_STEPS`: medians over the steps
    that show how fast the rank is.

    Attributes:
        rank: whose it is.
        first_iteration, iteration: the first and the last one in it.
        steps: how many the medians are over: those with a warm-up, an evaluation, a checkpoint or skipped
            data are left out.
        microbatches: of a step; more of them are more to do.
        iteration_ns: median; None without a step.
        phases_ns: medians in the order of `training.phases.PHASES`; None for a phase never named, or for all
            where none was measured.
        memory_peak_bytes: highest; None between readings and without a device.
        sm_clock_mhz: lowest reading; None without one, like what follows.
        throttle: every reason read, as in `HardwareRecord`.
        xid: the last critical error the driver has reported; 0 for none.
        ecc_uncorrected: last reading of the counter.
        cuts: of its steps, without those next to a disturbance.
    """

    rank: int
    first_iteration: int
    iteration: int
    steps: int
    microbatches: int
    iteration_ns: int | None
    phases_ns: tuple[int | None, ...] | None
    memory_peak_bytes: int | None
    sm_clock_mhz: int | None
    throttle: str | None
    xid: int | None
    ecc_uncorrected: int | None
    cuts: tuple[StepCuts, ...] = ()

    @property
    def number(self) -> int:
        """The same for the blocks of all ranks that are put side by side."""
        return self.iteration // BLOCK_STEPS


class BlockBuilder:
    """Folds one rank's records into blocks."""

    def __init__(self, rank: int) -> None:
        """`rank` whose records they are."""
        self._rank = rank
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._first: StepRecord | None = None
        self._last: StepRecord | None = None
        self._is_warmup = False
        self._times_ns: list[int] = []
        self._phases_ns: list[tuple[int | None, ...]] = []
        self._memory: int | None = None
        self._clock: int | None = None
        self._reasons: set[str] | None = None
        self._xid: int | None = None
        self._ecc: int | None = None
        self._cuts: list[StepCuts] = []

    def add(
        self, step: StepRecord, phases: StepPhases | None, step_cuts: StepCuts | None = None
    ) -> Block | None:
        """Takes in a step, with its phases and cuts if measured. Returns the block that ends with it or
        before it.
        """
        last, finished = self._last, None
        if last is not None and (
            step.iteration // BLOCK_STEPS != last.iteration // BLOCK_STEPS or step.iteration <= last.iteration
        ):
            finished = self.close()
        self._take_in(step, phases)
        self._cuts += [] if step_cuts is None else [step_cuts]
        if finished is None and step.iteration % BLOCK_STEPS == BLOCK_STEPS - 1:
            finished = self.close()
        return finished

    def _take_in(self, step: StepRecord, phases: StepPhases | None) -> None:
        self._first, self._last = self._first or step, step
        self._memory = highest(self._memory, step.memory_peak_bytes)
        if step.warmup:
            # The steps behind it are not at their pace yet, either.
            self._is_warmup = True
            self._times_ns, self._phases_ns = [], []
        if self._is_warmup or not is_undisturbed(step):
            return
        self._times_ns.append(step.iteration_ns)
        if phases is not None:
            self._phases_ns.append(phases.record[1:])

    def add_reading(self, reading: HardwareRecord) -> None:
        """One more reading of the rank's device; it belongs to the block under way."""
        self._clock = lowest(self._clock, reading.sm_clock_mhz)
        if reading.throttle is not None:
            self._reasons = (self._reasons or set()) | (reasons_in(reading.throttle) & set(REASONS))
        if reading.xid is not None:
            self._xid = reading.xid or self._xid or 0
        if reading.ecc_uncorrected is not None:
            self._ecc = reading.ecc_uncorrected

    def close(self) -> Block | None:
        """The block under way, as far as it has come; None before its first step."""
        if self._first is None or self._last is None:
            return None
        block = Block(
            rank=self._rank,
            first_iteration=self._first.iteration,
            iteration=self._last.iteration,
            steps=len(self._times_ns),
            microbatches=self._last.microbatches,
            iteration_ns=int(statistics.median(self._times_ns)) if self._times_ns else None,
            phases_ns=tuple(_median_or_none(values) for values in zip(*self._phases_ns, strict=True))
            if self._phases_ns
            else None,
            memory_peak_bytes=self._memory,
            sm_clock_mhz=self._clock,
            throttle=None if self._reasons is None else ", ".join(sorted(self._reasons)),
            xid=self._xid,
            ecc_uncorrected=self._ecc,
            cuts=tuple(self._cuts),
        )
        self._begin_anew()
        return block


def _median_or_none(values: Sequence[int | None]) -> int | None:
    """None if the phase was never named; in a step in which it was not, it took no time."""
    return (
        None
        if all(value is None for value in values)
        else int(statistics.median(value or 0 for value in values))
    )


def encode_block(block: Block) -> list[Any]:
    """As a list of JSON's types."""
    phases = None if block.phases_ns is None else list(block.phases_ns)
    return [_FORMAT, *block[:6], phases, *block[7:-1], cuts.encode(block.cuts)]


def decode_block(content: list[Any]) -> Block:
    """The block. Raises ValueError for what `encode_block` cannot have made: it may come from another
    version, or from anybody.
    """
    if type(content) is not list or len(content) != 1 + len(Block._fields) or content[0] != _FORMAT:
        raise ValueError("not a block of this version")
    block = Block(*content[1:])
    block = block._replace(cuts=cuts.decode(block.cuts))
    _check_numbers(block)
    block = block._replace(phases_ns=_decode_phases(block.phases_ns))
    if len(block.cuts) > BLOCK_STEPS or any(
        not block.first_iteration <= step.iteration <= block.iteration for step in block.cuts
    ):
        raise ValueError("cuts of steps that are not in the block")
    has_steps, has_phases = block.steps > 0, block.phases_ns is not None
    if has_steps != (block.iteration_ns is not None) or (has_phases and not has_steps):
        raise ValueError(f"steps ({block.steps}) and their times do not belong together")
    if block.throttle is not None and (type(block.throttle) is not str or len(block.throttle) > _MAX_REASONS):
        raise ValueError(f"throttle is not a text of at most {_MAX_REASONS} characters")
    return block


def _decode_phases(content: Any) -> tuple[int | None, ...] | None:
    if content is None:
        return None
    if type(content) is not list or len(content) != len(PHASES):
        raise ValueError(f"phases_ns is not a list of {len(PHASES)} phases")
    for value in content:
        _check("phases_ns", value, -_MAX, is_optional=True)
    return tuple(content)


def _check_numbers(block: Block) -> None:
    _check("rank", block.rank, 0, MAX_RANKS - 1)
    _check("first_iteration", block.first_iteration, 0)
    _check("iteration", block.iteration, block.first_iteration)
    if block.first_iteration // BLOCK_STEPS != block.number:
        raise ValueError(f"iterations {block.first_iteration} to {block.iteration} are not of one block")
    _check("steps", block.steps, 0, BLOCK_STEPS)
    _check("microbatches", block.microbatches, 0)
    for name in ("iteration_ns", "memory_peak_bytes", "sm_clock_mhz", "xid", "ecc_uncorrected"):
        _check(name, getattr(block, name), 0, is_optional=True)


def _check(name: str, value: Any, low: int, high: int = _MAX, is_optional: bool = False) -> None:
    if value is None and is_optional:
        return
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} is not an integer from {low} to {high}")
