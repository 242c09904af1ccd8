"""A profile as blocks, which every format shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flagscale_perf.analysis.blocks import (
    Block,
    Findings,
    Note,
    Pairs,
    Quantity,
    Report,
    Section,
    Tile,
)
from flagscale_perf.profile.analysis import collectives_shown, drawn, tables
from flagscale_perf.profile.analysis.extend import charts
from flagscale_perf.profile.analysis.remarks import remarks_of
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.facts import words_of
from flagscale_perf.spine.session import labels_of

ROW_HEAD = (
    "rank", "step_phase", "phase", "layer", "module", "kind", "op", "runs_per_step", "self_ns_per_step",
    "total_ns_per_step", "device_ns_per_step", "flops_per_step", "moved_bytes_per_step",
)  # fmt: skip


def report_of(found: ProfileReport) -> Report:
    """The report as blocks, the same for every output format."""
    profile = found.profile
    header = profile.header
    begun = labels_of(header).at(header.start_wall_ns).isoformat(sep=" ")
    hosts = {
        str(rank.place[name]) for rank in profile.ranks for name in ("host", "model") if rank.place.get(name)
    }
    return Report(
        title=f"Profile of session {header.session_id}",
        subject=", ".join([*sorted(hosts), f"{len(profile.ranks)} ranks", *_steps(found)]),
        state=profile.state,
        tone="good" if profile.state == "completed" else "" if profile.state == "running" else "bad",
        facts=[Pairs(_facts(found, begun)), *(Note(line, "warn") for line in remarks_of(found))],
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
            yield (
                sums.titles[cell.rank], sums.phase, cell.phase, cell.place.name, cell.module, cell.kind,
                cell.op, cell.runs, cell.self_ns, cell.total_ns, cell.device_ns, cell.flops, cell.moved_bytes,
            )  # fmt: skip


def _steps(found: ProfileReport) -> list[str]:
    counts = {phase: sums.mean.steps for phase, sums in found.sums.items()}
    return [f"{count} {phase} steps" for phase, count in counts.items()]


def _facts(found: ProfileReport, begun: str) -> list[tuple[str, str | None]]:
    profile = found.profile
    versions = words_of(profile.header.facts.get("versions"))
    named = ", ".join(f"{name} {version}" for name, version in versions.items()) or None
    machine = str(profile.header.facts.get("machine") or "") or None
    modes = sorted({str(rank.place["mode"]) for rank in profile.ranks if rank.place.get("mode")})
    devices = sorted({str(rank.place["device"]) for rank in profile.ranks if rank.place.get("device")})
    return [
        ("begun", begun),
        ("machine", ", ".join(profile.machines) if len(profile.machines) > 1 else machine),
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
    spread = "" if observer.spread is None else f"+- {observer.spread:.3f}"
    return [
        Tile(f"a {sums.phase} step", Quantity(books.total / NS_PER_MS, "ms", 3)),
        Tile("rows account for", _share(books.coverage)),
        Tile("in collectives", _share(books.communication / books.total if books.total else None)),
        Tile("host and engine", _share((books.host + books.engine) / books.total if books.total else None)),
        Tile("profiling", None if observer.ratio is None else f"x{observer.ratio:.3f}", spread or None),
    ]


def _share(value: float | None) -> Quantity:
    return Quantity(value, "share", 1)


def _sections(found: ProfileReport) -> list[Section]:
    return [
        Section("books", "Books", "What a step is made of", _each(found, drawn.books, tables.books)),
        Section("layers", "Layers", "Time by layer and kind of work",
                _each(found, drawn.layers, tables.layers)),
        Section("operators", "Operators", "Time by operator",
                _each(found, drawn.operators, tables.operators)),
        Section("modules", "Modules", "Time by module", _each(found, tables.modules)),
        Section("communication", "Communication", "Waiting and transfer in collectives",
                collectives_shown.blocks(found)),
        Section("causal", "Causal", "How much of a planted delay the step feels", tables.causal(found)),
        Section("roofline", "Roofline", "Against what the device can do",
                _each(found, drawn.roofline, tables.roofline)),
        Section("memory", "Memory", "Memory by layer", [*drawn.memory(found), *tables.memory(found)]),
        Section("observer", "Observer", "What profiling itself costs", tables.observer(found)),
        Section("thresholds", "Thresholds", "By the requirement's thresholds", tables.verdicts(found)),
        Section("added", "Added", "Added figures and charts", _added(found)),
    ]  # fmt: skip


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
