"""Rows and steps summed up."""

from __future__ import annotations

from flagscale_perf.profile.analysis.source import Profile
from flagscale_perf.profile.analysis.sums import Books, sums_of
from flagscale_perf.profile.records import PARTS
from tests.profile_runs import MS


def test_the_parts_of_a_step_make_the_step(profile: Profile) -> None:
    sums = sums_of(profile)["train"]
    first, second = sums.books.values()
    assert first.parts == {
        "operators": 70 * MS,
        "outside": 6 * MS,
        "communication": 13 * MS,
        "host": 7 * MS,
        "engine": 3 * MS,
        "residual": 2 * MS,
    }
    assert first.total == sum(first.parts.values()) == 101 * MS
    assert first.rows == 99 * MS
    assert second.communication == 10 * MS
    assert sums.mean.communication == 11.5 * MS
    assert first.coverage == 1 - 2 / 101


def test_by_layer_and_kind(profile: Profile) -> None:
    sums = sums_of(profile)["train"]
    assert [place.name for place in sums.places] == ["embed_tokens", "layer 0", "layer 1", "outside"]
    assert sums.kinds == [
        *("matmul", "attention", "activation", "embedding", "optimizer", "communication", "host"),
        "engine",
    ]
    amounts = sums.by_place(lambda cell: (cell.place.name, cell.kind))
    matmul = amounts["layer 0", "matmul"]  # (30 + 40 + 36 + 40) / 2 steps / 2 ranks
    assert (matmul.self_ns, matmul.runs, matmul.flops) == (36.5 * MS, 3, 2_250_000_000)
    forward = sums.by(lambda cell: cell.kind, lambda cell: cell.phase == "forward")
    assert forward["matmul"].self_ns == 26.5 * MS


def test_nothing_was_profiled(nothing: Profile) -> None:
    assert sums_of(nothing) == {}


def test_a_mean_step_of_two_kinds() -> None:
    nothing = dict.fromkeys(PARTS, 0.0)
    prefill = Books(1, 30.0, nothing | {"operators": 10.0, "communication": 20.0}, 30.0)
    decode = Books(4, 5.0, nothing | {"operators": 2.0, "communication": 3.0}, 5.0)
    # (30 + 4 * 5) / 5, (10 + 4 * 2) / 5, (20 + 4 * 3) / 5
    mixed = Books(5, 10.0, nothing | {"operators": 3.6, "communication": 6.4}, 10.0)
    assert Books.mixed([prefill, decode]) == mixed
    assert Books.mixed([]) is None
