"""`make pages`: writes docs/generated, whose tables are in the code: findings, limits, figures, metrics."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

from flagscale_perf.analysis.rules import Rule
from flagscale_perf.profile.analysis import findings as of_profiles
from flagscale_perf.rpc.analysis import findings as of_calls
from flagscale_perf.rpc.figures import TABLE as CALLS
from flagscale_perf.rpc.summary import RpcMetrics
from flagscale_perf.spine.limits import Limit
from flagscale_perf.trace.analysis import findings as of_traces
from flagscale_perf.training.analysis.findings import findings as of_trainings
from flagscale_perf.training.figures import FIGURES, Row
from flagscale_perf.training.summary.metrics import TABLE as METRICS

DIRECTORY = Path(__file__).parents[1] / "docs/generated"
RULES: Mapping[str, Iterable[Rule]] = {
    "A training": of_trainings.RULES,
    "Calls": of_calls.RULES,
    "A traced queue": of_traces.RULES,
    "A profile": of_profiles.RULES,
}


def findings() -> str:
    """Every finding of every instrument, with its limits and where each is from."""
    lines = ["# Findings and their limits", "", "How to read them: [reading.md](../reading.md#findings)."]
    head = ("finding", "what it is about", "limit", "value", "source")
    for instrument, rules in RULES.items():
        lines += ["", f"## {instrument}", "", _row(*head), _rule(len(head))]
        for rule in rules:
            about = " ".join((rule.judge.__doc__ or "").split())
            for place, (name, limit) in enumerate((rule.limits or {"": None}).items()):
                first = (f"`{rule.name}`", about) if not place else ("", "")
                lines.append(_row(*first, name and f"`{name}`", _value(limit), limit.source if limit else ""))
    return "\n".join(lines) + "\n"


def _value(limit: Limit | None) -> str:
    if limit is None:
        return ""
    return f"{100 * limit.value:g} %" if limit.unit == "share" else f"{limit.value:g} {limit.unit}".strip()


def figures() -> str:
    """Figures of a training's interval; those of one formula share a line."""
    head = ("figure", "unit", "formula", "text log", "TensorBoard, W&B", "Prometheus", "summary")
    lines = ["# Figures", "", "## A training's interval", "", _row(*head), _rule(len(head))]
    for (meaning, _), alike in groupby(FIGURES, lambda figure: (figure.meaning, figure.unit)):
        lines.append(_figure(meaning, list(alike)))
    lines += ["", "## A call", "", "| column | CSV | unit | meaning |", _rule(4)]
    for each in CALLS.figures:
        lines.append(_row(f"`{each.as_column().title}`", f"`{each.key}`", each.unit.name, each.meaning))
    return "\n".join(lines) + "\n"


def _figure(meaning: str, alike: list[Row]) -> str:
    gauges = {figure.gauge.name: figure.gauge.label for figure in alike if figure.gauge}
    cells = [
        _codes(figure.key for figure in alike),
        alike[0].unit.name,
        meaning,
        ", ".join(figure.column.title if figure.column else figure.flag for figure in alike),
        _codes(figure.curve for figure in alike if figure.curve),
        _codes(name + (f"{{{label[0]}}}" if label else "") for name, label in gauges.items()),
        _codes(figure.summary_key or figure.key for figure in alike if figure.in_summary),
    ]
    return _row(*(cell.strip(", ") for cell in cells))


def prometheus() -> str:
    """Every metric of trainings and of calls."""
    lines = ["# Prometheus", "", "Counters are of one session. What is not known is absent."]
    for title, table in (("A training", METRICS), ("Calls", RpcMetrics.table)):
        lines += ["", f"## {title}", "", "| metric | labels | meaning |", _rule(3)]
        for name, metric in table.items():
            lines.append(_row(f"`{metric.prefix}{name}`", _codes(metric.labels), metric.help))
    return "\n".join(lines) + "\n"


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(columns: int) -> str:
    return "| " + " | ".join(["---"] * columns) + " |"


PAGES = {"findings.md": findings, "figures.md": figures, "prometheus.md": prometheus}


def main() -> int:
    """Writes those that differ, and names them."""
    for name, make in PAGES.items():
        path, content = DIRECTORY / name, make()
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            path.write_text(content, encoding="utf-8")
            print(f"{path.name}: renewed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
