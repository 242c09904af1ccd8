"""The sections of a page below the findings. One without figures says in a line why."""

from __future__ import annotations

import json
from typing import Any

from flagscale_perf.analysis.report import Overview
from flagscale_perf.report.charts import GROUP_COLOURS, RANK_MATRICES
from flagscale_perf.report.markup import (
    NOTHING,
    Html,
    count,
    duration,
    join,
    milliseconds,
    note,
    numbers_of,
    pairs,
    percent,
    scaled,
    span,
    table,
    tag,
    unit,
)
from flagscale_perf.training.analysis.tables import (
    GoodputBar,
    Hardware,
    Memory,
    Monitor,
    Phases,
    Ranks,
    Reading,
    Straggler,
)
from flagscale_perf.training.phases import GROUPS

_PARTS = {
    "startup": "--orange", "productive": "--green", "evaluation": "--sky", "checkpoint": "--blue",
    "data_stall": "--yellow", "lost": "--red", "idle": "--grey",
}  # fmt: skip
_GROUP_OF = {phase: group for group, names in GROUPS.items() for phase in names}
_MANY_ROWS = 12


def section(key: str, title: str, *content: str) -> Html:
    """A part of the page that the navigation leads to."""
    return tag("section", tag("h2", title), Html("\n"), *content, id=key) + Html("\n")


def chart(key: str, title: str) -> Html:
    """Where page.js draws."""
    return tag("div", class_="chart", id=f"chart-{key}", role="figure", aria_label=title) + Html("\n")


def goodput(bar: GoodputBar) -> Html:
    """One bar of the whole session and its legend."""
    known = [part for part in bar.parts if part.dur_s]
    if not known:
        return note("The run file tells no time yet.")
    stripes = (
        tag(
            "i",
            style=f"flex-grow:{part.dur_s:.6g};background:var({_shade(part.name)})",
            title=f"{part.label}: {duration(part.dur_s)}",
        )
        for part in known
    )
    legend = (
        tag(
            "div",
            tag("dt", _swatch(_shade(part.name)), part.label),
            tag(
                "dd", tag("b", percent(part.share) or NOTHING), f" {duration(part.dur_s) or 'not told apart'}"
            ),
        )
        + Html("\n")
        for part in bar.parts
    )
    ettr = f"{bar.ettr:.3f}" if bar.ettr is not None else "not known"
    words = f"Wall time {duration(bar.wall_s)}; ETTR (productive share) {ettr}."
    return (
        tag("div", *stripes, class_="bar", role="img", aria_label=words)
        + Html("\n")
        + note(words)
        + tag("dl", *legend, class_="legend")
    )


def _shade(name: str) -> str:
    return _PARTS.get(name, "--grey")


def _swatch(shade: str) -> Html:
    return tag("i", class_="swatch", style=f"background:var({shade})")


def phases(found: Phases, has_chart: bool) -> Html:
    """The area, the table, and what the pipeline makes wait."""
    if not found.steps:
        return note("No phases: run with --perf-breakdown to see where an iteration goes.")
    named = [row for row in found.rows if row.total_s is not None]
    unnamed = ", ".join(row.name.replace("_", " ") for row in found.rows if row.total_s is None)
    rows = [
        (
            join((_swatch(GROUP_COLOURS[_GROUP_OF[row.name]]), row.name.replace("_", " "))),
            milliseconds(row.step_ms),
            _meter(row.share, GROUP_COLOURS[_GROUP_OF[row.name]]),
            duration(row.total_s),
        )
        for row in named
    ]
    waits = pairs(
        [
            ("bubble, which the schedule makes inevitable", _both(found.bubble_share, found.bubble_s)),
            (
                "imbalance, the rest of the wait for other stages",
                _both(found.imbalance_share, found.imbalance_s),
            ),
            ("bubble of computing and waiting", percent(found.bubble_share_of_pipeline)),
        ]
    )
    return join(
        [
            chart("phases", "Phases of a mean step over the run") if has_chart else "",
            note(f"Rank 0, {found.steps:,} measured steps, without the first."),
            table(["phase", "mean step", "share", "total"], rows, 3),
            note(f"Not named by the host, so in what is around them: {unnamed}.") if unnamed else "",
            waits
            if found.bubble_s is not None
            else note("No bubble: one pipeline stage, or a schedule whose bubble is not known."),
        ]
    )


