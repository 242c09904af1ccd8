"""Several sinks as one: none holds up another, each trouble is reported once."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from flagscale_perf.sinks.base import SinkContext
from flagscale_perf.spine.records import Record
from flagscale_perf.writer.fanout import FanOut
from tests.fakes import make_context, make_header, make_interval, make_step


class Memory:
    """Keeps what it is given; fails on demand."""

    name: ClassVar[str] = "memory"
    cost: ClassVar[str] = "nothing to remember"
    rebuilds: ClassVar[bool] = True
    made: ClassVar[list[Memory]] = []

    def __init__(self) -> None:
        self.waiting: list[Record] = []
        self.kept: list[Record] = []
        self.error: Exception | None = None
        self.is_closed = False

    @classmethod
    def open(cls, context: SinkContext) -> Memory | None:
        sink = cls()
        cls.made.append(sink)
        return sink

    def write(self, record: Record) -> None:
        if isinstance(self.error, ZeroDivisionError):
            raise self.error
        self.waiting.append(record)

    def flush(self) -> None:
        if isinstance(self.error, OSError):
            raise self.error
        self.kept, self.waiting = self.kept + self.waiting, []

    def close(self) -> None:
        self.is_closed = True


class Plain(Memory):
    name: ClassVar[str] = "plain"
    rebuilds: ClassVar[bool] = False
    made: ClassVar[list[Memory]] = []


class Unwanted(Plain):
    made: ClassVar[list[Memory]] = []

    @classmethod
    def open(cls, context: SinkContext) -> Memory | None:
        return None


class Missing(Plain):
    name: ClassVar[str] = "missing"
    made: ClassVar[list[Memory]] = []

    @classmethod
    def open(cls, context: SinkContext) -> Memory | None:
        raise ImportError("No module named 'curves'")


def build(tmp_path: Path, *kinds):
    reported: list[tuple[str, str]] = []
    for kind in kinds:
        kind.made.clear()
    fan = FanOut(
        kinds, make_context(make_header(), tmp_path, print), lambda name, text: reported.append((name, text))
    )
    return fan, [kind.made[0] for kind in kinds if kind.made], reported


def test_a_failing_sink_keeps_its_records_and_the_others_go_on(tmp_path: Path) -> None:
    fan, (memory, plain), reported = build(tmp_path, Memory, Plain)
    assert fan.flush()
    memory.error = OSError(28, "No space left on device")
    for iteration in (1, 2):
        fan.write([make_step(iteration)])
        assert not fan.flush()
    assert ([r.iteration for r in plain.kept], memory.kept) == ([1, 2], [])
    memory.error = None
    assert fan.flush()
    assert [r.iteration for r in memory.kept] == [1, 2]
    assert reported == [
        ("failure", "memory: OSError: [Errno 28] No space left on device; nothing to remember"),
        ("note", "memory works again"),
    ]


def test_another_trouble_of_the_same_sink_is_reported_too(tmp_path: Path) -> None:
    fan, (memory,), reported = build(tmp_path, Memory)
    for error in (OSError(28, "full"), OSError(5, "broken"), OSError(28, "full")):
        memory.error = error
        fan.flush()
    assert [text for _, text in reported] == [
        "memory: OSError: [Errno 28] full; nothing to remember",
        "memory: OSError: [Errno 5] broken; nothing to remember",
    ]


def test_a_sink_that_has_never_worked_in_many_tries_is_not_waited_for(tmp_path: Path) -> None:
    fan, (memory,), reported = build(tmp_path, Memory)
    memory.error = OSError(40, "Too many levels of symbolic links")
    assert [fan.flush() for _ in range(42)] == [False] * 40 + [True] * 2
    memory.error = None
    assert fan.flush()
    assert [name for name, _ in reported] == ["failure", "note"]
    memory.error = OSError(40, "Too many levels of symbolic links")
    assert [fan.flush() for _ in range(42)] == [False] * 42


def test_what_comes_and_goes_is_reported_once_and_again_only_where_it_stays(tmp_path: Path) -> None:
    fan, (memory,), reported = build(tmp_path, Memory)
    for error in (OSError(28, "full"), None, OSError(28, "full"), None, OSError(28, "full")):
        memory.error = error
        fan.flush()
    assert reported == [
        ("failure", "memory: OSError: [Errno 28] full; nothing to remember"),
        ("note", "memory works again"),
    ]
    assert fan.report_unfinished()
    assert not fan.report_unfinished()
    assert reported[2:] == reported[:1]


def test_one_that_cannot_be_closed_leaves_the_others_closed_and_is_reported(tmp_path: Path) -> None:
    class Stuck(Plain):
        name: ClassVar[str] = "stuck"
        made: ClassVar[list[Memory]] = []

        def close(self) -> None:
            raise OSError(28, "full")

    fan, (_, memory), reported = build(tmp_path, Stuck, Memory)
    fan.close()
    assert (memory.is_closed, reported) == (
        True,
        [("failure", "stuck: OSError: [Errno 28] full; nothing to remember")],
    )


def test_a_bug_in_one_sink_costs_only_its_own_records(tmp_path: Path) -> None:
    fan, (memory, plain), reported = build(tmp_path, Memory, Plain)
    memory.error = ZeroDivisionError("division by zero")
    fan.write([make_step(1), make_interval(10)])
    assert fan.flush()
    assert (plain.kept, memory.kept) == ([make_step(1), make_interval(10)], [])
    assert reported == [("failure", "memory: ZeroDivisionError: division by zero; nothing to remember")]


def test_sinks_not_wanted_or_not_installed_are_left_out(tmp_path: Path) -> None:
    fan, (plain,), reported = build(tmp_path, Unwanted, Missing, Plain)
    fan.write([make_step(1)])
    assert fan.flush()
    assert plain.kept == [make_step(1)]
    assert reported == [("failure", "missing: ImportError: No module named 'curves'; nothing to remember")]


def test_only_sinks_that_ask_for_it_see_the_past_again(tmp_path: Path) -> None:
    fan, (memory, plain), _ = build(tmp_path, Memory, Plain)
    fan.rebuild(make_step(1))
    fan.flush()
    fan.close()
    assert (memory.kept, plain.kept, memory.is_closed, plain.is_closed) == ([make_step(1)], [], True, True)
