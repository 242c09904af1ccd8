"""The table that a stage's records make: who was ahead, who came last, and what is no cut at all."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.training.ledger.book import book_of, last_of, lateness_of
from flagscale_perf.training.phases import PHASES
from tests.schedules import AGREE, DATA, FORWARD, GRADS, MS, noise, recorded

EIGHT = range(2, 10)


def test_each_unit_is_compared_with_the_median_of_the_others_in_the_same_step() -> None:
    book = book_of(recorded(4, EIGHT, lambda rank, step, phase: MS * rank * (phase == FORWARD) + step))
    assert book is not None
    column = [way.phase for way in book.ways].index(FORWARD)
    # of the others' 1, 2, 3 ms; 0, 2, 3; 0, 1, 3; 0, 1, 2
    assert [row[column] for row in book.steps[0].beyond_ns] == [-2 * MS, -MS, MS, 2 * MS]
    assert last_of(book.steps[0], book.columns()[0]) == (3, MS)


def test_only_the_last_one_gains_and_no_more_than_its_lead() -> None:
    book = book_of(recorded(3, EIGHT, lambda rank, step, phase: 5 * MS * rank * (phase == DATA)))
    assert book is not None
    lateness = lateness_of(book)
    assert lateness.gain_ns == {(2, DATA): dict.fromkeys(range(len(EIGHT)), 5 * MS)}


def test_a_rank_that_was_not_recorded_does_what_is_usual() -> None:
    book = book_of(recorded(20, EIGHT, noise(0.05, 1)))
    assert book is not None
    for step in book.steps:
        assert len(step.units) == len(step.own_ns) < 10 and step.units[0] is None, "one row for all others"
        assert step.others == 20 - (len(step.units) - 1)
        whole = {sum(own) + sum(wait) for own, wait in zip(step.own_ns, step.wait_ns, strict=True)}
        assert len(whole) == 1, "all take the same way from cut to cut"


def test_a_wait_that_does_not_end_at_one_moment_is_no_cut() -> None:
    """As where a stage's embedding is reduced with another stage's: ranks of one stage leave it apart."""
    uneven = noise(0.1, 2)
    records = recorded(3, EIGHT, uneven)
    late = [
        replace(
            each,
            wait_ns=[*each.wait_ns[:2], *map(lambda ns: ns + 40 * MS, each.wait_ns[2:3]), *each.wait_ns[3:]],
        )
        for each in records
    ]
    book = book_of(late)
    assert book is not None
    assert book.waits == [AGREE]
    assert GRADS in {way.phase for way in book.ways}
    assert GRADS not in book.own_phases(), "waiting is nobody's own time"
    assert PHASES[book.waits[0]] == "exposed_stat_comm"


def test_steps_with_other_cuts_are_counted() -> None:
    records = recorded(2, EIGHT, noise(0.01, 3))
    odd = replace(records[0], waits=[GRADS, GRADS])
    book = book_of([odd, *records[1:]])
    assert book is not None
    assert (len(book.steps), book.left_out) == (7, 1)
    assert book_of([]) is None


def test_where_most_steps_have_all_units_the_others_are_left_out() -> None:
    """They would say that a unit whose row was lost is as late as usual, which it need not be."""
    records = recorded(3, EIGHT, noise(0.01, 3))
    lost = [
        replace(
            each,
            ranks=each.ranks[1:],
            sizes=each.sizes[1:],
            own_ns=each.own_ns[len(each.columns) :],
            wait_ns=each.wait_ns[len(each.waits) :],
        )
        for each in records
    ]
    some, most = book_of([*lost[:3], *records[3:]]), book_of([*lost[:5], *records[5:]])
    assert some is not None and most is not None
    assert (len(some.steps), some.left_out, some.is_whole) == (5, 3, True)
    assert (len(most.steps), most.left_out, most.is_whole) == (8, 0, False)


def test_phases_that_nobody_knows_are_left_out() -> None:
    records = recorded(2, EIGHT, noise(0.01, 3))
    odd = [replace(each, waits=[31] * len(each.waits)) for each in records[:2]]
    odd += [replace(each, columns=[column | 31 for column in each.columns]) for each in records[2:4]]
    book = book_of([*odd, *records[4:]])
    assert book is not None
    assert (len(book.steps), book.left_out) == (4, 4)
    assert book_of(odd) is None
