"""The host's own W&B run, offline, in a process that trains."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("wandb") is None,
    reason="wandb is not installed: it is a package of the host, and no host here needs it",
)

TRAINING = """
import sys
import wandb
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.perf_logger import PerfLogger
from tests.fakes import make_facts, make_step

directory, hosts, is_stepped = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "stepped"
run = wandb.init(mode="offline", dir=directory, settings=wandb.Settings(silent=True))
config = PerfConfig(
    enable_perf_monitor=True, perf_log_dir=directory + "/logs", perf_wandb=True, perf_log_interval=10
)
logger = PerfLogger.start(config, make_facts(), print)
for iteration in range(1, 101):
    logger.step(make_step(iteration))
    if iteration % hosts == 0:
        run.log({"loss": iteration}, step=iteration if is_stepped else None)
logger.close("completed", 60)
run.log({"loss": 101}, step=101 if is_stepped else None)
run.finish()
"""
BLOCK_BYTES, HEAD_BYTES, FILE_HEAD_BYTES = 32768, 7, 7
WHOLE, LAST = 1, 4


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows in a file of an offline run: protobuf records, in LevelDB's log format."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, rest, rows = path.read_bytes(), FILE_HEAD_BYTES, b"", []
    while at + HEAD_BYTES <= len(content):
        if (room := BLOCK_BYTES - at % BLOCK_BYTES) < HEAD_BYTES:
            at += room
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        rest += content[at + HEAD_BYTES : at + HEAD_BYTES + length]
        at += HEAD_BYTES + length
        if kind in (WHOLE, LAST):
            record, rest = Record.FromString(rest), b""
            items = record.history.item
            rows += [{item.key or item.nested_key[0]: json.loads(item.value_json) for item in items}] * bool(
                items
            )
    return rows


@pytest.mark.parametrize("counted", ["stepped", "not stepped"])
@pytest.mark.parametrize("hosts", [1, 50])
def test_every_interval_is_in_the_run_and_the_hosts_steps_are_its_own(
    tmp_path: Path, run_python, hosts: int, counted: str
) -> None:
    done = run_python("-c", TRAINING, tmp_path, str(hosts), counted)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    rows = rows_of(path)
    logged = [*range(hosts, 101, hosts), 101]
    steps = logged if counted == "stepped" else range(len(logged))
    assert [(row["_step"], row["loss"]) for row in rows if "loss" in row] == list(
        zip(steps, logged, strict=True)
    )
    of_ours = [row for row in rows if "flagscale_perf/iteration" in row]
    assert [row["flagscale_perf/iteration"] for row in of_ours] == list(range(10, 101, 10))
    assert {row["flagscale_perf/performance/tokens_per_second"] for row in of_ours} == {10240}
