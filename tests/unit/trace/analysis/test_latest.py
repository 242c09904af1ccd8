"""The latest samples: ten groups, the latest first, those that a job began with behind all others."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.trace.analysis.latest import MOST, Late, Latest

MS = 1_000_000


def late(index: int, took_ms: int, first_ms: int = 100) -> Late:
    first_ns = first_ms * MS
    return Late("train", index, index, 1, first_ns, first_ns + MS, first_ns + took_ms * MS, index, "rollout")


def test_the_ten_latest_are_kept_in_their_order() -> None:
    found = Latest(began_ns=0)
    for index in range(50):
        found.add(late(index, took_ms=(index * 7) % 50 + 2))
    taken = [(one.used_ns - one.first_ns) // MS for one in found.found]
    assert taken == list(range(51, 51 - MOST, -1))


def test_what_was_put_while_the_job_was_starting_comes_behind_all_others() -> None:
    found = Latest(began_ns=50 * MS)
    found.add(late(1, took_ms=9_000, first_ms=0))
    found.add(late(2, took_ms=5))
    assert [one.index for one in found.found] == [2, 1]


def test_one_sample_is_named_as_it_is_asked_for_and_several_by_their_indexes() -> None:
    assert late(3, 5).name == "train:3"
    assert replace(late(3, 5), last=9, count=4).name == "train:3 to 9 (4)"
    assert late(3, 5).as_dict() == {
        "partition": "train",
        "index": 3,
        "last": 3,
        "count": 1,
        "step": 3,
        "written": "rollout",
        "took_ns": 5 * MS,
        "until_put_ns": MS,
        "waited_ns": 4 * MS,
    }
