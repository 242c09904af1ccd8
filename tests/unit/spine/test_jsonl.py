"""The codec of run files: round trips, strictness, and damaged lines."""

from __future__ import annotations

import io
import json
from dataclasses import FrozenInstanceError, asdict, replace

import pytest

from flagscale_perf.spine.jsonl import (
    MAX_ITEMS,
    MAX_LINE_BYTES,
    MAX_TEXT,
    BadLine,
    decode,
    dump,
    encode,
)
from flagscale_perf.spine.reading import read_records
from flagscale_perf.spine.records import SCHEMA_VERSION, RunEnd
from flagscale_perf.training.rank_records import NodeRecord
from flagscale_perf.training.records import Record
from tests.fakes import (
    make_event,
    make_facts,
    make_header,
    make_interval,
    make_phases,
    make_skipped_data,
    make_step,
)

RECORDS = [
    make_header(),
    make_step(1, warmup=1, model_flops=10**30),
    make_step(
        2, device_ns=None, model_flops=None, hardware_flops=None, memory_bytes=None, memory_peak_bytes=None
    ),
    make_skipped_data(5, 3),
    make_interval(10),
    make_interval(20, warmup_only=True, model_flops=None),
    make_phases(3, forward_ns=None),
    make_interval(20, phases_ns={"forward": 5, "backward": None}),
    make_event("failure", text='quote " newline \n tab \t ü \x1b'),
    RunEnd("exit 3", 123, 10, 2),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_what_is_decoded_equals_what_was_encoded(record: Record) -> None:
    line = encode(record)
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    assert decode(line) == record


def test_a_line_is_compact_json_with_its_kind_first() -> None:
    assert (
        encode(RunEnd("completed", 5, 7, 0))
        == b'{"kind":"end","reason":"completed","end_wall_ns":5,"last_iteration":7,"dropped":0}\n'
    )


def test_a_file_from_before_a_field_that_may_be_unknown_stays_readable() -> None:
    fields = json.loads(encode(make_interval(10)))
    del fields["mfu"], fields["hfu"]
    assert decode(json.dumps(fields).encode()) == make_interval(10, mfu=None, hfu=None)


def test_a_header_from_before_host_boot_and_process_stays_readable() -> None:
    fields = json.loads(encode(make_header()))
    for name in ("instrument", "host", "boot_id", "pid"):
        del fields[name]
    old = replace(make_header(), instrument="training", host=None, boot_id=None, pid=None)
    assert decode(json.dumps(fields).encode()) == old


def test_what_is_not_finite_becomes_null() -> None:
    header = make_header(facts=make_facts(peak_flop_per_s=float("inf"), model={"scale": [float("nan"), 1.5]}))
    facts = json.loads(encode(header), parse_constant=pytest.fail)["facts"]
    assert (facts["peak_flop_per_s"], facts["model"]) == (None, {"scale": [None, 1.5]})


def test_unknown_types_are_written_as_their_text() -> None:
    assert dump({"dtype": complex(0, 1)}) == '{"dtype":"1j"}'


def end_line(**changes) -> bytes:
    return json.dumps(
        {"kind": "end", "reason": "completed", "end_wall_ns": 5, "last_iteration": 7, "dropped": 0} | changes
    ).encode()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\xff\n", "not UTF-8"),
        (b"{\n", "no JSON: Expecting property name enclosed in double quotes at character 3"),
        (b"[1]\n", "no JSON object"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"kind":"step","iteration":NaN}', "NaN is no JSON"),
        (end_line(kind="stop"), "this version knows no records of kind 'stop'"),
        (end_line(kind=["end"]), "this version knows no records of kind \"['end']\""),
        (end_line(dropped=None), "field 'dropped' is NoneType, not int"),
        (end_line(dropped=True), "field 'dropped' is bool, not int"),
        (end_line(reason=3), "field 'reason' is int, not str"),
        (end_line(dropped=2**127), "field 'dropped' is out of range"),
        (end_line(end_wall_ns=2**63), "field 'end_wall_ns' is out of range"),
        (
            b'{"kind":"end","reason":"completed","end_wall_ns":5,"last_iteration":7}',
            "field 'dropped' is missing",
        ),
    ],
)
def test_a_line_that_is_no_record_says_why(line: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=".") as caught:
        decode(line)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("phases_ns", "reason"),
    [
        ({"forward": "5"}, "field 'phases_ns' holds what is not int or NoneType"),
        ({"forward": True}, "field 'phases_ns' holds what is not int or NoneType"),
        ({"forward": 2**63}, "field 'phases_ns' is out of range"),
        ([5], "field 'phases_ns' is list, not dict or NoneType"),
    ],
)
def test_what_is_inside_a_mapping_of_numbers_is_checked_too(phases_ns, reason: str) -> None:
    content = json.loads(encode(make_interval(10))) | {"phases_ns": phases_ns}
    with pytest.raises(ValueError, match=".") as caught:
        decode(json.dumps(content).encode())
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"ranks": [1, "2"]}, "field 'ranks' holds what is not int"),
        ({"ranks": [1, None]}, "field 'ranks' holds what is not int"),
        ({"devices": [None]}, "field 'devices' holds what is not str"),
        ({"ranks": [1, 2**127]}, "field 'ranks' is out of range"),
        ({"ranks": {"1": 1}}, "field 'ranks' is dict, not list"),
    ],
)
def test_what_is_inside_a_list_is_checked_too(changed, reason: str) -> None:
    content = json.loads(encode(NodeRecord("node", [1], [77], ["CPU"], [0])))
    assert decode(json.dumps(content).encode()) == NodeRecord("node", [1], [77], ["CPU"], [0])
    with pytest.raises(ValueError, match=".") as caught:
        decode(json.dumps(content | changed).encode())
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("record", "changes", "reason"),
    [
        (make_step(1), {"iteration_ns": 2**63}, "field 'iteration_ns' is out of range"),
        (make_step(1), {"iteration_ns": -1}, "field 'iteration_ns' is below 0, and it is a time"),
        (make_step(1), {"tokens": -(2**127)}, "field 'tokens' is out of range"),
        (make_step(1), {"warmup": True}, "field 'warmup' is bool, not int"),
        (
            make_interval(10, phases_ns={"forward": 5}),
            {"phases_ns": {"forward": 2**63}},
            "field 'phases_ns' is out of range",
        ),
        (
            make_interval(10, phases_ns={"forward": 5}),
            {"phases_ns": {"forward": 1.5}},
            "field 'phases_ns' holds what is not int or NoneType",
        ),
        (RunEnd("completed", 5, 7, 0), {"end_wall_ns": 2**63}, "field 'end_wall_ns' is out of range"),
    ],
)
def test_a_line_like_a_good_one_before_is_checked_as_closely(record: Record, changes, reason: str) -> None:
    good = encode(record)
    bad = json.dumps(json.loads(good) | changes).encode()
    for _ in range(2):
        assert decode(good) == record
        with pytest.raises(ValueError, match=".") as caught:
            decode(bad)
        assert str(caught.value) == reason


