"""Ranks side by side: all of few, the latest of many."""

from __future__ import annotations

import json
from array import array

import pytest

from flagscale_perf.training.ledger.cuts import StepCuts
from flagscale_perf.training.rank_records import CutsRecord
from flagscale_perf.training.ranks.rows import KEPT_UNITS, Member, decode, encode, machine_cuts, records_of
from tests.schedules import FORWARD, MS, noise, recorded, side_by_side, steps_of


def members(ranks: int, late: int = -1) -> list[Member]:
    uneven = noise(0.01, 1)
    steps = steps_of(
        ranks,
        range(2, 4),
        lambda rank, step, phase: uneven(rank, step, phase) + 90 * MS * ((rank, phase) == (late, FORWARD)),
    )
    return [Member(rank, rank, made) for rank, made in enumerate(steps)]


def test_of_few_ranks_every_row_is_kept() -> None:
    records = recorded(KEPT_UNITS, range(2, 4), lambda rank, step, phase: rank)
    assert [record.iteration for record in records] == [2, 3]
    assert records[0].ranks == list(range(KEPT_UNITS))
    assert records[0].sizes == [1] * KEPT_UNITS


@pytest.mark.parametrize("machine", [8, 1000])
def test_of_many_the_latest_at_each_cut_the_suspects_and_what_is_usual(machine: int) -> None:
    """Whether a machine has all of them, or each sends what is latest and usual on it."""
    for record in side_by_side(members(100, late=17), frozenset({17}), machine):
        assert record.units == 100 and len(record.sizes) <= 6
        assert record.ranks[0] == 17
        assert record.sizes[-1] == 0, "what is usual has no ranks"
        usual = record.own_ns[-len(record.columns) :]
        forward = [column % 32 for column in record.columns].index(FORWARD)
        assert abs(usual[forward] - 30 * MS) < 0.1 * MS


def test_steps_that_not_everybody_has_or_with_other_cuts_are_not_compared() -> None:
    found = members(3)
    found[1] = found[1]._replace(steps=found[1].steps[:1])
    assert [record.iteration for record in side_by_side(found)] == [2]
    step = found[0].steps[0]
    found[0] = found[0]._replace(steps=[StepCuts(2, step.cuts[:1])])
    assert side_by_side(found) == []
    assert side_by_side(found[:1]) == [], "alone"


@pytest.mark.parametrize("ranks", [4, 32])
def test_a_unit_of_ranks_that_are_gathered_apart_is_one(ranks: int) -> None:
    """As rank 0 is from the other ranks of its machine, with which it may share its layers."""
    steps = steps_of(ranks // 2, range(2, 4), noise(0.01, 1))
    found = [Member(rank, rank // 2, steps[rank // 2]) for rank in range(ranks)]
    units = {unit: (2 * unit, 2 * unit + 1) for unit in range(ranks // 2)}
    apart = [*machine_cuts(0, found[:1], True), *machine_cuts(0, found[1:], True)]
    for one, other in zip(side_by_side(found), records_of(0, apart, units, frozenset()), strict=True):
        assert (one.units, one.ranks, one.sizes) == (other.units, other.ranks, other.sizes)
        assert one.wait_ns == other.wait_ns
    alone = [*machine_cuts(0, found[:1], True), *machine_cuts(0, found[1:2], True)]
    assert records_of(0, alone, {0: (0, 1)}, frozenset()) == []


def test_machines_send_the_latest_of_all_ranks() -> None:
    at_once, sent = (side_by_side(members(96), machine=machine) for machine in (1000, 8))
    assert len(at_once) == 2
    for one, other in zip(at_once, sent, strict=True):
        assert (one.ranks, one.sizes, one.wait_ns) == (other.ranks, other.sizes, other.wait_ns)
        usual = len(one.columns)
        assert one.own_ns[:-usual] == other.own_ns[:-usual]
        for ns, median_of_medians_ns in zip(one.own_ns[-usual:], other.own_ns[-usual:], strict=True):
            assert median_of_medians_ns == pytest.approx(ns, rel=0.005)


def test_the_cuts_of_a_machine_come_back_from_json() -> None:
    (found,) = machine_cuts(3, members(20), keeps_all=False)
    content = json.loads(json.dumps(encode(found)))
    assert decode(content) == found
    for place, numbers in (
        *(
            (1, [99]),
            (1, []),
            (1, [*found.waits] * 65),
            (2, []),
            (2, [-1]),
            (2, [31]),
            (2, found.columns[1:]),
        ),
        (9, []),
        (9, [-2, 0, 0, 0]),
        (9, [*range(5)]),
        *((changed, other) for changed in range(3, 9) for other in ([1 << 60], [*found[changed], 1])),
    ):
        with pytest.raises(ValueError):
            decode(encode(found._replace(**{found._fields[place]: array("q", numbers)})))
    stage, text = content
    longer, shorter, odd = text + "AAAAAAAAAAAAAAAA", text[:-32], text[:-4]
    for other in ([stage, longer], [stage, shorter], [stage, odd], [stage, ""], [stage, "?"], [stage, 7]):
        with pytest.raises(ValueError):
            decode(other)
    for other in (None, [], [stage], ["3", text], [*content, 1]):
        with pytest.raises(ValueError):
            decode(other)


def with_work(found: list[Member], work: dict[int, tuple[int, ...]]) -> list[Member]:
    """In every step the same; by rank, of which others have none."""
    steps = [[step._replace(work=work.get(each.rank, ())) for step in each.steps] for each in found]
    return [each._replace(steps=own) for each, own in zip(found, steps, strict=True)]


def test_a_row_has_its_rank_s_work() -> None:
    work = {rank: (128, 1000 * rank, -1, 2) for rank in range(3)}
    for record in side_by_side(with_work(members(3), work)):
        assert record.works() == [[128, 0, -1, 2], [128, 1000, -1, 2], [128, 2000, -1, 2]]
    (machine,) = machine_cuts(0, with_work(members(3), work), keeps_all=True)
    assert decode(json.loads(json.dumps(encode(machine)))) == machine
    alike = with_work(members(3), dict.fromkeys(range(3), (128, 4096, -1, 2)))
    (machine,) = machine_cuts(0, alike, keeps_all=True)
    assert list(machine.work) == [128, 4096, -1, 2], "once for all"
    assert side_by_side(alike)[0].works() == [[128, 4096, -1, 2]] * 3
    assert side_by_side(members(3))[0].work is None, "nobody knows any"
    assert side_by_side(members(3))[0].works() == [[-1] * 4] * 3


@pytest.mark.parametrize("machine", [8, 1000])
def test_the_row_of_the_others_has_the_median_of_what_is_known(machine: int) -> None:
    """Of 100 ranks every fifth does not know its squared lengths; rank 17, which is late, has the most."""
    work = {rank: (128, 5000 + rank % 5, 7, 2) if rank % 5 else (128, -1, 7, 2) for rank in range(100)}
    work[17] = (128, 9000, 7, 2)
    for record in side_by_side(with_work(members(100, late=17), work), frozenset({17}), machine):
        works = record.works()
        assert works[0] == [128, 9000, 7, 2] and record.ranks[0] == 17
        assert works[-1][0] == 128 and works[-1][2:] == [7, 2] and 5001 <= works[-1][1] <= 5004
        assert [works[row] for row in range(len(works) - 1)] == [
            list(work[rank]) for rank in record.ranks[: len(works) - 1]
        ]


def test_a_record_without_a_value_for_each_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="2 rows do not have this work"):
        CutsRecord(7, 0, 2, [5], [1], [0, 1], [1, 1], [1, 2], [3, 4], [128, 4096, -1, 1])
