"""The matrix of ranks and the stragglers of a report, beside the summary's figures of the same records."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.training.analysis.ranks import MAX_STRETCHES, RankMatrix, stragglers_of
from flagscale_perf.training.analysis.tables import RankEntry, Ranks
from flagscale_perf.training.rank_records import StragglerRecord
from flagscale_perf.training.ranks.totals import RankTotals
from tests.fakes import MS
from tests.synthetic import node_record, ranks_record

GB = 10**9
SLOW = StragglerRecord(
    41, 55, False, [5], "node4", "NVIDIA H200", 0, "forward", 30 * MS, 375 * MS, "peers", None
)


def of(*records, size: int = 8) -> tuple[RankTotals, Ranks | None]:
    totals, matrix = RankTotals(size), RankMatrix()
    for record in records:
        totals.add(record)
        if hasattr(record, "ranks_per_entry"):
            matrix.add(record)
    return totals, matrix.result(totals, size)


def test_without_other_ranks_there_is_none() -> None:
    assert of(node_record())[1] is None


def test_entries_have_the_ranks_they_stand_for_and_their_place() -> None:
    shared = replace(ranks_record(10), ranks_per_entry=3)
    found = of(node_record(), shared, size=23)[1]
    assert found is not None
    assert [(entry.first_rank, entry.last_rank) for entry in found.entries[-2:]] == [(18, 20), (21, 22)]
    assert found.entries[-1] == RankEntry(21, 22, None, None, None)
    assert found.entries[0].hostname == node_record().hostname


def test_a_peak_is_in_report_and_summary_even_where_its_stretch_is_not_kept() -> None:
    count = 4 * MAX_STRETCHES
    records = [ranks_record(10 * n) for n in range(1, count + 1)]
    records[5] = replace(records[5], memory_peak_bytes=[110 * GB] * 7 + [139 * GB])
    totals, found = of(*records)
    assert found is not None and len(found.stretches) <= MAX_STRETCHES
    assert [60 - 9, 60] not in found.stretches
    assert max(found.peak_gb) == totals.result().peak_memory_gb == 139.0


def test_medians_are_over_the_stretches_in_which_a_rank_was_known() -> None:
    work = [None, *[900 * MS] * 7]
    found = of(ranks_record(10, work_ns=work), ranks_record(20), ranks_record(30, work_ns=work))[1]
    assert found is not None
    assert found.median_work_ms[:2] == [950.0, 900.0]


def test_a_straggler_that_is_not_over_lasts_until_the_last_iteration() -> None:
    totals, _ = of(SLOW)
    (now,) = stragglers_of(totals, 140)
    assert now.iteration == 140
    totals.add(replace(SLOW, iteration=90, is_over=True))
    (over,) = stragglers_of(totals, 140)
    assert over.iteration == 90
