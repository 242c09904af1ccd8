"""A profile as blocks, which every format shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from flagscale_perf.analysis.blocks import Block, Findings, Note, Pairs, Quantity, Report, Section, Tile
from flagscale_perf.analysis.session import tone_of
from flagscale_perf.analysis.verdicts import blocks_of
from flagscale_perf.profile.analysis import drawn, tables
from flagscale_perf.profile.analysis.extend import CHARTS
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.analysis.source import Rank
from flagscale_perf.profile.analysis.tables import share
from flagscale_perf.profile.analysis.tree import tree_of
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.facts import words_of
from flagscale_perf.spine.records import NOT_KNOWN, RUNNING

ROW_HEAD = (
    *("rank", "step_phase", "phase", "layer", "module", "kind", "op", "runs_per_step", "self_ns_per_step"),
    *("total_ns_per_step", "device_ns_per_step", "flops_per_step", "moved_bytes_per_step"),
)


def report_of(found: ProfileReport) -> Report:
    """The report as blocks, the same for every output format."""
    profile = found.profile
    header, count, machine = profile.session.header, len(profile.ranks), _machines(found)
    hosts = {*_known(profile.ranks, "host"), *_known(profile.ranks, "model")}
    steps = [f"{sums.mean.steps} {phase} steps" for phase, sums in found.sums.items()]
    return Report(
        title=f"Profile of session {header.session_id}",
        subject=", ".join([*sorted(hosts), f"{count} rank{'s' * (count != 1)}", *steps])
        + (f" on {machine}" if machine else ""),
        state=profile.session.state,
        tone=tone_of(profile.session.state),
        facts=[
            Pairs(_facts(found, profile.session.begun)),
            *(Note(line, "warn") for line in remarks_of(found)),
        ],
        tiles=_tiles(found),
        findings=Findings(
            found.findings, found.unjudged, None if found.has_rows else "no profiled step was recorded"
        ),
        sections=[section for section in _sections(found) if section.blocks] if found.has_rows else [],
        content=found,
        rows=rows_of(found),
        reading=profile.session.reading,
        complaint=remarks_of(found)[0] if not found.has_rows else "",
        tree=tree_of(found),
    )


def rows_of(found: ProfileReport) -> Iterable[Sequence[object]]:
    """Header and rows of the CSV: each operator of each module on each rank, per step."""
    yield ROW_HEAD
    for sums in found.sums.values():
        for cell in sums.cells:
            place = sums.titles[cell.rank], sums.phase, cell.phase, cell.place.name, cell.module
            times = cell.runs, cell.self_ns, cell.total_ns, cell.device_ns
            yield (*place, cell.kind, cell.op, *times, cell.flops, cell.moved_bytes)


def _machines(found: ProfileReport) -> str | None:
    names, own = found.profile.session.machines, found.profile.session.header.facts.get("machine")
    return ", ".join(names) if len(names) > 1 else str(own or "") or None


def _facts(found: ProfileReport, begun: str) -> list[tuple[str, str | None]]:
    profile = found.profile
    versions = words_of(profile.session.header.facts.get("versions"))
    named = ", ".join(f"{name} {version}" for name, version in versions.items()) or None
    modes, devices = (sorted(set(_known(profile.ranks, name))) for name in ("mode", "device"))
    return [
        ("begun", begun),
        ("machine", _machines(found)),
        ("device", ", ".join(devices) or None),
        ("model runs", ", ".join(modes) or None),
        ("versions", named),
        *((f"profiling, {phase}", one.words) for phase, one in found.observers.items()),
    ]


def _known(ranks: Sequence[Rank], field: str) -> list[Any]:
    """The values of this field of the ranks' records, where they are known."""
    return [rank.place[field] for rank in ranks if rank.place.get(field)]


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
    has_any = books.communication or len(found.profile.ranks) > 1
    collectives = [Tile("in collectives", share(books.communication, books.total))] if has_any else []
    return [
        Tile(f"a {sums.phase} step", Quantity(books.total / NS_PER_MS, "ms", 3)),
        Tile("rows account for", share(books.coverage)),
        *collectives,
        Tile("host and engine", share(books.python, books.total)),
        Tile("profiling", None if cost is None else f"x{cost:.3f}", " ".join(within) or None),
    ]


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
    """The blocks that these functions make for each kind of step."""
    blocks: list[Block] = []
    for phase, sums in found.sums.items():
        made = [block for make in makers for block in make(found, sums)]
        if made and len(found.sums) > 1:
            blocks.append(Note(f"Steps of the kind {phase}:"))
        blocks += made
    return blocks


def communication(found: ProfileReport) -> list[Block]:
    """The ranks that wait, those they wait for, and the speed of links; empty without collectives."""
    return [*drawn.communication(found), *tables.communication(found)]


def _added(found: ProfileReport) -> list[Block]:
    pairs = [
        (name, Quantity(value) if isinstance(value, (int, float)) else str(value))
        for name, value in found.metrics.items()
    ]
    return [*([Pairs(pairs)] if pairs else []), *(make(found) for make in CHARTS.values())]


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
    count, world = len(profile.ranks), max(_known(profile.ranks, "world_size"), default=0)
    if 0 < count < world:
        said.append(f"{count} of {world} ranks were profiled: waiting for the others is not explained")
    dropped = sum(rank.windows.total("dropped_events") or 0 for rank in profile.ranks)
    if dropped:
        said.append(f"{dropped:,} events were more than a window may keep and are missing from the rows")
    if profile.lost:
        said.append(f"{profile.lost:,} records did not reach the run file: rows are missing")
    is_over = profile.session.state not in (RUNNING, NOT_KNOWN)
    said += map(_cut_off, filter(_lost_windows, profile.ranks)) if is_over else []
    compiled = [rank.title for rank in profile.ranks if rank.place.get("mode") in ("compiled", "graphs")]
    if compiled:
        said.append(
            f"{', '.join(compiled)}: compiled code has no modules inside; its regions are rows of their own"
        )
    return said


def _lost_windows(rank: Rank) -> int:
    """The number of windows that began and were never written; 0 in files of earlier versions."""
    return max(0, len(rank.begins) - len(rank.windows))


def _cut_off(rank: Rank) -> str:
    """A remark on the windows lost: one is written at its end, and each kind of step has its own."""
    begun = list(rank.begins.records())[-_lost_windows(rank) :]
    steps = " and ".join(str(each["iteration"]) for each in begun if each["iteration"] is not None)
    where = f" from step {steps} on" if steps else ""
    return f"{rank.title}: the window{where} is lost: it was never written"


def _nothing(found: ProfileReport) -> str:
    reasons = dict.fromkeys(
        str(reason) for rank in found.profile.ranks for reason in rank.windows["reason"] if reason
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
