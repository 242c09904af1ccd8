"""A table of figures over a toy record: what each output makes of its rows."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest

from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.figures import (
    GIGABYTES,
    MILLISECONDS,
    PLAIN,
    SHARE,
    Figure,
    Gauge,
    Rows,
    Table,
    Unit,
    Value,
    Watched,
    csv_line,
)
from flagscale_perf.spine.records import RunHeader
from tests.fakes import make_header


class Call(NamedTuple):
    """A toy record."""

    number: int
    end_ns: int
    dur_ns: int | None
    fill: float = 0.5
    cover: float = 0.25
    text: str = "a"


def _start_ns(header: RunHeader) -> int:
    return header.start_wall_ns


TABLE: Table[Call, int] = Table(
    Call,
    "number",
    "end_ns",
    _start_ns,
    (
        Figure("number", "number", PLAIN, lambda call, start_ns: call.number, in_summary=True),
        Figure(
            "dur_ms",
            "duration",
            MILLISECONDS,
            lambda call, start_ns: call.dur_ns,
            curve="calls/dur_ms",
            gauge=Gauge("call_seconds", "Duration."),
            in_summary=True,
            summary_key="Duration",
            watch=Watched(2, "dur ms"),
        ),
        Figure("end_s", "end", PLAIN, lambda call, start_ns: call.end_ns - start_ns, in_csv=False),
        Figure(
            "fill",
            "fill",
            SHARE,
            lambda call, start_ns: call.fill,
            curve="calls/fill",
            gauge=Gauge("load_ratio", "Load.", ("of", "fill")),
            watch=Watched(1, "fill %"),
            limit=1,
        ),
        Figure(
            "cover",
            "cover",
            SHARE,
            lambda call, start_ns: call.cover,
            curve="calls/cover",
            gauge=Gauge("load_ratio", "Load.", ("of", "cover")),
            limit=1,
        ),
        Figure("text", "text", PLAIN, lambda call, start_ns: call.text),
    ),
)
HEADER = make_header()
ROWS = Rows(TABLE, HEADER)
CALL = Call(7, HEADER.start_wall_ns + 5, 2_500_000)


def test_a_row_for_csv_and_one_for_the_summary() -> None:
    assert TABLE.csv_keys() == ["number", "dur_ms", "fill", "cover", "text"]
    assert ROWS.csv(CALL) == {"number": 7, "dur_ms": 2.5, "fill": 0.5, "cover": 0.25, "text": "a"}
    assert ROWS.summary(CALL) == {"number": 7, "Duration": 2.5}
    assert (ROWS.is_row(CALL), ROWS.is_row(HEADER)) == (True, False)


def test_values_follow_from_the_record_and_from_what_is_fixed_for_the_run() -> None:
    assert ROWS.value(TABLE.figures[2], CALL) == 5
    assert ROWS.numbers(TABLE.figures[1], [CALL, CALL._replace(dur_ns=None)]) == [2.5, None]
    assert ROWS.numbers(TABLE.figures[5], [CALL]) == [None]


def test_curves_of_what_is_known() -> None:
    assert ROWS.curves(CALL) == {"calls/dur_ms": 2.5, "calls/fill": 0.5, "calls/cover": 0.25}
    assert ROWS.curves(CALL._replace(dur_ns=None)) == {"calls/fill": 0.5, "calls/cover": 0.25}


def test_a_figure_is_shown_under_another_name_beside_its_own() -> None:
    others = {"also_in_summary": {"dur_total": "dur_ms"}, "also_curves": {"other/fill": "fill"}}
    rows = Rows(replace(TABLE, **others), HEADER)
    assert rows.summary(CALL) == {"number": 7, "Duration": 2.5, "dur_total": 2.5}
    assert rows.curves(CALL) == ROWS.curves(CALL) | {"other/fill": 0.5}
    assert rows.curves(CALL._replace(fill=1.042)) == {"calls/dur_ms": 2.5}
    with pytest.raises(PerfError, match="'durms' is not a figure"):
        Rows(replace(TABLE, also_in_summary={"dur_total": "durms"}), HEADER)


def test_gauges_are_as_recorded_and_unknown_ones_are_there() -> None:
    gauges = {(gauge.name, gauge.label): value for gauge, value in ROWS.gauges(CALL._replace(dur_ns=None))}
    assert gauges == {
        ("call_seconds", None): None,
        ("load_ratio", ("of", "fill")): 0.5,
        ("load_ratio", ("of", "cover")): 0.25,
    }


def test_above_its_limit_a_value_is_marked_and_no_curve_has_a_figure_with_a_limit() -> None:
    impossible = CALL._replace(fill=1.042)
    assert [figure.text(ROWS.value(figure, impossible)) for figure in TABLE.figures[3:5]] == [
        "104.2!",
        "25.0",
    ]
    assert ROWS.curves(impossible) == {"calls/dur_ms": 2.5}
    assert [value for _, value in ROWS.gauges(impossible)] == [2_500_000, None, None]
    assert ROWS.csv(impossible)["fill"] == 1.042


def test_watch_has_an_order_of_its_own() -> None:
    assert [(title, figure.key) for title, figure in TABLE.watched()] == [
        ("fill %", "fill"),
        ("dur ms", "dur_ms"),
    ]


@pytest.mark.parametrize(
    ("unit", "recorded", "value", "text"),
    [
        (GIGABYTES, 2_500_000_000, 2.5, "2.50"),
        (SHARE, 0.501, 0.501, "50.1"),
        (PLAIN, 1_048_576, 1_048_576, "1048576"),
        (PLAIN, None, None, "-"),
        (PLAIN, "a\nb", "a\nb", "a\\x0ab"),
        (Unit("tokens/s", decimals=1), 0.000123, 0.000123, "0.000123"),
    ],
)
def test_units(unit: Unit, recorded: Value, value: Value, text: str) -> None:
    assert (unit.of(recorded), unit.text(unit.of(recorded))) == (value, text)


def test_a_line_of_csv() -> None:
    assert csv_line([1, 2.5, None, True, "a,b", "=1", "-1", -1.0]) == "1,2.5,,1,\"a,b\",'=1,'-1,-1.0\n"
    assert csv_line(["a\nb", "\t=1"]) == "a\\x0ab,\\x09=1\n"
