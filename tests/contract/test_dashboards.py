"""The shipped dashboard and alert rules: every metric in them is one that is exposed, and promtool takes them
where it is installed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from flagscale_perf.sinks.base import PREFIX
from flagscale_perf.sinks.prometheus import PrometheusTextfileSink
from flagscale_perf.training.summary.metrics import TABLE
from tests.fakes import make_context, make_header, sample_run

REPO = Path(__file__).parents[2]
RULES = REPO / "dashboards/prometheus_rules.yml"
DASHBOARD = json.loads((REPO / "dashboards/grafana.json").read_text())
EXPOSED = {PREFIX + name for name in TABLE}
LABELS_OF_PROMETHEUS = {"instance"}

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed; it comes with Prometheus"
)


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])
    yield from (
        variable["query"]["query"]
        for variable in DASHBOARD["templating"]["list"]
        if variable["type"] == "query"
    )


def test_every_metric_they_name_exists() -> None:
    named = {name for expression in expressions() for name in re.findall(rf"{PREFIX}\w+", expression)}
    assert named - EXPOSED == set()
    assert len(named) > 30


def test_every_label_they_name_exists() -> None:
    for expression in expressions():
        for name, matchers in re.findall(r"(\w+)\{(.*?)\}", expression):
            labels = set(re.findall(r"(\w+)\s*[=!]", matchers))
            assert labels <= {*TABLE[name.removeprefix(PREFIX)].labels, *LABELS_OF_PROMETHEUS}, expression


def test_legends_name_labels_of_their_metric() -> None:
    for panel in panels():
        for target in panel["targets"]:
            (name, *_) = re.findall(rf"{PREFIX}(\w+)", target["expr"])
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= set(TABLE[name].labels), (
                panel["title"]
            )


def test_panels_lie_side_by_side() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells


@needs_promtool
def test_promtool_takes_the_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True, timeout=60)
    assert (done.returncode, f"SUCCESS: {len(rules())} rules found" in done.stdout) == (0, True), (
        done.stdout + done.stderr
    )


@needs_promtool
def test_the_alerts_go_off_when_they_should() -> None:
    cases = REPO / "tests/contract/prometheus_rules_test.yml"
    done = subprocess.run(["promtool", "test", "rules", cases], capture_output=True, text=True, timeout=60)
    assert (done.returncode, "SUCCESS" in done.stdout) == (0, True), done.stdout + done.stderr


@needs_promtool
def test_promtool_finds_nothing_to_say_about_the_metrics(tmp_path: Path) -> None:
    path = tmp_path / "x.prom"
    sink = PrometheusTextfileSink(
        make_context(make_header(perf_prometheus_textfile=str(path)), tmp_path, print)
    )
    for record in sample_run():
        sink.write(record)
    sink.flush()
    sink.close()
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=path.read_bytes(), capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
