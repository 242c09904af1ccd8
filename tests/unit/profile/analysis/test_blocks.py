"""A profile as every format shows it."""

from __future__ import annotations

from flagscale_perf.profile.analysis.blocks import report_of, rows_of
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.analysis.report import report_of as found_of
from flagscale_perf.profile.analysis.source import Profile
from flagscale_perf.report import text
from tests.golden import golden


def test_as_text(found: ProfileReport) -> None:
    assert text.render(report_of(found)) == golden("profile_report.txt")


def test_rows_for_a_spreadsheet(found: ProfileReport) -> None:
    head, first, *rest = rows_of(found)
    assert dict(zip(head, first, strict=True)) == {
        "rank": "rank 0", "step_phase": "train", "phase": "forward", "layer": "embed_tokens",
        "module": "model.embed_tokens", "kind": "embedding", "op": "aten::embedding", "runs_per_step": 1,
        "self_ns_per_step": 2e6, "total_ns_per_step": 2e6, "device_ns_per_step": None,
        "flops_per_step": None, "moved_bytes_per_step": 2e6,
    }  # fmt: skip
    assert len(rest) == 25


def test_0_rows_are_a_failure_with_a_reason(nothing: Profile) -> None:
    report = report_of(found_of(nothing))
    assert report.complaint.startswith("0 rows: no process has joined the job")
    assert report.sections == []
