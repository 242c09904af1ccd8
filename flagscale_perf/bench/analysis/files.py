"""The output files of experiments: a JSON and a picture for each, and one report in Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping

from flagscale_perf.analysis.blocks import Note, Report, Section
from flagscale_perf.bench.analysis.report import SHOWN, BenchReport, subject_of
from flagscale_perf.spine.jsonl import finite

PLOTS = "plots"
REPORT = f"{PLOTS}/performance_report.md"
PAGE = "report.html"


def contents(found: BenchReport) -> dict[str, str]:
    """Name and content of each experiment's JSON: `bandwidth_test_20240129_103000.json`."""
    session = found.bench.header.session_id
    common = {"session": session, "run_file": found.bench.path.name, "environment": found.bench.header.facts}
    return {
        f"{SHOWN[name].file}_{session}.json": json.dumps(finite(common | found.part(name)), indent=1) + "\n"
        for name in found.bench.parts
    }


def pictures(found: BenchReport, whole: Report) -> Mapping[str, Report]:
    """Each picture's blocks by name; a text says why where there is nothing to draw."""
    made = {}
    for name, part in found.bench.parts.items():
        blocks = SHOWN[name].drawn(part) or [Note(f"Nothing to draw: {name} is {part.state}.")]
        title = f"{name.capitalize()} analysis"
        count = part.count if part.is_complete else f"{part.count} ({part.state})"
        made[f"{PLOTS}/{name}_analysis.png"] = Report(
            title=subject_of([title, count], [part], found.bench.header.facts.get("machine")),
            facts=[],
            sections=[Section(name, title, title, blocks)],
            content=whole.content,
        )
    return made
