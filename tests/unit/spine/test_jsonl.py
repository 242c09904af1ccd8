"""Records as lines, and a writer's own lines as records again."""

from __future__ import annotations

import json

import pytest

from flagscale_perf.spine.jsonl import dump, encode, recall
from flagscale_perf.spine.records import Record, RunEnd
from tests.fakes import make_event, make_facts, make_header, make_interval, make_phases, make_step

RECORDS = [
    make_header(),
    make_step(1, model_flops=10**30),
    make_phases(3, forward_ns=None),
    make_interval(20, phases_ns={"forward": 5, "backward": None}),
    make_event("failure", text="\x1b\udc80"),
    RunEnd("exit 3", 123, 10, 2),
]


def test_a_line_is_compact_json_with_its_kind_first() -> None:
    assert (
        encode(RunEnd("completed", 5, 7, 0))
        == b'{"kind":"end","reason":"completed","end_wall_ns":5,"last_iteration":7,"dropped":0}\n'
    )


def test_what_is_not_finite_becomes_null() -> None:
    header = make_header(facts=make_facts(peak_flop_per_s=float("inf"), model={"scale": [float("nan"), 1.5]}))
    facts = json.loads(encode(header), parse_constant=pytest.fail)["facts"]
    assert (facts["peak_flop_per_s"], facts["model"]) == (None, {"scale": [None, 1.5]})


def test_unknown_types_are_written_as_their_text() -> None:
    assert dump({"dtype": complex(0, 1)}) == '{"dtype":"1j"}'


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_writer_recalls_its_own_lines_without_a_library(record: Record) -> None:
    assert recall(encode(record)) == record


@pytest.mark.parametrize(
    "line", [b"", b"[1]", b'{"kind":"no"}', b'{"kind":"end"}', b'{"reason":"x"}', b"\xff"]
)
def test_what_is_no_line_of_its_own_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="."):
        recall(line)
