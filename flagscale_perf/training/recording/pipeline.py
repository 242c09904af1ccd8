"""A training's part of its writer: marks and phases join their steps, steps become intervals, and rank 0's
device and the other ranks are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flagscale_perf.device.sampler import Sampler
from flagscale_perf.spine.live import BEGINS, FindingRecord
from flagscale_perf.spine.records import EventRecord, Record
from flagscale_perf.spine.session import capture_request_name
from flagscale_perf.training.capture import CaptureControl
from flagscale_perf.training.curves import curve_of
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.host import HostReader
from flagscale_perf.training.ledger.cuts import CutKeeper, StepCuts
from flagscale_perf.training.ledger.naming import LIVE
from flagscale_perf.training.marks import MarksJoin
from flagscale_perf.training.phases import PhaseJoin, StepPhases
from flagscale_perf.training.ranks.blocks import RankIdentity
from flagscale_perf.training.ranks.gather import Gathering, Job, node_of
from flagscale_perf.training.ranks.identity import identity_of
from flagscale_perf.training.ranks.inquiry import Inquiry
from flagscale_perf.training.ranks.kept import KeptBlocks, kept_bytes
from flagscale_perf.training.ranks.place import Place
from flagscale_perf.training.recording.ended import LOST_CONNECTION
from flagscale_perf.training.recording.questions import Questions
from flagscale_perf.training.records import (
    CapturedRecord,
    CaptureRecord,
    CurveRecord,
    HardwareRecord,
    HostRecord,
    IntervalRecord,
    LoggedRecord,
    MarksRecord,
    PhaseRecord,
    StandstillRecord,
    StepRecord,
)
from flagscale_perf.training.remarks import Watch
from flagscale_perf.training.requests import RequestFile
from flagscale_perf.training.standstill import StandstillWatch, Stretches
from flagscale_perf.training.summary.presentation import PRESENTATION
from flagscale_perf.training.utilisation import Scale, suspicion
from flagscale_perf.training.window import IntervalWindow
from flagscale_perf.training.work import Microbatch
from flagscale_perf.writer.instrument import Entry, Joined, Remark
from flagscale_perf.writer.task import Parent, WriterTask

SUSPECT, CAPTURE = "suspect", "capture"

# Readings of the device since the last call, and what there is to say about them.
TakeReadings = Callable[[], tuple[list[HardwareRecord], list[str]]]


# What is beside the steps of an interval.
_READ: dict[type, Callable[[IntervalWindow, Any], None]] = {
    HardwareRecord: IntervalWindow.add_hardware,
    HostRecord: IntervalWindow.add_host,
    CurveRecord: IntervalWindow.add_curve,
}


def no_readings() -> tuple[list[HardwareRecord], list[str]]:
    """No readings, for a run whose device is not read."""
    return [], []


class OneRank:
    """`Gathering` where there are no other ranks."""

    def step(self, step: StepRecord, phases: StepPhases | None, cuts: StepCuts | None) -> None:
        """Ignored: there is no other rank to compare it with."""

    def reading(self, reading: HardwareRecord | HostRecord) -> None:
        """Ignored: there is no other rank to compare it with."""

    def interval(self, interval: IntervalRecord) -> list[Record]:
        """An empty list: an interval of one rank adds no records."""
        return []

    def request(self, content: Any) -> None:
        """Ignored: there is no other rank to answer it."""

    def cut_off(self, why: str) -> None:
        """Ignored: there is no other rank to lose."""

    def take(self) -> tuple[list[Record], list[str]]:
        """No records and no notes."""
        return [], []

    close = take


@dataclass(frozen=True)
class Sources:
    """The sources of one writer.

    Attributes:
        readings: of rank 0's device; must not block.
        ranks: of the whole job; its methods neither raise nor block for long.
        host: new readings of rank 0's host.
        stood: stretches in which the job stood still, that have ended since the last call.
        notes: what there is to say of the sources, once.
        own: asks rank 0 what it is doing; None where there is no process between them.
    """

    readings: TakeReadings = no_readings
    ranks: OneRank | Gathering = field(default_factory=OneRank)
    host: Callable[[], list[HostRecord]] = list
    stood: Callable[[], list[StandstillRecord]] = list
    notes: list[Remark] = field(default_factory=list)
    own: Inquiry | None = None


class TrainingPipeline:
    """The `Instrument` of a training.

    Attributes:
        position: the last finished iteration.
    """

    name = "training"
    presentation = PRESENTATION
    joined: tuple[type, ...] = (StepRecord, PhaseRecord, EventRecord, CurveRecord)
    period_s = 0.5

    def __init__(self, task: WriterTask, sources: Sources) -> None:
        self._task = task
        self._facts = RunFacts.of(task.facts)
        self._sources = sources
        request = task.directory / capture_request_name(task.anchor.wall_ns)
        self._capture = CaptureControl(
            request, task.config.get("perf_capture_steps"), sources.ranks.request, self._facts.world_size
        )
        send = sources.ranks.request
        self._questions = Questions(RequestFile(request), sources.own, self._facts.world_size, send)
        self._cuts = CutKeeper(identity_of(task.owner).microbatch if task.owner else Microbatch())
        self.begin()

    def begin(self) -> None:
        """Forgets every record: the session begins, or is about to be read again."""
        self.position = self._facts.resume_iteration
        self._watch = Watch(self._facts)
        self._phases, self._stood = PhaseJoin(self._facts), Stretches()
        options, scale = self._task.options, Scale.of(self._facts)
        self._window = IntervalWindow(
            options.perf_log_interval, self._task.anchor, scale, has_first=options.perf_log_first
        )
        self._owed: IntervalRecord | None = None
        self._has_suspected = False

    def replay(self, record: Record, dropped: int) -> None:
        """Takes a record that the session's earlier writer has written."""
        self._watch.look(record)  # what there was to say has been said
        self._stood.add(record)
        self._questions.replay(record)
        if isinstance(record, EventRecord):
            self._has_suspected |= record.name == SUSPECT
            if record.name == CAPTURE:
                self._capture.reported()
        elif isinstance(record, PhaseRecord):
            self._phases.hold(record)
        elif isinstance(record, StepRecord):
            self.position = record.iteration
            self._capture.step(record)
            self._owed = self._window.add(record, dropped, self._phases.take(record)) or self._owed
        elif (add := _READ.get(type(record))) is not None:
            add(self._window, record)
        elif isinstance(record, CaptureRecord):
            self._capture.resume(record)
        elif isinstance(record, CapturedRecord):
            self._capture.came([record])
        elif isinstance(record, IntervalRecord):
            self._owed = None
            self._window.close()  # the session's last one is there before its window is full

    def owed(self) -> list[Entry]:
        """The interval that the earlier writer has not come to write."""
        owed, self._owed = self._owed, None
        return self._completed(owed)

    def join(self, slots: Sequence[Record], is_full: bool) -> Joined:
        """Steps with their phases before them, and events. Marks at the end wait: their step comes later.
        First what is known of standing still: steps are without that time.
        """
        stood = self._sources.stood()
        for stretch in stood:
            self._stood.add(stretch)
        end = _end_of_whole_steps(slots, is_full)
        join = MarksJoin(self._capture.own.add, self._cuts.add)
        joined = [
            curve_of(record) if isinstance(record, LoggedRecord) else record
            for slot in slots[:end]
            for record in join.take(slot)
        ]
        return Joined([*stood, *self._stood.without(joined)], end)

    def fold(self, record: Record, dropped: int) -> list[Entry]:
        """Remarks on the step, and the interval that it completes."""
        if isinstance(record, PhaseRecord):
            self._phases.hold(record)
        if isinstance(record, CurveRecord):
            self._window.add_curve(record)
        if isinstance(record, EventRecord) and record.text.startswith(LOST_CONNECTION):
            self._sources.ranks.cut_off(record.text)
        if isinstance(record, StandstillRecord):
            return [record.finding()]
        if not isinstance(record, StepRecord):
            return []
        self.position = record.iteration
        self._capture.step(record)
        self._questions.step(record)
        phases = self._phases.take(record)
        self._sources.ranks.step(record, phases, self._cuts.take(record.iteration))
        interval = self._window.add(record, dropped, phases)
        return [*self._watch.look(record), *self._completed(interval)]

    def collect(self) -> list[Entry]:
        """Marks of a capture, new readings of rank 0's host and device, news of the other ranks, a hang."""
        hosts = self._sources.host()
        for host in hosts:
            self._window.add_host(host)
            self._sources.ranks.reading(host)
        entries: list[Entry] = [*self._capture.take(), *hosts, *self._sources.notes]
        self._sources.notes.clear()
        readings, notes = self._sources.readings()
        for reading in readings:
            self._window.add_hardware(reading)
            self._sources.ranks.reading(reading)
            entries += [reading, *self._watch.look(reading)]
        entries += [Remark("hardware", note) for note in notes]
        records, notes = self._sources.ranks.take()
        self._capture.late(records)
        entries += _of_ranks(self._questions.heard(records), notes)
        return self._with_missing([*entries, *self._questions.look(self._capture.first_ahead())])

    def close(self, dropped: int) -> list[Entry]:
        """The last interval, and what remains to be said of the ranks."""
        last = [*self._capture.own.take(), *self._completed(self._window.close(dropped))]
        return self._with_missing([*last, *_of_ranks(*self._sources.ranks.close())], is_over=True)

    def _with_missing(self, entries: list[Entry], is_over: bool = False) -> list[Entry]:
        """And what a capture lacks that will not come any more."""
        self._capture.came(entries)
        lacking = self._capture.missing(is_over)
        return entries + [Remark(CAPTURE, text, is_urgent=True) for text in lacking]

    def _completed(self, interval: IntervalRecord | None) -> list[Entry]:
        """The interval if there is one, what there is to say about it, and behind the session's first suspect
        one what to check.
        """
        if interval is None:
            return []
        completed = [interval, *self._watch.look(interval), *self._sources.ranks.interval(interval)]
        text = None if self._has_suspected else suspicion(interval, self._facts)
        if text is not None:
            self._has_suspected = True
            completed.append(FindingRecord(SUSPECT, BEGINS, text))
        return completed


