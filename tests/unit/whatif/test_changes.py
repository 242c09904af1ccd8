"""The text form of changes, and what is refused in it."""

from __future__ import annotations

import pytest

from flagscale_perf.spine.errors import PerfError
from flagscale_perf.whatif.changes import changes, chosen, numbers_of, time_ns

PHASES = {
    "forward": (1,),
    "optimizer_clip": (5,),
    "optimizer_inner": (6,),
    "p2p": (3, 4),
    "data_loading": (2,),
}


def texts(*words: str) -> list[str]:
    return [change.text for change in changes(words, PHASES)]


def test_words_compose_and_have_a_canonical_form() -> None:
    words = (
        "rank=3 forward*=peers m=16 pp=04 layers=6,6,6,4 work=equal data_loading=0 p2p*=0.50 checkpoint=async"
    )
    found = changes(words.split(), PHASES)
    assert [change.text for change in found] == [
        *("rank=3 forward=peers", "m=16", "pp=4", "layers=6,6,6,4", "rank=3 work=equal"),
        *("rank=3 data_loading=0", "rank=3 p2p*=0.5", "checkpoint=async"),
    ]
    assert [change.kind for change in found] == [*"ABBBAAAA"]
    assert texts(" ".join(change.text for change in found)) == [change.text for change in found]


def test_what_is_chosen_holds_up_to_the_next_choice() -> None:
    assert texts("stage=1", "rank=0-3", "forward+=5ms", "p2p*=2", "rank=7", "forward=0") == [
        *("rank=0-3 stage=1 forward+=5ms", "rank=0-3 stage=1 p2p*=2", "rank=7 forward=0"),
    ]


def test_wildcards_of_phases_and_ranks() -> None:
    (change,) = changes(["optimizer_**=0.5"], PHASES)
    assert (change.name, change.how) == ("optimizer_*", "*=")
    assert numbers_of("optimizer_*", PHASES) == [5, 6]
    assert numbers_of("*", PHASES) == [1, 2, 3, 4, 5, 6]
    ranks = [rank for rank in range(20) if chosen("rank=1?,3-4 stage=2", "rank", rank)]
    assert ranks == [3, 4, *range(10, 20)]
    assert chosen("rank=3", "stage", 7)


def test_times_have_units() -> None:
    assert [*map(time_ns, ("0", "3ns", "1.5us", "20ms", "2s"))] == [0, 3, 1500, 20_000_000, 2 * 10**9]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("forwrd=peers", "'forwrd' is nothing that can be changed; did you mean forward?"),
        (
            "speed=2",
            "phases are data_loading, forward, optimizer_clip, optimizer_inner, p2p; besides work, m",
        ),
        ("forward", "'forward' is no change; write NAME=VALUE or NAME[*]=FACTOR, such as m=16"),
        ("forward=", "'forward=' is no change"),
        ("forward+=999999999999s", "a part of a step lasts a day at most"),
        ("forward*=99999999999999", "a part of a step lasts a day at most"),
        (
            "forward=fast",
            r"may be changed to a factor \(NAME\*=0.5\), a time \(NAME=20ms, NAME\+=5ms\), 0, or",
        ),
        ("forward*=5ms", "may be changed to"),
        ("forward+=2", "may be changed to"),
        ("m=0", "m may be a whole number, 1 or more"),
        ("m=many", "m may be a whole number, 1 or more"),
        ("m*=2", "m may be a whole number, 1 or more"),
        ("layers=6,,4", "layers may be the layers of each stage, such as 6,6,6,4"),
        ("schedule=zb", "schedule may be 1f1b or interleaved"),
        ("work=less", "work may be =equal"),
        ("checkpoint=often", r"checkpoint may be =async, =0 or \*=FACTOR"),
        ("evaluation=async", r"evaluation may be =0 or \*=FACTOR"),
        ("rank=x forward=0", "'rank=x' chooses no rank; write rank=3, rank=0-7,12 or rank="),
        ("rank=3", "rank=3 changes nothing; name what"),
        ("rank=3 m=4", "rank=3 changes nothing"),
        ("m=4 m=8", "m= is given twice"),
    ],
)
def test_what_means_nothing_is_refused_in_a_line(words: str, why: str) -> None:
    with pytest.raises(PerfError, match=why) as refused:
        changes([words], PHASES)
    assert "\n" not in str(refused.value)
