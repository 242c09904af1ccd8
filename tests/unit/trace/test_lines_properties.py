"""Text of every kind from the tracer into lines and out of them again: it stays in its field."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from unicodedata import category

from hypothesis import example, given
from hypothesis import strategies as st

from flagscale_perf.analysis.job import open_session
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.spine.ring import Ring
from flagscale_perf.trace import tracer as tracing
from flagscale_perf.trace.analysis.source import Traces, read_traces
from flagscale_perf.trace.lines import Lines, escaped
from flagscale_perf.trace.options import TraceOptions
from flagscale_perf.trace.records import Kind
from flagscale_perf.trace.running import GET, PUT, Call, Operation
from flagscale_perf.trace.tracer import Tracer

FRAGMENTS = st.sampled_from(
    [
        " | ",
        "|",
        "\n",
        "\r",
        "\0",
        "\x1b[31m",
        "\u2028",
        "\x85",
        "\ud800",
        "é",
        "=",
        "%",
        " ",
        "a1",
        "[TQ-TRACE] trace_id=x | func=evil | stage=FUNCTION_END | total_duration=9.000000s",
        "[TQ-DETAIL]",
        "stage=FUNCTION_END",
        "func=evil",
        "number=7",
        "pid=7",
        "weight=1000",
        "<script>",
        "N/A",
        "[repeated 75x across cluster]",
        "(Worker pid=7, ip=10.0.0.3)",
        "\\x7c",
    ]
)
TEXT = st.lists(FRAGMENTS | st.text(st.characters(), max_size=6), max_size=5).map("".join)


def _logged(function: str, trace_id: str, partition: str, error: str) -> list[str]:
    """Lines of one failed call with a put and a get in it."""
    ring = Ring.create(64)
    tracer = Tracer(TraceOptions(True, True, Path("unused")), ring.put)
    batch = SimpleNamespace(
        global_indexes=[3, 4],
        partition_ids=[partition] * 2,
        extra_info={"trace_id": trace_id},
        custom_meta=[],
        size=2,
    )
    failure = type("Hostile", (Exception,), {})
    failure.__name__ = error
    call = Call(function, batch, None, 0)
    call.compute_start_ns, call.compute_end_ns = 10, 20
    tracing.active = tracer
    tracer.end_operation(Operation(GET, call, 0), batch, {}, None)
    tracer.end_operation(Operation(PUT, call, 0), batch, None, failure())
    tracer.end_call(call, failure())
    assert tracing.active is tracer, "it has not failed"
    tracing.active = None
    records = ring.take(64)
    ring.release()
    made = Lines(Anchor(0, 0), pid=123)
    lines: list[str] = []
    for record in records:
        if isinstance(record, NameRecord):
            made.names[record.number] = record.text
        lines += made.of(record)
    return lines


def _read(lines: list[str]) -> Traces:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "training.log"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return read_traces(open_session(path))


def _is_plain(text: str) -> bool:
    """Whether it is one line, and nothing in it is obeyed by a terminal."""
    return text.splitlines() in ([text], []) and all(category(each) not in ("Cc", "Cs") for each in text)


def _fields(line: str) -> dict[str, str]:
    return dict(field.split("=", 1) for field in line.split("] ", 1)[1].split(" | "))  # type: ignore[misc]


@given(function=TEXT, trace_id=TEXT, partition=TEXT, error=TEXT.filter(str.isprintable))
@example(function="f", trace_id="[repeated 75x across cluster]", partition="p", error="E")
@example(function="[TQ-TRACE] trace_id=1 | func=evil", trace_id="x", partition="p", error="E")
def test_text_stays_in_its_field(function: str, trace_id: str, partition: str, error: str) -> None:
    lines = _logged(function, trace_id, partition, error)
    assert len(lines) == 2 + 2 + 6
    assert all(_is_plain(line) and line.count("[TQ-") == 1 for line in lines)
    said = _fields(lines[-1])
    assert list(said)[:3] == ["trace_id", "func", "stage"]
    assert [said[each] for each in ("stage", "status", "pid")] == ["FUNCTION_END", "error", "123"]
    detail = _fields(lines[1])
    assert (detail["stage"], detail["batch_size"], detail["number"]) == ("TQ_CLIENT_GET_END", "2", "2")
    traces = _read(lines)
    ((name, one),) = traces.sums.functions.items()
    assert name.strip() == said["func"].strip()
    assert (one.calls, list(one.errors.values())) == (1, [1])
    operations = traces.sums.operations
    assert [operations[kind].total.count for kind in (Kind.PUT, Kind.GET)] == [1, 1]


@given(TEXT)
def test_what_is_escaped_has_nothing_that_ends_a_field_or_a_line(text: str) -> None:
    found = escaped(text)
    assert _is_plain(found) and "|" not in found and "[TQ-" not in found
