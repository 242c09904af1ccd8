"""The example of a probe, as its README runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from flagscale_perf.rpc.analysis.instrument import read_calls

REPO = Path(__file__).parents[2]
EXAMPLE = REPO / "examples/rpc_probe"


def start(directory: Path, *words: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(REPO)}
    return subprocess.Popen(
        [sys.executable, *words], cwd=directory, env=environment, text=True, stderr=subprocess.PIPE
    )


def test_three_lines_record_a_clients_calls(tmp_path) -> None:
    endpoint = f"ipc://{tmp_path}/probe.ipc"
    server = start(tmp_path, str(EXAMPLE / "server.py"), endpoint)
    client = start(tmp_path, str(EXAMPLE / "client.py"), endpoint, "100")
    assert (client.communicate(timeout=120)[1], client.returncode) == ("", 0)
    assert (server.communicate(timeout=120)[1], server.returncode) == ("", 0)
    found = read_calls(tmp_path / "zmq_performance.log")
    assert {name: totals.calls for name, totals in found.totals.methods.items()} == {"Sum": 100, "Stop": 1}
    assert found.facts.receive_has_wait and found.facts.transport == "IPC"
    assert found.source.state() == "completed"
    sums = found.totals.methods["Sum"]
    assert sums.sent_bytes / 100 > 27_000  # 10,000 numbers
    (run_file,) = (tmp_path / "logs/rpc").glob("perf_records_*.jsonl")
    assert read_calls(run_file).overall.calls == 101


def test_it_has_as_many_lines_as_it_says() -> None:
    lines = (EXAMPLE / "client.py").read_text().splitlines()
    assert [line.split("# probe: ")[1] for line in lines if "# probe: " in line] == ["1", "2", "3"]
