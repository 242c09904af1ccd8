"""Nothing of the package opens a connection, and what a run writes is the user's own and in its place."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.contract import house_rules as rules

REPO = Path(__file__).parents[2]
NETWORK = {
    "socket",
    "ssl",
    "http",
    "urllib",
    "ftplib",
    "smtplib",
    "xmlrpc",
    "socketserver",
    "asyncio",
    "requests",
}
SERVERS = (
    "flagscale_perf/sinks/prometheus_server.py",
    "flagscale_perf/cli/serve.py",
    "flagscale_perf/report/connections.py",
    "flagscale_perf/report/server.py",
    "flagscale_perf/spine/peers/handover.py",
    "flagscale_perf/bench/ports.py",
    "flagscale_perf/bench/serving/server.py",
)
RUN = """
import os, sys
os.umask(0o077)
from tests.fakes import make_facts, make_step
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.perf_logger import PerfLogger
hostile = {"hostname": "../../evil", "host": "../$(touch pwned)", "script": "<b>", "model_family": "=1+1"}
config = PerfConfig(enable_perf_monitor=True, perf_log_dir="logs")
logger = PerfLogger.start(config, make_facts(**hostile), print)
logger.step(make_step(1))
print(logger.close("completed", 60))
"""


def test_the_package_opens_no_connection() -> None:
    """But the servers that a user asks for: --perf-prometheus-port, `flagscale-perf serve`, and calls; the
    local socket by which the processes of a job give their rings to the one that drains them; and, on
    loopback, where the ranks and servers that `flagscale-perf bench` starts meet it.
    """
    sources = [s for s in rules.read_sources(REPO, "flagscale_perf/") if s.name not in SERVERS]
    found = [
        f"{s.name}:{line} {name}"
        for s in sources
        for line, name in rules._imported(s, set())
        if name.split(".")[0] in NETWORK
    ]
    assert found == []


def test_hostile_names_stay_inside_and_files_get_the_umask(run_python, tmp_path: Path) -> None:
    result = run_python("-c", RUN)
    assert result.returncode == 0, result.stderr
    assert os.listdir(tmp_path) == ["logs"]
    inside = list((tmp_path / "logs").rglob("*"))
    assert {path.stat().st_mode & 0o777 for path in inside if path.is_file()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in inside if path.is_dir()} == {0o700}
    (summary,) = (tmp_path / "logs").glob("perf_summary_*.json")
    assert json.loads(summary.read_text())["totals"]["train_steps"] == 1
    assert result.stdout.splitlines() == [str(summary)]
