"""What rank 0 says of every rank: nodes, all side by side, the slow, silent and dead ones."""

from __future__ import annotations

import pytest

from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.live import FindingRecord
from flagscale_perf.spine.records import EventRecord
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.rank_records import CutsRecord, NodeRecord, RanksRecord, StragglerRecord
from flagscale_perf.training.ranks.blocks import Block, RankIdentity
from flagscale_perf.training.ranks.view import GRACE_NS, START_NS, SUMMARY_NS, RanksView
from tests.fakes import MS, make_identity, make_interval
from tests.rank_simulator import Job, Noise, Simulation, Slow

GB = 10**9


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def view_of(size: int, job: Job | None = None, **facts) -> tuple[RanksView, Clock]:
    clock = Clock()
    view = RanksView(RunFacts.of({"world_size": size} | facts), clock)
    view.join((job or Job(data=size)).identities())
    return view, clock


def block_of(rank: int, number: int, **changes) -> Block:
    block = Block(
        rank, 5 * number, 5 * number + 4, 5, (100 + rank) * MS, None, None, None, None, None, None, None, None
    )
    return block._replace(**changes)


def texts_of(records) -> list[tuple[str, str]]:
    return [
        (record.name, record.text) if isinstance(record, EventRecord) else (record.finding, record.text)
        for record in records
        if isinstance(record, EventRecord | FindingRecord)
    ]


def feed(view: RanksView, blocks) -> list[tuple[str, str]]:
    return texts_of(
        record
        for block in blocks
        for record in view.add(block)
        if not (isinstance(record, EventRecord) and record.name == "note")
    )


def test_ranks_are_written_by_node_once_and_again_where_something_is_new() -> None:
    view = RanksView(RunFacts.of({"world_size": 3}))
    first, second, third = (
        RankIdentity(rank, host, 100 + rank, "CPU", None, rank, rank) for rank, host in enumerate("aab")
    )
    assert view.join([third, second, first]) == [
        NodeRecord("a", [0, 1], [100, 101], ["CPU", "CPU"], [0, 1]),
        NodeRecord("b", [2], [102], ["CPU"], [2]),
    ]
    assert view.join([first, second]) == []
    assert view.join([second._replace(pid=7), first._replace(rank=3)]) == [
        NodeRecord("a", [1], [7], ["CPU"], [1])
    ]


def test_all_ranks_side_by_side() -> None:
    view, clock = view_of(3)
    for number in (1, 2):
        for rank in range(3):
            view.add(block_of(rank, number, memory_peak_bytes=(rank + number) * GB))
    assert view.summary_due(make_interval(10)) == [], "not yet"
    clock.now_ns = SUMMARY_NS
    expected = RanksRecord(
        first_iteration=5,
        iteration=14,
        ranks_per_entry=1,
        iteration_ns=[100 * MS, 101 * MS, 102 * MS],
        work_ns=[None] * 3,
        wait_ns=[None] * 3,
        data_ns=[None] * 3,
        memory_peak_bytes=[2 * GB, 3 * GB, 4 * GB],
        silent=[],
        silent_count=0,
    )
    assert view.summary_due(make_interval(14)) == [expected]
    clock.now_ns = 3 * SUMMARY_NS
    assert view.summary_due(make_interval(19)) == view.close() == [], "nothing new"


def test_of_many_ranks_an_entry_has_the_one_that_works_longest_and_the_highest_peak() -> None:
    job = Job(data=600)
    view, _ = view_of(600, job)
    (blocks,) = Simulation(job, slow=(Slow((7,), 0.5, "forward", 0),)).rounds(1)
    for block in blocks:
        view.add(block)
    (record,) = view.close()
    assert isinstance(record, RanksRecord)
    assert (record.ranks_per_entry, len(record.work_ns)) == (3, 200)
    # 100 ms and 1 ms of other; rank 7 is the second of the third entry
    assert record.work_ns == [101 * MS, 101 * MS, 151 * MS, *[101 * MS] * 197]
    assert record.wait_ns == [55 * MS, 55 * MS, 5 * MS, *[55 * MS] * 197]
    assert set(record.data_ns) == {2 * MS}
    assert record.memory_peak_bytes[:3] == [52 * GB, 55 * GB, 56 * GB]


def test_a_straggler_is_a_record_and_a_finding() -> None:
    job = Job(data=8)
    view, _ = view_of(8, job)
    slow = Slow((3,), 0.10, "forward", first=75)
    records = [
        record
        for blocks in Simulation(job, Noise(step=0.005), (slow,)).rounds(30)
        for block in blocks
        for record in view.add(block)
    ]
    cuts = [record for record in records if isinstance(record, CutsRecord)]
    assert [record.iteration for record in cuts] == list(range(5, 155))
    straggler, found = [record for record in records if not isinstance(record, CutsRecord)]
    assert isinstance(straggler, StragglerRecord) and isinstance(found, FindingRecord)
    assert (straggler.ranks, straggler.is_over) == ([3], False)
    assert (found.finding, found.state, found.subject) == ("straggler", "begins", "rank 3, forward")
    assert found.iteration <= 74 + 20, "within 20 steps"
    assert found.severity == found.evidence["excess_ms"] == straggler.excess_ns / MS and found.unit == "ms"
    assert "longer: rank 3 (host-0, NVIDIA H200) takes 1" in found.text
    assert found.text.endswith(" ms longer in forward than its peers")
    _, over, ends = view.close()
    assert isinstance(over, StragglerRecord) and over.is_over
    assert isinstance(ends, FindingRecord) and (ends.state, ends.is_logged) == ("ends", False)
    assert ends.identity == found.identity


