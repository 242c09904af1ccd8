"""The summary as text, byte for byte, and harmless for a terminal."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.summary import RunSummary, summarize
from flagscale_perf.core.jsonl import encode
from flagscale_perf.core.rank_records import NodeRecord, RanksRecord, StragglerRecord
from flagscale_perf.core.records import Record, RunEnd
from flagscale_perf.report.text import render_summary
from tests.fakes import make_event, make_facts, make_header, make_interval, make_phases, make_step, sample_run
from tests.golden import golden


def run_of(directory: Path, records: list[Record], tail: bytes = b"") -> RunSummary:
    path = directory / "perf_records_20240129_103000.jsonl"
    path.write_bytes(b"".join(map(encode, records)) + tail)
    return summarize(path)


def test_a_whole_run(tmp_path: Path) -> None:
    assert render_summary(run_of(tmp_path, sample_run())) == golden("report.txt")


def test_the_phases_of_a_run(tmp_path: Path) -> None:
    header = make_header(facts=make_facts(pipeline_parallel=2, pipeline_schedule="1f1b"))
    records = [record for i in range(1, 6) for record in (make_phases(i, optimizer_clip_ns=0), make_step(i, microbatches=8))]
    text = render_summary(run_of(tmp_path, [header, *records]))
    assert text[text.index("Phases") : text.index("Goodput")] == golden("report_phases.txt")


def test_the_ranks_of_a_run(tmp_path: Path) -> None:
    ms, gb = 1_000_000, 10**9
    times = [[100 * ms] * 8, [60 * ms] * 7 + [81 * ms], [40 * ms] * 7 + [19 * ms], [1 * ms] * 8]
    stretch = RanksRecord(5, 24, 1, *times, memory_peak_bytes=[(10 + rank) * gb for rank in range(8)], silent=[2, 3], silent_count=2)
    slow = StragglerRecord(
        41, 55, False, [7], "host-1\x1b", "NVIDIA H200", 0, "forward", 21 * ms, 100 * ms, "peers", "clock capped by power"
    )
    heavy = StragglerRecord(5, 24, True, [4, 5, 6, 7], "host-1", "NVIDIA H200", 1, "backward", 9 * ms, 100 * ms, "stages", None)
    nodes = [NodeRecord(f"host-{n}", [4 * n], [1], ["NVIDIA H200"], [n]) for n in (0, 1)]
    text = render_summary(run_of(tmp_path, [make_header(), *nodes, stretch, heavy, slow]))
    assert text[text.index("Ranks") : text.index("Goodput")] == golden("report_ranks.txt")


def test_a_run_of_which_little_is_known(tmp_path: Path) -> None:
    unknown = dict.fromkeys(
        [
            "world_size",
            "peak_flop_per_s",
            "dtype",
            "tensor_parallel",
            "pipeline_parallel",
            "data_parallel",
            "context_parallel",
            "expert_parallel",
            "process_start_ns",
            "device_uuid",
            "device_memory_bytes",
        ]
    )
    text = render_summary(run_of(tmp_path, [make_header(facts=make_facts(**unknown))], b"damaged\n{"))
    expected = golden("report_unknown.txt").replace("RUN_FILE", str(tmp_path / "perf_records_20240129_103000.jsonl"))
    assert text == expected


def test_what_was_above_the_peak_is_told(tmp_path: Path) -> None:
    steps = [make_step(1), make_step(2, model_flops=2 * 10**14)]
    records = [make_header(), steps[0], make_interval(1), steps[1], make_interval(2, model_flops=2 * 10**15), RunEnd("completed", 0, 2, 0)]
    text = render_summary(run_of(tmp_path, records))
    assert (
        "  MFU             5.0 % (causal_half)\n"
        "  HFU             6.2 % (causal_half)\n"
        "  peak            100 TFLOP/s, bf16 (a round number)\n"
        "  suspect         intervals above the peak: 1; in no average; check --perf-peak-tflops and the data type\n"
    ) in text


def test_a_run_without_a_peak_says_why(tmp_path: Path) -> None:
    facts = make_facts(peak_flop_per_s=None, peak_source="no peak is known for 'X'; set --perf-peak-tflops")
    text = render_summary(run_of(tmp_path, [make_header(facts=facts), make_step(1)]))
    assert (
        "  MFU             -\n  HFU             -\n  peak            -, bf16 (no peak is known for 'X'; set --perf-peak-tflops)\n" in text
    )


def test_nothing_in_a_run_file_can_move_a_cursor(tmp_path: Path) -> None:
    evil = "\x1b[2J\x9b31m\u202e\r\n"
    facts = make_facts(host=evil, script=evil, device=evil, missing=[evil], hostname=evil, dtype=evil)
    records = [make_header(facts=facts), make_step(1), make_event("failure", text=evil), RunEnd(evil, 0, 1, 3)]
    text = render_summary(run_of(tmp_path, records, b'{"kind":"' + evil.encode()[:4] + b'"}\n'))
    assert all(char == "\n" or char.isprintable() for char in text)
    assert "\\x1b[2J\\x9b31m\\u202e\\x0d\\x0a" in text


def test_long_lists_say_how_much_is_left_out(tmp_path: Path) -> None:
    records = [make_header(), *[make_event("failure", text="x")] * 60, RunEnd("killed", 0, 0, 7)]
    text = render_summary(run_of(tmp_path, records, b"x\n" * 30))
    assert "and 10 more\n" in text
    assert "and 10 more\n" in text.partition("are no records")[2]
    assert "  lost            7 records\n" in text
