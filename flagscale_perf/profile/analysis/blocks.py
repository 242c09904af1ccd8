"""A profile as blocks, which every format shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from flagscale_perf.analysis.blocks import (
    Block,
    Cell,
    Findings,
    Lane,
    Note,
    Pairs,
    Quantity,
    Report,
    Section,
    Stripe,
    Table,
    Tile,
    Waterfall,
    ms,
)
from flagscale_perf.analysis.session import tone_of
from flagscale_perf.analysis.verdicts import blocks_of
from flagscale_perf.profile.analysis import drawn, tables
from flagscale_perf.profile.analysis.extend import charts
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.analysis.source import Rank
from flagscale_perf.profile.analysis.waits import Waits
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.facts import words_of
from flagscale_perf.spine.records import RUNNING

ROW_HEAD = (
    *("rank", "step_phase", "phase", "layer", "module", "kind", "op", "runs_per_step", "self_ns_per_step"),
    *("total_ns_per_step", "device_ns_per_step", "flops_per_step", "moved_bytes_per_step"),
)


def report_of(found: ProfileReport) -> Report:
    """The report as blocks, the same for every output format."""
    profile = found.profile
    header, count, machine = profile.header, len(profile.ranks), _machines(found)
    hosts = {
        str(rank.place[name]) for rank in profile.ranks for name in ("host", "model") if rank.place.get(name)
    }
    return Report(
        title=f"Profile of session {header.session_id}",
        subject=", ".join([*sorted(hosts), f"{count} rank{'s' * (count != 1)}", *_steps(found)])
        + (f" on {machine}" if machine else ""),
        state=profile.state,
        tone=tone_of(profile.state),
        facts=[Pairs(_facts(found, profile.begun)), *(Note(line, "warn") for line in remarks_of(found))],
        tiles=_tiles(found),
        findings=Findings(found.findings, found.unjudged),
        sections=[section for section in _sections(found) if section.blocks] if found.has_rows else [],
        content=found,
        rows=rows_of(found),
        reading=profile.reading,
        complaint=remarks_of(found)[0] if not found.has_rows else "",
    )


def rows_of(found: ProfileReport) -> Iterable[Sequence[object]]:
    """Header and rows of the CSV: each operator of each module on each rank, per step."""
    yield ROW_HEAD
    for sums in found.sums.values():
        for cell in sums.cells:
            place = sums.titles[cell.rank], sums.phase, cell.phase, cell.place.name, cell.module
            times = cell.runs, cell.self_ns, cell.total_ns, cell.device_ns
            yield (*place, cell.kind, cell.op, *times, cell.flops, cell.moved_bytes)


def _steps(found: ProfileReport) -> list[str]:
    counts = {phase: sums.mean.steps for phase, sums in found.sums.items()}
    return [f"{count} {phase} steps" for phase, count in counts.items()]


def _machines(found: ProfileReport) -> str | None:
    names, own = found.profile.machines, found.profile.header.facts.get("machine")
    return ", ".join(names) if len(names) > 1 else str(own or "") or None


def _facts(found: ProfileReport, begun: str) -> list[tuple[str, str | None]]:
    profile = found.profile
    versions = words_of(profile.header.facts.get("versions"))
    named = ", ".join(f"{name} {version}" for name, version in versions.items()) or None
    modes = sorted({str(rank.place["mode"]) for rank in profile.ranks if rank.place.get("mode")})
    devices = sorted({str(rank.place["device"]) for rank in profile.ranks if rank.place.get("device")})
    return [
        ("begun", begun),
        ("machine", _machines(found)),
        ("device", ", ".join(devices) or None),
        ("model runs", ", ".join(modes) or None),
        ("versions", named),
        *((f"profiling, {phase}", one.words) for phase, one in found.observers.items()),
    ]


def _tiles(found: ProfileReport) -> list[Tile]:
    sums = found.main
    if sums is None:
        return []
    books, observer = sums.mean, found.observers[sums.phase]
    within = [] if observer.ratio is None else [f"x{observer.ratio:.3f}"]
    within += [] if observer.spread is None else [f"+- {observer.spread:.3f}"]
    if observer.lost is not None:
        within.append("without start and stop")
    cost = observer.ratio if observer.lost is None else observer.lost
    share = _share(books.communication / books.total if books.total else None)
    has_any = books.communication or len(found.profile.ranks) > 1
    collectives = [Tile("in collectives", share)] if has_any else []
    return [
        Tile(f"a {sums.phase} step", Quantity(books.total / NS_PER_MS, "ms", 3)),
        Tile("rows account for", _share(books.coverage)),
        *collectives,
        Tile("host and engine", _share(books.python / books.total if books.total else None)),
        Tile("profiling", None if cost is None else f"x{cost:.3f}", " ".join(within) or None),
    ]


def _share(value: float | None) -> Quantity:
    return Quantity(value, "share", 1)


def _sections(found: ProfileReport) -> list[Section]:
    return [
        Section("books", "Books", "What a step is made of", _each(found, drawn.books, tables.books)),
        Section(
            "layers", "Layers", "Time by layer and kind of work", _each(found, drawn.layers, tables.layers)
        ),
        Section(
            "operators", "Operators", "Time by operator", _each(found, drawn.operators, tables.operators)
        ),
        Section("modules", "Modules", "Time by module", _each(found, tables.modules)),
        Section(
            "communication", "Communication", "Waiting and transfer in collectives", communication(found)
        ),
        Section(
            "roofline",
            "Roofline",
            "Against what the device can do",
            _each(found, drawn.roofline, tables.roofline),
        ),
        Section("memory", "Memory", "Memory by module", [*drawn.memory(found), *tables.memory(found)]),
        Section("observer", "Observer", "What profiling itself costs", tables.observer(found)),
        Section("thresholds", "Thresholds", "By the requirement's thresholds", blocks_of(found.verdicts)),
        Section("added", "Added", "Added figures and charts", _added(found)),
    ]


def _each(found: ProfileReport, *makers: drawn.Maker) -> list[Block]:
    """The blocks that this function makes for each kind of step."""
    blocks: list[Block] = []
    for phase, sums in found.sums.items():
        made = [block for make in makers for block in make(found, sums)]
        if made and len(found.sums) > 1:
            blocks.append(Note(f"Steps of the kind {phase}:"))
        blocks += made
    return blocks


def _added(found: ProfileReport) -> list[Block]:
    pairs = [(name, _cell(value)) for name, value in found.metrics.items()]
    return [*([Pairs(pairs)] if pairs else []), *(make(found) for make in charts().values())]


def _cell(value: object) -> Quantity | str:
    return Quantity(value) if isinstance(value, (int, float)) else str(value)


CURE = "`flagscale-perf doctor` says what can be profiled here"
_CURES = (
    ("another profiler", "end the other one (torch.profiler, vLLM's) before the window begins"),
    ("compiled", "profile without torch.compile once, or read the compiled regions as they are"),
    ("graph", "profile without CUDA graphs once (vLLM: enforce_eager=True)"),
    ("no module", "attach the profiler to the model that runs: in vLLM that lives in the worker processes"),
)


def remarks_of(found: ProfileReport) -> list[str]:
    """One sentence per remark, the one about an empty profile first."""
    profile = found.profile
    said = [] if found.has_rows else [_nothing(found)]
    world = max((rank.place.get("world_size") or 0 for rank in profile.ranks), default=0)
    if 0 < len(profile.ranks) < world:
        said.append(
            f"{len(profile.ranks)} of {world} ranks were profiled: waiting for the others is not explained"
        )
    dropped = sum(rank.windows.total("dropped_events") or 0 for rank in profile.ranks)
    if dropped:
        said.append(f"{dropped:,} events were more than a window may keep and are missing from the rows")
    if profile.lost:
        said.append(f"{profile.lost:,} records did not reach the run file: rows are missing")
    said += [] if profile.state == RUNNING else map(_cut_off, filter(_lost_windows, profile.ranks))
    compiled = [rank.title for rank in profile.ranks if rank.place.get("mode") in ("compiled", "graphs")]
    if compiled:
        said.append(
            f"{', '.join(compiled)}: compiled code has no modules inside; its regions are rows of their own"
        )
    return said


def _lost_windows(rank: Rank) -> int:
    """Files of earlier versions do not have when a window begins."""
    return max(0, len(rank.begins) - len(rank.windows))


def _cut_off(rank: Rank) -> str:
    """A window is written at its end. Each kind of step has one of its own."""
    begun = list(rank.begins.records())[-_lost_windows(rank) :]
    steps = " and ".join(str(each["iteration"]) for each in begun if each["iteration"] is not None)
    where = f" from step {steps} on" if steps else ""
    return f"{rank.title}: the window{where} is lost: it was never written"


def _nothing(found: ProfileReport) -> str:
    reasons = list(
        dict.fromkeys(
            str(reason) for rank in found.profile.ranks for reason in rank.windows["reason"] if reason
        )
    )
    if not found.profile.ranks:
        return f"0 rows: no process has joined the job; was the profiler on in it? {CURE}"
    if not any(len(rank.windows) for rank in found.profile.ranks):
        return (
            "0 rows: no window has ended; the run is not yet at the last step of --perf-profile-steps or"
            " ended before it; choose earlier steps"
        )
    said = "; ".join(reasons) or "the profiler saw no event"
    cure = next((cure for part, cure in _CURES if part in said), CURE)
    return f"0 rows: {said}; {cure}"


MOST = 20
WAITS = (
    ("waiting", "exposed_waiting_ns", "red"),
    ("transfer", "exposed_transfer_ns", "blue"),
    ("hidden by other work", "hidden_ns", "faint"),
)


def communication(found: ProfileReport) -> list[Block]:
    """Who waits, for which rank, and how fast the links are; empty without collectives."""
    communication = found.communication
    if not communication.operations:
        return []
    made: list[Block] = [*_pictures(found), _waits(communication.waits)]
    if communication.lates:
        made.append(_lates(found))
    if communication.bubbles:
        made.append(_bubbles(found))
    if unsplit := communication.unsplit:
        count = len(communication.operations)
        said = f"{unsplit} of {count} operations are not split: not all their ranks were recorded"
        made.append(Note(said))
    if (clocks := communication.clocks) > 1:
        said = f"{clocks} clocks: an operation's time beyond its shortest on any rank counts as waiting"
        made.append(Note(said))
    return made


def _pictures(found: ProfileReport) -> list[Block]:
    steps = max(1, max(len(rank.profiled) for rank in found.profile.ranks))
    ranks: dict[int, list[Waits]] = defaultdict(list)
    speeds: dict[str, float] = {}
    for one in found.communication.waits:
        ranks[one.rank].append(one)
        if one.busbw_gb_per_s:
            name = f"{one.label} {one.operation}"
            speeds[name] = max(speeds.get(name, 0.0), one.busbw_gb_per_s)
    lanes = [
        Lane(
            f"rank {rank}",
            0.0,
            [
                Stripe(name, sum(getattr(one, part) for one in own) / steps / NS_PER_MS, None, colour)
                for name, part, colour in WAITS
            ],
        )
        for rank, own in sorted(ranks.items())
    ]
    made: list[Block] = [Waterfall("waits", "Collectives by rank", "ms a step", lanes, _longest(lanes))]
    if speeds:
        bars = [
            Lane(name, 0.0, [Stripe("bus bandwidth", value, None, "blue")]) for name, value in speeds.items()
        ]
        made.append(Waterfall("bandwidth", "Bus bandwidth of the transfers", "GB/s", bars, _longest(bars)))
    return made


def _longest(lanes: list[Lane]) -> float:
    return 1.05 * max(sum(part.value or 0.0 for part in lane.parts) for lane in lanes) or 1.0


def _waits(waits: Sequence[Waits]) -> Table:
    rows: list[Sequence[Cell]] = [
        (
            f"rank {one.rank}",
            one.label,
            one.op,
            Quantity(one.runs),
            ms(one.exposed_waiting_ns + one.exposed_transfer_ns),
            ms(one.exposed_waiting_ns),
            ms(one.exposed_transfer_ns),
            ms(one.hidden_ns),
            Quantity(one.lasts),
            _speed(one.naive_gb_per_s),
            _speed(one.busbw_gb_per_s),
        )
        for one in waits
    ]
    head = (
        *("", "group", "operation", "runs", "exposed ms", "waiting", "transfer", "hidden ms", "came last"),
        *("GB/s with waiting", "bus GB/s"),
    )
    return Table(head, rows, 8, "Of all profiled steps", most=MOST)


def _lates(found: ProfileReport) -> Table:
    rows = [
        (
            f"rank {one.rank}",
            f"{one.module or 'outside'}, {one.phase}",
            f"{one.lasts} of {one.operations}",
            ms(one.late_ns),
            ms(one.waits_ns),
        )
        for one in found.communication.lates
    ]
    head = ("", "before", "came last", "later by ms", "others waited ms")
    return Table(head, rows, 2, "Who comes last", most=MOST)


def _bubbles(found: ProfileReport) -> Table:
    rows = [
        (
            f"rank {one.rank}",
            Quantity(one.stage),
            Quantity(one.steps),
            ms(one.bubble_ns),
            ms(one.back_pressure_ns),
            ms(one.transfer_ns),
            Quantity(one.share, "share", 1),
            Quantity(one.waiting_share, "share", 1),
            Quantity(one.ideal_share, "share", 1),
        )
        for one in found.communication.bubbles
    ]
    head = (
        *("", "stage", "steps", "bubble ms", "back-pressure ms", "transfer ms", "bubble", "both"),
        "(p-1)/(m+p-1)",
    )
    return Table(head, rows, 8, "The pipeline's bubble")


def _speed(value: float | None) -> Cell:
    return None if value is None else Quantity(value, "", 3)