def test_a_straggler_that_becomes_twice_as_slow_worsens() -> None:
    job = Job(data=8)
    view, _ = view_of(8, job)
    slow = Slow((3,), 0.10, "forward", 75, 119), Slow((3,), 0.40, "forward", first=120)
    found = [
        record
        for blocks in Simulation(job, Noise(step=0.005), slow).rounds(40)
        for block in blocks
        for record in view.add(block)
        if isinstance(record, FindingRecord)
    ]
    assert [each.state for each in [*found, view.close()[-1]]] == ["begins", "worsens", "ends"]
    assert found[1].severity >= 2 * found[0].severity


def test_a_late_block_is_waited_for_and_is_no_silence() -> None:
    view, clock = view_of(3)
    assert feed(view, [block_of(rank, number) for number in range(1, 5) for rank in (0, 1)]) == []
    clock.now_ns = GRACE_NS - 1
    assert feed(view, [block_of(2, number) for number in range(1, 5)]) == []
    clock.now_ns = SUMMARY_NS
    (record,) = view.summary_due(make_interval(24))
    assert isinstance(record, RanksRecord)
    assert (record.first_iteration, record.iteration, record.silent) == (5, 24, [])


def test_a_silent_rank_is_told_once_and_again_when_it_falls_silent_anew() -> None:
    view, clock = view_of(3)
    feed(view, [block_of(rank, 1) for rank in range(3)])
    assert feed(view, [block_of(rank, number) for number in (2, 3) for rank in (0, 1)]) == []
    clock.now_ns = GRACE_NS
    told = ("lost_rank", "nothing after iteration 9 from rank 2 (host-0); others are at iteration 24")
    assert feed(view, [block_of(rank, 4) for rank in (0, 1)]) == [told]
    clock.now_ns = 3 * GRACE_NS
    assert feed(view, [block_of(rank, 5) for rank in (0, 1)]) == [], "once"
    (record,) = view.summary_due(make_interval(29))
    assert isinstance(record, RanksRecord)
    assert (record.silent, record.silent_count, record.iteration_ns[2]) == ([], 0, 102 * MS), (
        "it told some of this stretch"
    )
    assert feed(view, [block_of(rank, 6) for rank in range(3)]) == [("lost_rank", "rank 2 is there again")]
    feed(view, [block_of(rank, number) for number in (7, 8) for rank in (0, 1)])
    clock.now_ns = 5 * GRACE_NS
    assert feed(view, [block_of(0, 9)]) == [
        ("lost_rank", "nothing after iteration 34 from rank 2 (host-0); others are at iteration 49")
    ]


def test_a_rank_nothing_ever_came_from_has_longer_and_is_silent_in_the_record() -> None:
    clock = Clock()
    view = RanksView(RunFacts.of({"world_size": 4}), clock)
    view.join([RankIdentity(rank, "a", rank, "CPU", None, 0, rank) for rank in (0, 1)])
    feed(view, [block_of(rank, number) for number in (1, 2) for rank in (0, 1)])
    clock.now_ns = START_NS - 1
    assert feed(view, [block_of(rank, 3) for rank in (0, 1)]) == []
    feed(view, [block_of(rank, 4) for rank in (0, 1)])
    clock.now_ns = START_NS + GRACE_NS
    assert feed(view, [block_of(0, 5)]) == [
        ("lost_rank", "nothing yet from ranks 2, 3; others are at iteration 29")
    ]
    (record,) = view.summary_due(make_interval(29))
    assert isinstance(record, RanksRecord)
    assert (record.silent, record.silent_count) == ([2, 3], 2)
    late = [RankIdentity(rank, "b", rank, "CPU", None, 0, rank) for rank in (2, 3)]
    assert texts_of(view.join(late[:1])) == [], "not all of them"
    assert texts_of(view.join(late[1:])) == [("lost_rank", "ranks 2, 3 are there again")]


def test_ranks_whose_last_blocks_were_on_their_way_at_the_end_are_not_silent() -> None:
    """Of four ranks the last one was never heard; the blocks of rank 2 come a second after the others'."""
    view, clock = view_of(4)
    feed(view, [block_of(rank, 1) for rank in range(3)])
    feed(view, [block_of(rank, 2) for rank in range(2)])
    record = next(each for each in view.close() if isinstance(each, RanksRecord))
    assert (record.first_iteration, record.iteration, record.silent) == (5, 14, [3])
    view, clock = view_of(3)
    feed(view, [block_of(rank, 1) for rank in range(3)])
    clock.now_ns = SUMMARY_NS
    assert len(view.summary_due(make_interval(9))) == 1
    feed(view, [block_of(rank, 2) for rank in range(2)])
    record = next(each for each in view.close() if isinstance(each, RanksRecord))
    assert (record.first_iteration, record.iteration_ns[2], record.silent) == (10, None, [])