def _meter(share: float | None, shade: str) -> Html:
    filled = tag("i", style=f"width:{max(share or 0.0, 0.0):.1%};background:var({shade})")
    return join((percent(share) or NOTHING, tag("span", filled, class_="meter")))


def _both(share: float | None, dur_s: float | None) -> str | None:
    return None if share is None else f"{percent(share)} ({duration(dur_s)})"


def ranks(found: Ranks | None, stragglers: list[Straggler]) -> Html:
    """Heat map, stragglers, and each rank's medians."""
    if found is None or not found.stretches:
        return note("No ranks side by side: the file tells of rank 0 only.")
    buttons = (
        tag(
            "button",
            title,
            type="button",
            data_trace=str(n),
            aria_pressed="true" if name == "work_ms" else "false",
        )
        for n, (name, (title, _)) in enumerate(RANK_MATRICES.items())
    )
    silent = numbers_of(found.silent)
    return join(
        [
            tag(
                "div",
                *buttons,
                class_="switch",
                data_chart="ranks",
                role="group",
                aria_label="What the map shows",
            ),
            Html("\n"),
            chart("ranks", "Every rank over the run"),
            note("Median per step of each stretch; a blank was not told. An outline is a straggler."),
            note(f"{found.silent_count:,} silent in the last stretch: {silent}")
            if found.silent_count
            else "",
            tag("h3", "Stragglers"),
            _stragglers(stragglers),
            tag(
                "details",
                tag("summary", f"Medians of {len(found.entries)} ranks"),
                Html("\n"),
                _medians(found),
            )
            + Html("\n"),
        ]
    )


def _stragglers(found: list[Straggler]) -> Html:
    if not found:
        return note("None: no rank made the others wait.")
    head = ["rank", "on", "iterations", "phase", "against", "its device says", "longer per step", "lost"]
    rows = [
        (
            numbers_of(one.ranks),
            f"{one.hostname}, {one.device}, stage {one.stage}",
            (span(one.first_iteration, one.iteration) or "") + ("" if one.is_over else " …"),
            one.phase.replace("_", " "),
            one.against,
            one.cause,
            f"{milliseconds(one.excess_ms)} of {milliseconds(one.iteration_ms)}",
            duration(one.lost_s),
        )
        for one in found
    ]
    return table(head, rows, 2)


def _medians(found: Ranks) -> Html:
    columns = zip(
        found.entries,
        found.median_work_ms,
        found.median_wait_ms,
        found.median_data_ms,
        found.peak_gb,
        strict=True,
    )
    rows = [
        (
            span(one.first_rank, one.last_rank),
            one.hostname,
            one.device,
            None if one.stage is None else str(one.stage),
            milliseconds(work),
            milliseconds(wait),
            milliseconds(data),
            unit(peak, 2, "GB"),
        )
        for one, work, wait, data, peak in columns
    ]
    return table(["rank", "node", "device", "stage", "work", "waiting", "data", "peak memory"], rows, 5)


def memory(found: Memory, has_chart: bool) -> Html:
    """Peak against what the device has."""
    if not has_chart and found.reserved_peak_gb is None:
        return note("No memory: run on a GPU with --perf-memory-tracking (the default).")
    left = found.out_of_memory_in_steps
    facts = [
        ("peak", unit(found.peak_gb, 2, "GB")),
        ("reserved", unit(found.reserved_peak_gb, 2, "GB")),
        ("of the device's", unit(found.device_gb, 2, "GB")),
        ("peak of the device", percent(found.peak_share)),
        ("fragmentation", percent(found.fragmentation)),
        ("allocator retries", count(found.alloc_retries)),
        (
            "out of memory",
            "not in sight"
            if left is None
            else f"in {left:,} steps at the latest, if the peak goes on growing",
        ),
    ]
    return (chart("memory", "Memory of rank 0's device") if has_chart else Html("")) + pairs(facts)