def test_large_counts_are_read_again_and_again() -> None:
    for flops in (1, 2**63, 2**126):
        assert [decode(encode(make_step(1, model_flops=flops))) for _ in range(2)] == [
            make_step(1, model_flops=flops)
        ] * 2


def test_a_record_that_was_read_is_as_good_as_one_that_was_made() -> None:
    first, second = (decode(encode(make_interval(10))) for _ in range(2))
    assert (first, repr(second), hash(type(first))) == (
        make_interval(10),
        repr(make_interval(10)),
        hash(type(second)),
    )
    assert replace(second, iteration=20) == make_interval(20, first_iteration=1)  # type: ignore[type-var]
    with pytest.raises(FrozenInstanceError):
        second.iteration = 5  # type: ignore[misc, union-attr]


def test_white_space_around_a_record_is_allowed_and_nothing_else() -> None:
    line = end_line()
    assert decode(b" " + line + b" \r\n") == decode(line) == RunEnd("completed", 5, 7, 0)
    with pytest.raises(ValueError, match="no JSON: Extra data"):
        decode(line + b"{}")


def test_an_integer_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(ValueError, match="digits"):
        decode(b'{"kind":"end","dropped":' + b"9" * 6000 + b"}")


def test_fields_of_a_later_writer_are_left_out_and_optional_ones_of_an_older_are_unknown() -> None:
    content = json.loads(encode(make_step(3))) | {"joules": 5}
    del content["log_ns"], content["self_ns"]
    assert decode(json.dumps(content).encode()) == make_step(3, self_ns=None)
    content = json.loads(encode(make_interval(10, phases_ns={"forward": 5}, bubble_ns=1, imbalance_ns=2)))
    for field in ("self_ns", "phases_ns", "bubble_ns", "imbalance_ns"):
        del content[field]
    assert decode(json.dumps(content).encode()) == make_interval(10, self_ns=None)