def test_a_rank_missing_for_longer_than_blocks_take_is_silent_at_the_end() -> None:
    """Eight rounds make a stretch: the rounds that rank 2 has are not in the last one."""
    for seconds, silent in ((4, []), (5, [2])):
        view, clock = view_of(3)
        feed(view, [block_of(rank, 1) for rank in range(3)])
        feed(view, [block_of(rank, 2) for rank in range(2)])
        clock.now_ns += seconds * NS_PER_S
        feed(view, [block_of(rank, number) for number in range(3, 10) for rank in range(2)])
        record = next(each for each in view.close() if isinstance(each, RanksRecord))
        assert record.silent == silent, seconds


def test_a_pause_of_one_rank_is_no_silence_while_the_others_are_not_a_block_ahead() -> None:
    view, clock = view_of(2)
    feed(view, [block_of(rank, 1) for rank in (0, 1)])
    assert feed(view, [block_of(1, 2)]) == []
    clock.now_ns = 10 * GRACE_NS
    assert feed(view, [block_of(0, 2)]) == []


def test_a_dead_rank_is_told_and_not_waited_for() -> None:
    view, clock = view_of(3)
    feed(view, [block_of(rank, 1) for rank in range(3)])
    feed(view, [block_of(rank, 2) for rank in (0, 1)])
    assert texts_of(view.lost(2, 11, "killed")) == [
        ("lost_rank", "rank 2 (host-0, NVIDIA H200, pid 1002) is gone after iteration 11: killed")
    ]
    assert view.lost(2, 11, "killed") == view.lost(77, 1, "no rank of this job") == []
    clock.now_ns = SUMMARY_NS
    (record,) = view.summary_due(make_interval(14))
    assert isinstance(record, RanksRecord)
    assert record.iteration == 14
    clock.now_ns = 9 * GRACE_NS
    assert feed(view, [block_of(rank, number) for number in (3, 4, 5) for rank in (0, 1)]) == []


@pytest.mark.parametrize(
    ("come", "who", "ranks"),
    [
        ([0, 2], "rank 1", [1]),
        ([0], "one of ranks 1, 2", [1, 2]),
        ([0, 1, 2], "a rank", []),
    ],
)
def test_a_rank_that_nobody_saw_die_is_one_that_has_never_come(
    come: list[int], who: str, ranks: list[int]
) -> None:
    view = RanksView(RunFacts.of({"world_size": 3}))
    view.join([make_identity(rank) for rank in come])
    lost = view.vanished("closed its connection")
    assert isinstance(lost, FindingRecord)
    assert (lost.finding, lost.text) == ("lost_rank", f"{who} is gone: closed its connection")
    assert lost.evidence == {"ranks": ranks, "hostname": None}


def test_errors_of_another_rank_s_device() -> None:
    view, _ = view_of(2)
    blocks = [
        block_of(1, number, xid=xid, ecc_uncorrected=ecc)
        for number, (xid, ecc) in enumerate([(0, 2), (79, 2), (None, None), (0, 5)], 1)
    ]
    assert feed(view, blocks) == [
        ("hardware", "rank 1's device (host-0): the driver reports XID 79"),
        ("hardware", "rank 1's device (host-0): uncorrected memory errors have gone from 2 to 5"),
    ]
    assert feed(view, [block_of(0, 1, xid=79)]) == [], "rank 0's readings tell that"


def test_without_phases_it_says_once_why_nobody_is_named() -> None:
    view, _ = view_of(2)
    told = texts_of(
        record for number in (1, 2) for rank in (0, 1) for record in view.add(block_of(rank, number))
    )
    assert told == [
        (
            "note",
            "slow ranks are not named: without phases (--perf-breakdown) waiting cannot be separated "
            "from work",
        )
    ]
    alone, _ = view_of(1)
    assert alone.add(block_of(0, 1)) == []


def test_what_is_held_is_bounded_however_long_a_rank_is_late() -> None:
    view, clock = view_of(2)
    for number in range(1, 3000):
        view.add(block_of(0, number))
    clock.now_ns = SUMMARY_NS
    (record,) = view.summary_due(make_interval(14999))
    assert isinstance(record, RanksRecord)
    assert (record.iteration, len(view._rounds)) == (5 * (2999 - 512) + 4, 512)


def test_blocks_of_no_rank_of_this_job_count_for_nothing() -> None:
    view, _ = view_of(2)
    assert view.add(block_of(2, 1)) == []
    assert view.close() == []
    unknown, _ = view_of(1)
    strange = RanksView(RunFacts.of({"world_size": None}))
    assert strange.add(block_of(1, 1)) == unknown.add(block_of(1, 1)) == []