def hardware(found: Hardware, has_chart: bool) -> Html:
    """What the device's counters say."""
    facts = [
        ("power", unit(found.power_w, 1, "W")),
        ("energy", _energy(found)),
        ("tokens per joule", None if found.tokens_per_joule is None else f"{found.tokens_per_joule:.3g}"),
        ("joules per token", None if found.joules_per_token is None else f"{found.joules_per_token:.3g}"),
        ("lowest SM clock", unit(found.min_sm_clock_mhz, 0, "MHz")),
        ("highest temperature", unit(found.max_temperature_c, 0, "°C")),
        ("throttled by", None if found.throttle is None else ", ".join(found.throttle) or "nothing"),
        ("uncorrected memory errors", count(found.ecc_uncorrected)),
        ("readings with an XID", count(found.xid_readings)),
        (
            "PCIe",
            None
            if found.pcie_generation is None
            else f"generation {found.pcie_generation}, {found.pcie_width} lanes",
        ),
        ("PCIe replays", count(found.pcie_replays)),
        ("NVLinks active", count(found.nvlinks_active)),
    ]
    if not has_chart and all(value is None for _, value in facts):
        return note(
            "No counters: they are read from NVIDIA's driver; pip install nvidia-ml-py on the training machine."
        )
    return (
        chart("hardware", "Power, clock and temperature of rank 0's device") if has_chart else Html("")
    ) + pairs(facts)


def _energy(found: Hardware) -> str | None:
    return (
        None
        if found.energy_j is None
        else f"{scaled(found.energy_j, 'J')} in {duration(found.energy_read_s)}"
    )


def monitor(found: Monitor) -> Html:
    """Events, failures, what was dropped, and the monitor's own cost."""
    share = percent(found.self_cost_share)
    facts = [
        ("the monitor itself", None if share is None else f"{share} of the training thread's time"),
        ("records dropped", count(found.dropped_records)),
        ("failures inside the monitor", count(found.failure_count)),
        *((f"events “{name}”", count(number_of)) for name, number_of in found.event_counts.items()),
    ]
    if not found.events:
        return pairs(facts) + note("No events.")
    rows = [(one.at, str(one.iteration), one.name, one.text) for one in found.events]
    events = table(["time", "iteration", "event", "what"], rows)
    if len(rows) > _MANY_ROWS:
        events = tag("details", tag("summary", f"{len(rows)} events"), Html("\n"), events) + Html("\n")
    return pairs(facts) + events


def reading(found: Reading, missing: list[str]) -> Html:
    """What was read and what could not be."""
    read = ", ".join(f"{count(n)} {kind}" for kind, n in found.records.items())
    parts = [
        pairs(
            [
                ("run file", found.path),
                ("records", read or "none"),
                ("lines that are no records", count(found.skipped)),
                ("not available in the run", "; ".join(missing) or "nothing"),
            ]
        )
    ]
    if found.first_skipped:
        parts.append(
            table(
                ["line", "why it is no record"],
                [(str(one.number), one.reason) for one in found.first_skipped],
            )
        )
    return join(parts)


def run(seen: Overview, files: dict[str, str]) -> Html:
    """Everything that is known of the run, folded away."""
    facts: list[tuple[str, Any]] = [
        ("session", seen.session_id),
        ("end", seen.end_reason),
        ("script", seen.script),
        ("host", seen.host),
        ("machine", seen.hostname),
        ("flagscale_perf", seen.package_version),
        ("restarts", seen.restart_count),
        ("resumed from iteration", seen.resume_iteration),
        ("iterations asked for", seen.train_iters),
        ("iterations that trained nothing", seen.skipped_iterations),
        ("log interval", seen.log_interval),
        ("sequence length", seen.seq_length),
        ("micro-batch", seen.micro_batch_size),
        ("global batch", seen.global_batch_size),
        ("pipeline schedule", seen.pipeline_schedule),
    ]
    rows: list[tuple[str, str]] = [(name, str(value)) for name, value in facts if value is not None]
    nodes = [
        (one.hostname, count(one.ranks), span(one.first_rank, one.last_rank), ", ".join(one.devices))
        for one in seen.nodes
    ]
    options = [(tag("code", name), _option(value)) for name, value in seen.config.items()]
    return join(
        [
            _folded("Run", table(["fact", "value"], rows)),
            _folded(f"Nodes ({len(nodes)})", table(["node", "ranks", "numbers", "devices"], nodes))
            if nodes
            else "",
            _folded(f"Options in force ({len(options)})", table(["option", "value"], options))
            if options
            else "",
            _folded("Files", table(["what", "file"], list(files.items()))) if files else "",
        ]
    )


def _option(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _folded(title: str, content: Html) -> Html:
    return tag("details", tag("summary", title), Html("\n"), content) + Html("\n")
