"""The dashboard and alert rules of traces: promtool takes them, and they name what is exposed."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from flagscale_perf.trace.analysis.verdicts import COMPUTE_GOOD, QUEUE_BAD, QUEUE_GOOD, SLOW
from flagscale_perf.trace.summary import TraceMetrics
from tests.contract.test_dashboards import needs_promtool

REPO = Path(__file__).parents[2]
RULES = REPO / "dashboards/prometheus_rules_transfer_queue.yml"
CASES = REPO / "tests/contract/prometheus_rules_transfer_queue_test.yml"
DASHBOARD = json.loads((REPO / "dashboards/grafana_transfer_queue.json").read_text())


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ()))


def exposed() -> set[str]:
    """Names of all series; of a histogram it has three kinds."""
    parts = {
        name: ("_bucket", "_sum", "_count")
        for name, each in TraceMetrics.table.items()
        if "le" in each.labels
    }
    return {name + part for name in TraceMetrics.table for part in parts.get(name, ("",))}


def test_every_metric_they_name_exists() -> None:
    named = {name for expression in expressions() for name in re.findall(r"tq_client_\w+", expression)}
    assert named - exposed() == set()
    assert len(named) > 8


@pytest.mark.parametrize(
    ("alert", "limits"),
    [
        ("TqClientQueueShareAnomaly", [QUEUE_BAD]),
        ("TqClientQueueShareWatch", [QUEUE_GOOD, QUEUE_BAD]),
        ("TqClientComputeShareLow", [COMPUTE_GOOD]),
        ("TqClientThroughputLow", [SLOW]),
    ],
)
def test_the_limits_are_those_of_the_report(alert: str, limits: list[float]) -> None:
    (expression,) = [rule["expr"] for rule in rules() if rule["alert"] == alert]
    assert [float(limit) for limit in re.findall(r"[<>]=? ([0-9.]+)", expression)] == limits


def test_panels_lie_side_by_side() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@needs_promtool
def test_promtool_takes_the_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True, timeout=60)
    assert (done.returncode, f"SUCCESS: {len(rules())} rules found" in done.stdout) == (0, True), done.stderr


@needs_promtool
def test_the_alerts_go_off_when_they_should() -> None:
    done = subprocess.run(["promtool", "test", "rules", CASES], capture_output=True, text=True, timeout=60)
    assert (done.returncode, "SUCCESS" in done.stdout) == (0, True), done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("expression", sorted({re.sub(r"\$__rate_interval", "5m", e) for e in expressions()}))
def test_promtool_takes_each_query(expression: str, tmp_path: Path) -> None:
    group = {"groups": [{"name": "panel", "rules": [{"record": "x", "expr": expression}]}]}
    path = tmp_path / "panel.yml"
    path.write_text(yaml.safe_dump(group))
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
