"""Latency as a report, a picture and a file."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.blocks import Quantity, Series, Table
from flagscale_perf.analysis.job import open_session
from flagscale_perf.bench.analysis.latency import SHOWN
from flagscale_perf.bench.analysis.source import Part, read_bench
from flagscale_perf.bench.recording import Clock
from tests.bench_runs import book_in


def part_of(directory: Path) -> Part:
    """Prompts of 128 and 512 tokens, 2 at a time, on one device; of 128 on two, too."""
    with book_in(directory) as book, book.part("latency", None, {}) as part:
        for arm, tp, seq, first in (
            ("single", 1, 512, 0.4),
            ("single", 1, 128, 0.1),
            ("TP 2", 2, 128, 0.0625),
        ):
            case = {"arm": arm, "tp": tp, "pp": 1, "batch": 2, "seq": seq, "output": 16, "in_flight": 2}
            for name, unit, samples in (
                ("ttft", "s", [first, first]),
                ("tpot", "s", [0.01, 0.02]),
                ("latency", "s", [1.0, 2.0]),
                ("throughput", "tokens/s", [16.0]),
            ):
                part.point(name, unit, {**case, "repetition": 0}, samples, Clock(1, 2))
        part.value("memory", "GB", {"arm": "single"}, 3.0, "")
    return read_bench(open_session(book.path)).parts["latency"]


def test_a_row_for_each_setting_by_size(tmp_path: Path) -> None:
    (section,) = SHOWN.sections(part_of(tmp_path))
    (table,) = [block for block in section.blocks if isinstance(block, Table)]
    assert [row[0] for row in table.rows] == ["single", "TP 2", "single"]
    assert [cell.value for cell in table.rows[0][1:] if isinstance(cell, Quantity)] == [
        *(2, 128, 16, 100.0, 100.0, 10.0, 20.0, 1000.0, 2000.0, 16.0, None),
    ]
    assert SHOWN.sections(Part("latency")) == [] and SHOWN.drawn(Part("latency")) == []


def test_a_line_for_each_batch_and_arm(tmp_path: Path) -> None:
    (series,) = SHOWN.drawn(part_of(tmp_path))
    assert isinstance(series, Series) and series.span == (128.0, 512.0)
    one, two = series.panels[0].lines
    assert (one.label, one.x, one.y, one.style) == ("batch 2", [128.0, 512.0], [100.0, 400.0], "line")
    assert (two.label, two.x, two.y, two.style) == ("TP 2, batch 2", [128.0], [62.5], "dashed")


def test_the_file_has_mean_latency_tokens_and_memory(tmp_path: Path) -> None:
    part = part_of(tmp_path)
    first, second, _ = SHOWN.content(part)["results"]
    assert (first["sequence_length"], first["batch_size"], first["output_length"]) == (128, 2, 16)
    assert (first["mean_latency_s"], first["latency_p99_s"], first["tpot_p50_s"]) == (1.5, 2.0, 0.01)
    assert (first["tokens_per_second"], first["memory_gb"], second["memory_gb"]) == (16.0, 3.0, None)
    assert SHOWN.verdicts(part) == [] and SHOWN.remarks(part) == []
