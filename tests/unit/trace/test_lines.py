"""The lines of a log, to the letter."""

from flagscale_perf.spine.clock import Anchor
from flagscale_perf.trace.lines import Lines, escaped
from flagscale_perf.trace.records import Kind
from tests.golden import golden
from tests.traced import ERROR, NAMES, call, operation

ANCHOR = Anchor(wall_ns=1_706_524_200_000_000_000, mono_ns=1_000_000_000)
HOSTILE = "a | stage=FUNCTION_END\n[TQ-TRACE] \x1b[31m\u202eb"


def text() -> str:
    """Of every kind."""
    start = {"start_ns": 1_000_000_000}
    records = [
        call(7, **start),
        call(8, **start, trace_id="", weight_milli=10_000, step=3),
        call(9, **start, compute_ns=None, put_ns=None, total_ns=52_000_000, error=ERROR),
        call(10, **start, put_ns=None, total_ns=852_000_000, error=ERROR),
        call(11, **start, trace_id=HOSTILE[:40], function=4),
        operation(12, **start),
        operation(13, **start, operation=int(Kind.PUT), size_bytes=None, error=ERROR, step=3),
        operation(14, **start, total_ns=0, size_bytes=0, rows=0),
    ]
    made = Lines(ANCHOR, 123, NAMES | {4: HOSTILE})
    return "".join(f"{line}\n" for record in records for line in made.of(record))


def test_lines_are_the_golden_ones() -> None:
    assert text() == golden("trace_lines.log")


def test_a_call_has_eight_lines_in_the_order_of_its_stages() -> None:
    stages = [line.split(" | ")[2] for line in Lines(ANCHOR, names=NAMES).of(call(1))]
    assert stages == [
        "stage=FUNCTION_START",
        *(f"stage={name}_{end}" for name in ("GET", "COMPUTE", "PUT") for end in ("START", "END")),
        "stage=FUNCTION_END",
    ]


def test_the_users_examples() -> None:
    whole = Lines(ANCHOR, names=NAMES).of(call(1))[-1]
    assert whole.startswith(
        "[TQ-TRACE] trace_id=a1b2c3d4 | func=rollout | stage=FUNCTION_END | total_duration=0.914024s"
        " | get_ratio=5.69% | compute_ratio=87.53% | put_ratio=6.79%"
    )
    put = operation(1, operation=int(Kind.PUT), trace_id="a1b2c3d4")
    assert (
        Lines(ANCHOR, names=NAMES)
        .of(put)[-1]
        .startswith(
            "[TQ-DETAIL] trace_id=a1b2c3d4 | stage=TQ_CLIENT_PUT_END | duration=0.060000s"
            " | throughput_mbps=253.33"
        )
    )


def test_nothing_leaves_its_field() -> None:
    for line in Lines(ANCHOR, names={4: HOSTILE}).of(call(1, trace_id=HOSTILE[:40], function=4)):
        head, function, stage, *_ = line.split(" | ")
        assert head.startswith("[TQ-TRACE] trace_id=a \\x7c stage=FUNCTION_END")
        assert function == f"func={escaped(HOSTILE)}"
        assert stage.startswith("stage=")
        assert line.isprintable()


def test_other_records_have_no_lines() -> None:
    assert Lines(ANCHOR).of(object()) == []
