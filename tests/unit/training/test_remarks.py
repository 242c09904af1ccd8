"""What is said at once: capped clocks beside a slow interval, errors of the device, memory that runs out."""

from __future__ import annotations

from flagscale_perf.training.remarks import Watch
from tests.fakes import MS, SECOND, make_facts, make_interval, make_reading, make_step

GB = 10**9


def remarks_of(records, **facts):
    watch = Watch(make_facts(**facts))
    return [(found.finding, found.text) for record in records for found in watch.look(record)]


def usual(count=5, **fields):
    return [make_interval(10 * n, **fields) for n in range(1, count + 1)]


def slow(iteration, **fields):
    """18 % slower, at the power limit, with a lower clock."""
    return make_interval(
        iteration, **{"iteration_ns": 1180 * MS, "throttle": "power", "sm_clock_mhz": 1400} | fields
    )


def test_a_slow_interval_with_capped_clocks_is_told() -> None:
    assert remarks_of([*usual(), slow(60)]) == [
        ("slow", "steps 51 to 60 took 18 % longer; observed: rank 0's clock capped by power")
    ]
    one = slow(
        4120, first_iteration=4120, iteration_ns=118 * MS, steps=1, throttle="idle, power, temperature"
    )
    assert remarks_of([*usual(), one]) == [
        ("slow", "step 4120 took 18 % longer; observed: rank 0's clock capped by power and temperature")
    ]


def test_it_is_told_when_it_begins_and_again_when_it_comes_back() -> None:
    told = remarks_of([*usual(20), slow(210), slow(220), make_interval(230), slow(240)])
    assert [text.split(" took")[0] for _, text in told] == ["steps 201 to 210", "steps 231 to 240"]


def test_neither_alone_is_worth_a_word() -> None:
    not_capped = slow(60, throttle="")
    asked_for = slow(60, throttle="application clocks, idle")
    unread = slow(60, throttle=None)
    not_slow = slow(60, iteration_ns=1090 * MS)
    always_at_its_limit = slow(60, sm_clock_mhz=1980)
    warmup = slow(60, warmup_only=True)
    empty = slow(60, steps=0)
    for interval in (not_capped, asked_for, unread, not_slow, always_at_its_limit, warmup, empty):
        assert remarks_of([*usual(), interval]) == []
    assert remarks_of([*usual(2), slow(30)]) == [], "too little to compare with"


def test_without_a_clock_the_reason_is_enough() -> None:
    assert len(remarks_of([*usual(sm_clock_mhz=None), slow(60, sm_clock_mhz=None)])) == 1


def test_errors_of_the_device() -> None:
    readings = [
        make_reading(n * SECOND, xid=xid, ecc_uncorrected=ecc)
        for n, (xid, ecc) in enumerate([(0, 2), (79, 2), (0, None), (0, 5)])
    ]
    assert remarks_of(readings) == [
        ("hardware", "rank 0's device: the driver reports XID 79"),
        ("hardware", "rank 0's device: uncorrected memory errors have gone from 2 to 5"),
    ]


def growing(intervals):
    for n in range(1, intervals + 1):
        yield make_step(10 * n, memory_peak_bytes=n * GB)
        yield make_interval(10 * n)


def test_memory_that_runs_out_before_the_run_is_over_is_told_once() -> None:
    # at step 80 there are 8 of 20 GB, 1 GB more in 10 steps
    assert remarks_of(growing(12), device_memory_bytes=20 * GB, train_iters=1000) == [
        (
            "memory",
            (
                "rank 0's device is out of memory in 120 steps at the latest if its peak goes on growing "
                "like this"
            ),
        )
    ]
    assert remarks_of(growing(12), device_memory_bytes=20 * GB, train_iters=150) == []
    assert len(remarks_of(growing(12), device_memory_bytes=20 * GB, train_iters=None)) == 1


def test_steps_that_have_become_slower_are_told() -> None:
    later = [make_interval(10 * n, iteration_ns=1200 * MS) for n in range(41, 81)]
    (told,) = remarks_of([*usual(40), *later])
    assert told == ("slowdown", "a step takes 20 % longer since about iteration 401 (100.0 to 120.0 ms)")


def test_a_rank_that_waits_for_a_cpu_is_told_over_half_a_minute() -> None:
    def waiting(iteration, share):  # ten seconds of readings
        return make_interval(iteration, host_ns=10 * SECOND, run_delay_ns=round(10 * SECOND * share))

    watch = Watch(make_facts())
    shares = [0.2, 0, 0, 0, 0.2, 0.2, 0.1, 0.1, 0.1, 0.2, 0.2, 0.2, 0.05, 0.03, 0.03, 0, 0, 0]
    found = [each for n, share in enumerate(shares) for each in watch.look(waiting(10 * (n + 1), share))]
    assert [(each.finding, each.state, each.subject, each.text) for each in found] == [
        (
            "host_short_of_cpu",
            state,
            "rank 0",
            f"rank 0's training thread waits {share} of the time for a CPU",
        )
        for state, share in (("begins", "6.7 %"), ("worsens", "13.3 %"), ("ends", "0.0 %"))
    ]
