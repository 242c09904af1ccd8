"""The report as text, byte for byte, and harmless for a terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

from flagscale_perf.analysis.blocks import Block, Findings, Report
from flagscale_perf.analysis.job import open_session
from flagscale_perf.report.text import SCREEN_LINES, SCREEN_WIDTH, render, screen
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import Record, RunEnd
from flagscale_perf.training.analysis import blocks
from flagscale_perf.training.analysis.fold import read_report
from tests.every_block import every_block
from tests.fakes import make_event, make_facts, make_header, make_interval, make_phases, make_step, sample_run
from tests.golden import golden
from tests.run_files import left_behind
from tests.synthetic import TROUBLED, write

NAME = "perf_records_20240129_103000.jsonl"


def report_of(directory: Path, records: list[Record], tail: bytes = b"") -> Report:
    path = directory / NAME
    path.write_bytes(b"".join(map(encode, records)) + tail)
    return blocks.report_of(read_report(open_session(left_behind(path))))


def test_every_kind_of_block() -> None:
    report = every_block()
    assert {type(each) for section in report.sections for each in section.blocks} == {*get_args(Block)}
    assert render(report) == golden("every_block.txt")


def test_a_whole_run(tmp_path: Path) -> None:
    assert render(report_of(tmp_path, sample_run())) == golden("report.txt")


def test_a_run_in_trouble_with_all_its_ranks(tmp_path: Path) -> None:
    assert render(blocks.report_of(read_report(open_session(write(TROUBLED, tmp_path))))) == golden(
        "report_troubled.txt"
    )


def test_a_run_in_trouble_fits_a_screen(tmp_path: Path) -> None:
    shown = screen(blocks.report_of(read_report(open_session(write(TROUBLED, tmp_path)))))
    assert shown == golden("report_screen.txt")
    assert len(shown.splitlines()) <= SCREEN_LINES - 2  # the page and the next command
    assert max(map(len, shown.splitlines()[:-1])) <= SCREEN_WIDTH


def test_every_kind_of_block_fits_a_screen() -> None:
    report = every_block()
    marked = [replace(section, on_screen=True) for section in report.sections]
    for each in (report, replace(report, sections=marked), replace(report, findings=None, sections=[])):
        lines = screen(each).splitlines()
        assert len(lines) <= SCREEN_LINES - 2 and max(map(len, lines)) <= SCREEN_WIDTH


def test_the_screen_of_a_run_without_a_finding(tmp_path: Path) -> None:
    text = screen(report_of(tmp_path, [make_header(), *map(make_step, range(1, 6))]))
    said = "nothing to judge: 5 steps after the start-up; speed is judged from 20 on"
    assert f"\nFindings\n  none            {said}\n" in text
    assert text.endswith(f"\n\nfound  {said}\n")
    well = Findings([], ["MFU: no peak is known", "clocks: not read"])
    text = screen(replace(report_of(tmp_path, sample_run()), findings=well))
    said = "every judged figure is within its limit; 2 not judged"
    assert f"\nFindings\n  none            {said}\n" in text
    assert text.endswith(f"\n\nfound  nothing: {said}\n")


def test_the_phases_of_a_run(tmp_path: Path) -> None:
    header = make_header(facts=make_facts(pipeline_parallel=2, pipeline_schedule="1f1b"))
    records = [
        record
        for i in range(1, 6)
        for record in (make_phases(i, optimizer_clip_ns=0), make_step(i, microbatches=8))
    ]
    text = render(report_of(tmp_path, [header, *records]))
    assert text[text.index("Phases of") : text.index("Ranks\n")] == golden("report_phases.txt")


def test_a_run_of_which_little_is_known(tmp_path: Path) -> None:
    unknown = dict.fromkeys(
        [
            *("world_size", "peak_flop_per_s", "dtype", "tensor_parallel", "pipeline_parallel"),
            *("data_parallel", "context_parallel", "expert_parallel", "process_start_ns"),
            *("device_uuid", "device_memory_bytes"),
        ]
    )
    text = render(report_of(tmp_path, [make_header(facts=make_facts(**unknown))], b"damaged\n{"))
    assert text.replace(str(tmp_path / NAME), "RUN_FILE") == golden("report_unknown.txt")


def test_what_was_above_the_peak_is_told(tmp_path: Path) -> None:
    steps = [make_step(1), make_step(2, model_flops=2 * 10**14)]
    records = [
        make_header(),
        steps[0],
        make_interval(1),
        steps[1],
        make_interval(2, model_flops=2 * 10**15),
        RunEnd("completed", 0, 2, 0),
    ]
    text = render(report_of(tmp_path, records))
    few = "of 1 of 2 intervals, the others are above the peak"
    assert f"  MFU             5.0 % ({few})\n  HFU             6.2 % ({few})\n" in text
    assert (
        "  Intervals above the peak: 1 of 2; in no average; check --perf-peak-tflops and the data type.\n"
        in text
    )
    assert (
        "  1. Intervals above the peak: 1 of 2. The peak, the data type or the count of FLOPs is wrong\n"
        in text
    )


def test_a_run_without_a_peak_says_why(tmp_path: Path) -> None:
    facts = make_facts(peak_flop_per_s=None, peak_source="no peak is known for 'X'; set --perf-peak-tflops")
    text = render(report_of(tmp_path, [make_header(facts=facts), make_step(1)]))
    assert "  MFU             - (no peak known)\n  HFU             - (no peak known)\n" in text
    assert "  peak of a device  not known (no peak is known for 'X'; set --perf-peak-tflops)\n" in text


def test_nothing_in_a_run_file_can_move_a_cursor(tmp_path: Path) -> None:
    evil = "\x1b[2J\x9b31m\u202e\r\n"
    facts = make_facts(host=evil, script=evil, device=evil, missing=[evil], hostname=evil, dtype=evil)
    records = [
        make_header(facts=facts),
        make_step(1),
        make_event("failure", text=evil),
        RunEnd(evil, 0, 1, 3),
    ]
    text = render(report_of(tmp_path, records, b'{"kind":"' + evil.encode()[:4] + b'"}\n'))
    assert all(char == "\n" or char.isprintable() for char in text)
    assert "\\x1b[2J\\x9b31m\\u202e\\x0d\\x0a" in text


def test_long_lists_say_how_much_is_left_out(tmp_path: Path) -> None:
    records = [make_header(), *[make_event("failure", text="x")] * 60, RunEnd("killed", 0, 0, 7)]
    text = render(report_of(tmp_path, records, b"x\n" * 30))
    assert "and 30 more\n" in text
    assert "  lines left out  30\n" in text
    assert "  records dropped  7\n" in text
    assert "  events: failure  60\n" in text
