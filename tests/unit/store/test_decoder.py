"""Lines as records: round trips and strictness."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, asdict, replace
from pathlib import Path

import pytest

from flagscale_perf.spine.jsonl import MAX_ITEMS, MAX_TEXT, encode
from flagscale_perf.spine.records import KINDS, SCHEMA_VERSION, TYPES, Record, RunEnd
from flagscale_perf.store.decoder import decode
from flagscale_perf.training.rank_records import NodeRecord
from tests.every_instrument import WRITERS, records_of
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


def end_line(**changes) -> bytes:
    return json.dumps(
        {"kind": "end", "reason": "completed", "end_wall_ns": 5, "last_iteration": 7, "dropped": 0} | changes
    ).encode()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\xff\n", "JSON is malformed: invalid character (byte 0)"),
        (b"{\n", "Input data was truncated"),
        (b"[1]\n", "Expected `object`, got `array`"),
        (b'{"kind":"end","x":' + b"[" * 100_000, "nested too deeply"),
        (b'{"kind":"step","iteration":NaN}', "JSON is malformed: invalid character (byte 27)"),
        (end_line(kind="stop"), "this version knows no such records: Invalid value 'stop' - at `$.kind`"),
        (end_line(kind=["end"]), "this version knows no such records: Expected `str` - at `$.kind`"),
        (end_line(dropped=None), "Expected `int`, got `null` - at `$.dropped`"),
        (end_line(dropped=True), "Expected `int`, got `bool` - at `$.dropped`"),
        (end_line(reason=3), "Expected `str`, got `int` - at `$.reason`"),
        (end_line(dropped=2**63), "Expected `int` <= 9223372036854775807 - at `$.dropped`"),
        (end_line(dropped=1.0), "Expected `int`, got `float` - at `$.dropped`"),
        (
            b'{"kind":"end","reason":"completed","end_wall_ns":5,"last_iteration":7}',
            "Object missing required field `dropped`",
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
        ({"forward": "5"}, "Expected `int | null`, got `str` - at `$.phases_ns[...]`"),
        ({"forward": True}, "Expected `int | null`, got `bool` - at `$.phases_ns[...]`"),
        ({"forward": 2**63}, "Expected `int` <= 9223372036854775807 - at `$.phases_ns[...]`"),
        ([5], "Expected `object | null`, got `array` - at `$.phases_ns`"),
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
        ({"ranks": [1, "2"]}, "Expected `int`, got `str` - at `$.ranks[1]`"),
        ({"ranks": [1, None]}, "Expected `int`, got `null` - at `$.ranks[1]`"),
        ({"devices": [None]}, "Expected `str`, got `null` - at `$.devices[0]`"),
        ({"ranks": [1, 10**38]}, "Expected `int` <= 9223372036854775807 - at `$.ranks[1]`"),
        ({"ranks": {"1": 1}}, "Expected `array`, got `object` - at `$.ranks`"),
    ],
)
def test_what_is_inside_a_list_is_checked_too(changed, reason: str) -> None:
    content = json.loads(encode(NodeRecord("node", [1], [77], ["CPU"], [0])))
    assert decode(json.dumps(content).encode()) == NodeRecord("node", [1], [77], ["CPU"], [0])
    with pytest.raises(ValueError, match=".") as caught:
        decode(json.dumps(content | changed).encode())
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"iteration_ns": -1}, "Expected `int` >= 0 - at `$.iteration_ns`"),
        ({"start_ns": -(2**63)}, "Expected `int` >= 0 - at `$.start_ns`"),
        ({"model_flops": 10**38}, "field 'model_flops' is out of range"),
        ({"model_flops": -(10**38)}, "field 'model_flops' is out of range"),
    ],
)
def test_what_cannot_be_measured_is_refused(changes, reason: str) -> None:
    with pytest.raises(ValueError, match=".") as caught:
        decode(json.dumps(json.loads(encode(make_step(1))) | changes).encode())
    assert str(caught.value) == reason


def test_a_name_that_is_no_text_is_read_with_its_escape() -> None:
    header = make_header(facts=make_facts(host="\udc80 \\ud800 \U0001f600"))
    read = decode(encode(header))
    assert read.facts["host"] == "\\udc80 \\ud800 \U0001f600"  # type: ignore[union-attr]


def test_what_a_damaged_line_says_does_not_reach_the_terminal_as_it_is() -> None:
    with pytest.raises(ValueError, match="Invalid value") as caught:
        decode('{"kind":"\x90q\x9c"}'.encode())
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("flops", [1, 2**63, 10**38 - 1])
def test_large_counts_are_read(flops: int) -> None:
    assert decode(encode(make_step(1, model_flops=flops))) == make_step(1, model_flops=flops)


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
    with pytest.raises(ValueError, match="JSON is malformed: trailing characters"):
        decode(line + b"{}")


def test_an_integer_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(ValueError, match="Integer value out of range"):
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


def test_what_is_too_much_for_one_record_is_refused() -> None:
    texts = {"text": "x" * (MAX_TEXT + 1)}
    with pytest.raises(ValueError, match=f"Expected `str` of length <= {MAX_TEXT} - at `\\$.text`"):
        decode(_line("event", make_event()._asdict() | texts))
    node = NodeRecord("node0", list(range(MAX_ITEMS)), [1], ["x" * MAX_TEXT], [0])
    assert decode(encode(node)) == node
    for more in ({"ranks": list(range(MAX_ITEMS + 1))}, {"devices": ["x" * (MAX_TEXT + 1)]}):
        with pytest.raises(ValueError, match="of length <= "):
            decode(_line("node", asdict(node) | more))
    with pytest.raises(ValueError, match="of length <= "):
        decode(_line("interval", asdict(make_interval()) | {"phases_ns": {"x" * (MAX_TEXT + 1): 1}}))


def test_a_long_text_of_an_event_is_cut_and_not_lost() -> None:
    read = decode(encode(make_event(text="x" * MAX_TEXT + "y")))
    assert read == make_event(text="x" * (MAX_TEXT - 3) + "...")
    assert decode(encode(make_event(text="x" * MAX_TEXT))) == make_event(text="x" * MAX_TEXT)


def _line(kind: str, fields: dict[str, object]) -> bytes:
    return json.dumps({"kind": kind} | fields).encode()


@pytest.mark.parametrize("name", WRITERS)
def test_a_moment_or_duration_below_zero_or_no_number_is_damage_in_files_of_every_instrument(
    name: str, tmp_path: Path
) -> None:
    for line in {type(record): encode(record) for record in records_of(name, tmp_path)}.values():
        fields = json.loads(line)
        times = {TYPES[KINDS[fields["kind"]]].start, TYPES[KINDS[fields["kind"]]].duration, "start_wall_ns"}
        for time in times & fields.keys():
            for value in (-1, float("nan")):
                with pytest.raises(ValueError, match=r">= 0|malformed"):
                    decode(json.dumps(fields | {time: value}).encode())