def _end_of_whole_steps(slots: Sequence[Record], is_full: bool) -> int:
    """How many of the slots to take: up to the last whole step.

    No step fills a batch with its marks. Where that happens, steps were lost and their marks are taken, so
    that they do not hold up the rest.
    """
    end = len(slots)
    while end and isinstance(slots[end - 1], MarksRecord):
        end -= 1
    if end or not is_full:
        return end
    last = slots[-1].iteration
    return sum(slot.iteration != last for slot in slots) or len(slots)


def _of_ranks(records: Sequence[Record], notes: Sequence[str]) -> list[Entry]:
    return [*records, *(Remark("rank", note) for note in notes)]


def make_pipeline(task: WriterTask, parent: Parent | None) -> TrainingPipeline:
    """The pipeline of a writer process; without `parent`, of a thread of the trainer, which reads neither
    hardware counters nor the other ranks.
    """
    notes: list[Remark] = []
    if parent is None:
        if RunFacts.of(task.facts).device_uuid is not None:
            notes.append(_no_counters("they are read in a writer process only"))
        if task.owner:
            notes.append(
                Remark("rank", "nothing is recorded of other ranks: they are read in a writer process only")
            )
        return TrainingPipeline(task, Sources(notes=notes))
    host, watch = HostReader(parent.pid).take, StandstillWatch(parent.pid)
    try:
        watch.start()
    except RuntimeError as error:
        notes.append(Remark("standstill", f"no look-out for a job that stands still: {error}"))
    readings = _readings(task, notes)
    own = Inquiry(_own_identity(task, parent), parent)
    return TrainingPipeline(task, Sources(readings, _ranks(task, parent), host, watch.take, notes, own))