def test_a_header_of_a_later_schema_is_refused_with_the_cure() -> None:
    content = json.loads(encode(make_header())) | {"schema_version": SCHEMA_VERSION + 1}
    with pytest.raises(ValueError, match="schema version 2 is newer than 1: update flagscale_perf"):
        decode(json.dumps(content).encode())


def test_the_longest_line_there_may_be_is_read() -> None:
    line = encode(make_step(1))[:-1].ljust(MAX_LINE_BYTES - 1) + b"\n"
    assert list(read_records(io.BytesIO(line))) == [make_step(1)]
    assert list(read_records(io.BytesIO(b" " + line))) == [BadLine(1, f"longer than {MAX_LINE_BYTES} bytes")]


def test_the_good_lines_of_a_damaged_file_are_kept() -> None:
    long = b'{"kind":"' + b"x" * (3 * MAX_LINE_BYTES) + b'"}\n'
    content = (
        encode(make_step(1))
        + b"\0\0\0\n"
        + encode(make_step(2))
        + long
        + b"\n"
        + encode(make_step(3))
        + encode(make_step(4))[:-9]
    )
    assert list(read_records(io.BytesIO(content))) == [
        make_step(1),
        BadLine(2, "no JSON: Expecting value at character 1"),
        make_step(2),
        BadLine(4, f"longer than {MAX_LINE_BYTES} bytes"),
        BadLine(5, "no JSON: Expecting value at character 2"),
        make_step(3),
        BadLine(7, "cut off", torn=True),
    ]


def test_what_is_too_much_for_one_record_is_refused() -> None:
    texts = {"text": "x" * (MAX_TEXT + 1)}
    with pytest.raises(ValueError, match=f"field 'text' has more than {MAX_TEXT} characters"):
        decode(_line("event", make_event()._asdict() | texts))
    node = NodeRecord("node0", list(range(MAX_ITEMS)), [1], ["x" * MAX_TEXT], [0])
    assert decode(encode(node)) == node
    reason = f"holds more than {MAX_ITEMS} values, or a text of more than {MAX_TEXT} characters"
    for more in ({"ranks": list(range(MAX_ITEMS + 1))}, {"devices": ["x" * (MAX_TEXT + 1)]}):
        with pytest.raises(ValueError, match=f"field '{next(iter(more))}' {reason}"):
            decode(_line("node", asdict(node) | more))
    with pytest.raises(ValueError, match=f"field 'phases_ns' {reason}"):
        decode(_line("interval", asdict(make_interval()) | {"phases_ns": {"x" * (MAX_TEXT + 1): 1}}))


def test_a_long_text_of_an_event_is_cut_and_not_lost() -> None:
    read = decode(encode(make_event(text="x" * MAX_TEXT + "y")))
    assert read == make_event(text="x" * (MAX_TEXT - 3) + "...")
    assert decode(encode(make_event(text="x" * MAX_TEXT))) == make_event(text="x" * MAX_TEXT)


def _line(kind: str, fields: dict[str, object]) -> bytes:
    return json.dumps({"kind": kind} | fields).encode()
