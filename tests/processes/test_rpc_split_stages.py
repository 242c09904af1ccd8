"""The table of stages: what it says of given measurements, and a run of every stage."""

from __future__ import annotations

import re

from examples.tee_gpu.split_inference.road import ROAD, Copier, Measured, Stop
from examples.tee_gpu.split_inference.road_table import ratio, spread, table
from flagscale_perf.rpc.traffic import CallTraffic
from tests.processes import rpc_programs

MS, MIB = 10**6, 2**20


def measured(stop: Stop, *total_ms: int) -> Measured:
    rounds = len(total_ms)
    overlaps = stop.micro_batches > 1
    return Measured(
        stop, calls=10, moved_bytes=3 * MIB, total_ns=[each * MS for each in total_ms],
        transport_ns=[] if overlaps else [5 * MS] * rounds, in_process_ns=[20 * MS] * rounds,
        copy_ns=[MS // 2] * rounds, whole_ns=[30 * MS] * rounds,
    )  # fmt: skip


def test_layout() -> None:
    rows = [
        measured(Stop("slow", "float32"), 100, 90, 110),
        measured(Stop("fast", "bfloat16"), 25, 25, 25),
        measured(Stop("two at once", "bfloat16", sequences=2, micro_batches=2), 40, 40, 40),
    ]
    assert (
        table(rows)
        == """\
| stage | calls | MiB moved | time ms | spread | times faster | transport ms a call | floor: copies ms \
| floor: one process ms | of one process | not split ms |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| slow | 10 | 3.0 | 100.0 | 20% | 1.00 | 0.500 | 0.50 | 20.0 | 5.00 | 30.0 |
| fast | 10 | 3.0 | 25.0 | 0% | 4.00 | 0.500 | 0.50 | 20.0 | 1.25 | 30.0 |
| two at once | 10 | 3.0 | 40.0 | 0% | 5.00 | - | 0.50 | 20.0 | 2.00 | 30.0 |"""
    )


def test_ratio_is_the_median_of_the_rounds_ratios() -> None:
    each = measured(Stop("x", "float32"), 20, 40, 200)
    each.in_process_ns = [20 * MS, 20 * MS, 200 * MS]
    assert ratio(each) == 1.0


def test_spread_leaves_the_outer_quarters_away() -> None:
    assert spread([1000, 9, 11, 10, 1]) == 0.2


def test_copies_take_time() -> None:
    assert Copier().copy([CallTraffic("Matmul", 1000, 2000), CallTraffic("Matmul", 0, 5)]) > 0


def test_every_stage_runs(tmp_path) -> None:
    output = tmp_path / "stages.md"
    words = ("--config", "tiny-mha", "--layers", "1", "--tokens", "16", "--rounds", "1", "--output", output)
    made = rpc_programs.run(rpc_programs.with_warm_children("stages.py", tmp_path), *words, cwd=tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    rows = re.findall(r"^\| (.+?) +\| +\d+ \|", made.stdout, re.MULTILINE)
    assert rows == [stop.name for stop in ROAD]
    assert output.read_text() == made.stdout
    assert made.stdout.count("Two processes against one") == 2


def test_a_name_of_no_stage(tmp_path) -> None:
    made = rpc_programs.run("stages.py", "--only", "fast", cwd=tmp_path)
    assert made.returncode == 2
    assert made.stderr.startswith("stages.py: --only 'fast' is in no stage's name: as it was: msgpack")