def _own_identity(task: WriterTask, parent: Parent) -> RankIdentity:
    if task.owner:
        return identity_of(task.owner)
    return RankIdentity(0, os.uname().nodename, parent.pid, RunFacts.of(task.facts).device, None, 0, 0)


def _readings(task: WriterTask, notes: list[Remark]) -> TakeReadings:
    """The device's counters, read in this process; of why not, a note. Not after a writer has died: its end
    may have been the driver's doing.
    """
    device_uuid = RunFacts.of(task.facts).device_uuid
    if device_uuid is None:
        return no_readings
    if task.notes:
        why = "the writer process before this one has died, perhaps by the driver"
        notes.append(Remark("hardware", f"no hardware counters any more: {why}"))
        return no_readings
    sampler = Sampler(device_uuid)
    try:
        sampler.start()
    except RuntimeError as error:
        notes.append(_no_counters(str(error)))
        return no_readings
    return sampler.take


def _no_counters(why: str) -> Remark:
    return Remark("hardware", f"no hardware counters: {why}")


def _ranks(task: WriterTask, parent: Parent) -> OneRank | Gathering:
    place = Place.of(os.environ)
    if place is None or task.owner is None:
        return OneRank()
    node = node_of(place, task.anchor.mono_ns, parent.pid, parent.watch, reads_devices=not task.notes)
    percent = task.options.perf_straggler_threshold
    least_late = LIVE.value if percent is None else percent / 100
    most = kept_bytes(task.options.perf_ranks_gb, place.world_size)
    kept = KeptBlocks(task.directory, task.anchor.wall_ns, most)
    job = Job(place, identity_of(task.owner), RunFacts.of(task.facts), task.directory, kept, least_late)
    return Gathering(job, node)
