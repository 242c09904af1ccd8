"""Parallel efficiency as a report, a verdict and a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flagscale_perf.analysis.blocks import Table, Waterfall
from flagscale_perf.bench.analysis.parallelism import COLOURS, SHOWN
from flagscale_perf.bench.analysis.source import Part
from flagscale_perf.bench.losses import PARTS
from tests.efficiency_runs import parallel_part


def test_every_part_has_a_colour() -> None:
    assert set(COLOURS) == set(PARTS)


def test_verdicts_have_the_requirements_thresholds(tmp_path: Path) -> None:
    tensor, pipeline = SHOWN.verdicts(parallel_part(tmp_path))
    assert (tensor.value, tensor.verdict, tensor.excellent, tensor.improve) == (0.625, "good", 0.75, 0.5)
    assert (pipeline.value, pipeline.verdict, pipeline.excellent, pipeline.improve) == (0.6, "good", 0.6, 0.4)
    assert "at most 89% by m / (m + p - 1)" in pipeline.remark
    for one in SHOWN.verdicts(Part("parallelism")):
        assert (one.value, one.verdict, one.remark) == (None, None, "no such arm was measured")


def test_repetitions_that_differ_by_half_decide_nothing(tmp_path: Path) -> None:
    part = parallel_part(tmp_path)
    first, *_ = part.of("duration", arm="TP 2")
    part.points[part.points.index(first)] = replace(first, samples=[2.4])
    tensor, _ = SHOWN.verdicts(part)
    assert (tensor.value, tensor.verdict) == (None, None)
    assert tensor.remark.startswith("no verdict: ")


def test_of_gains_and_losses_together_there_are_no_shares(tmp_path: Path) -> None:
    part = parallel_part(tmp_path)
    assert [share and round(share, 2) for share in shares(part)] == [0.75, 0.0, 0.0, 0.25, 1.0]
    (host,) = part.values("step_part", arm="TP 2", part="host")
    part.figures[part.figures.index(host)] = replace(host, value=0.002)
    assert shares(part) == [None] * 5


def shares(part: Part) -> list[float | None]:
    _, losses = SHOWN.sections(part)
    table = next(block for block in losses.blocks if isinstance(block, Table))
    return [row[-1].value for row in table.rows]  # type: ignore[union-attr]


def test_the_largest_loss_is_named_with_what_to_change(tmp_path: Path) -> None:
    (remark,) = SHOWN.remarks(parallel_part(tmp_path))
    # 12 - 16 / 2 = 4 ms; waiting 3, host 6 - 12 / 2 = 0, profiling -1 + 1 = 0, between steps 4 - 6 / 2 = 1
    assert remark.text.startswith(
        "TP 2, decode: 4.00 ms are lost for a token; the most, 3.00 ms, to waiting for other ranks: one rank"
    )


def test_a_loss_within_what_repetitions_differ_by_is_not_explained(tmp_path: Path) -> None:
    part = parallel_part(tmp_path)
    (noisy,) = part.of("tpot", arm="TP 2")
    part.points += [replace(noisy, samples=[seconds]) for seconds in (0.002, 0.022)]
    again = [replace(point, samples=[0.016]) for point in part.of("tpot", arm="single")]
    part.points += again  # of one repetition nobody knows what it differs by
    (remark,) = SHOWN.remarks(part)
    assert remark.text.startswith(
        "TP 2, decode: 4.00 ms are lost for a token, repetitions differ by +- 10.00 ms: too little to say"
    )


def test_sections_tables_and_pictures(tmp_path: Path) -> None:
    part = parallel_part(tmp_path)
    efficiency, losses = SHOWN.sections(part)
    tables = [block for block in [*efficiency.blocks, *losses.blocks] if isinstance(block, Table)]
    assert [row[0] for row in tables[0].rows] == [
        "single again", "TP 2", "TP 2", "PP 2",
    ]  # fmt: skip
    assert tables[1].rows[0][0] == "TP 2"  # memory
    assert [row[0] for row in tables[2].rows] == [
        "waiting for other ranks", "host", "profiling itself", "between steps", "together",
    ]  # fmt: skip
    assert tables[2].title == "TP 2, decode: the client sees 12.00 ms, on one device 16.00 ms"
    bars = [block for block in SHOWN.drawn(part) if isinstance(block, Waterfall)]
    assert [[lane.label for lane in bar.lanes] for bar in bars][1] == ["one device", "1/2 of it", "TP 2"]
    assert SHOWN.sections(Part("parallelism")) == []


def test_the_file_has_speedup_efficiency_overhead_and_memory(tmp_path: Path) -> None:
    made = SHOWN.content(parallel_part(tmp_path))
    (entry,) = [one for one in made["results"] if one["arm"] == "TP 2" and one["what"].startswith("a batch")]
    assert (entry["speedup"], entry["efficiency"], entry["memory_gb"], entry["unit"]) == (
        1.25,
        0.625,
        4.0,
        "s",
    )
    assert made["losses"][0]["communication_share"] == 0.003 / 0.009


def test_a_step_that_no_client_timed_is_said_as_it_is(tmp_path: Path) -> None:
    part = parallel_part(tmp_path)
    part = replace(part, points=[point for point in part.points if point.figure != "tpot"])
    _, losses = SHOWN.sections(part)
    (table,) = [block for block in losses.blocks if isinstance(block, Table)]
    assert table.title == "TP 2, decode: a profiled step takes 9.00 ms, on one device 12.00 ms"
