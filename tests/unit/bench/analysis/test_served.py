"""The repetitions of a serving experiment are brought together, and what limits their figures is said."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.bench.analysis.served import groups_of, memory_of, on_one_device, remarks_of
from flagscale_perf.bench.analysis.source import Part, read_bench
from flagscale_perf.bench.recording import Clock
from tests.bench_runs import book_in

CASE = {"tp": 1, "pp": 1, "batch": 2, "seq": 8, "output": 4, "in_flight": 2, "job": "batch"}


def part_of(directory: Path) -> Part:
    with book_in(directory) as book, book.part("latency", None, {"device": "core", "devices": 2}) as part:
        for arm, repetitions in (("single", ([1.0, 3.0], [2.0, 6.0])), ("TP 2", ([3.0], [3.0]))):
            for number, samples in enumerate(repetitions):
                case = {**CASE, "arm": arm, "tp": 1 + (arm == "TP 2"), "repetition": number}
                part.point("ttft", "s", case, samples, Clock(1, 2))
        part.value("memory", "GB", {"arm": "single"}, 3.5, "")
        part.value("memory", "GB", {"arm": "TP 2"}, None, "why")
        part.value("preemptions", "", {"arm": "TP 2"}, 2.0, "")
        part.value("in_few_pieces", "", {"arm": "TP 2"}, 1.0, "")
    return read_bench(open_session(book.path)).parts["latency"]


def test_a_setting_has_the_requests_of_all_its_repetitions(tmp_path: Path) -> None:
    part = part_of(tmp_path)
    (single, tensor) = groups_of(part, "ttft").items()
    assert (single[0].arm, single[0].case, single[0].devices) == ("single", "batch 2, 8 + 4 tokens", 1)
    group = single[1]
    assert (group.samples, group.medians, group.value, group.mean) == (
        [1.0, 3.0, 2.0, 6.0],
        [2.0, 4.0],
        3.0,
        3.0,
    )
    assert group.noise == (4.0 - 2.0) / 2 / 3.0
    assert [group.percentile(share) for share in (0.25, 0.5, 0.95)] == [1.0, 2.0, 6.0]
    assert tensor[1].noise == 0.0


def test_the_same_setting_on_one_device(tmp_path: Path) -> None:
    groups = groups_of(part_of(tmp_path), "ttft")
    single, tensor = groups
    assert on_one_device(groups, tensor) is on_one_device(groups, single) is groups[single]
    assert on_one_device(groups, tensor._replace(seq=9)) is None


def test_what_limits_the_figures_is_said(tmp_path: Path) -> None:
    part = part_of(tmp_path)
    assert memory_of(part) == {"single": 3.5}
    preempted, merged, cores = remarks_of(part)
    assert preempted.text.startswith("TP 2: vLLM preempted 2 requests") and preempted.tone == "bad"
    assert merged.text.startswith("1 requests came back in few pieces")
    assert "share these 2 cores" in cores.text
