"""What every registered sink does alike."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.sinks.base import Sink, SinkContext
from flagscale_perf.sinks.otlp import OtlpSink
from flagscale_perf.sinks.prometheus import PrometheusTextfileSink
from flagscale_perf.sinks.registry import SINKS
from flagscale_perf.spine.jsonl import dump
from tests.conftest import RunPython
from tests.fakes import free_port, make_context, make_facts, make_header, make_interval, sample_run

Factory = type[Sink]
ASKED_FOR = {"perf_console_output": True, "perf_csv": True, "perf_wandb": True}
WITHOUT_FILES = {"ConsoleSink", "PrometheusPortSink", "WandbSink"}


# What needs a package that this environment may lack has its own tests elsewhere.
HERE = [kind for kind in SINKS if kind is not OtlpSink]


@pytest.fixture(params=HERE, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> Factory:
    return request.param


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def context(tmp_path: Path, lines: list[str]) -> SinkContext:
    header = make_header(
        facts=make_facts(tensorboard_dir=str(tmp_path / "logs" / "tb")),
        **ASKED_FOR,
        perf_prometheus_textfile=str(tmp_path / "logs/x.prom"),
    )
    return make_context(
        header,
        tmp_path / "logs",
        lines.append,
        may_serve=True,
        emit_figures=lambda figures: lines.append(dump(figures)),
    )


def opened(kind: Factory, context: SinkContext) -> Sink:
    if kind.__name__ == "PrometheusPortSink":  # each its own
        context = replace(
            context, header=replace(context.header, config={"perf_prometheus_port": str(free_port())})
        )
    sink = kind.open(context)
    assert sink is not None
    return sink


def content_of(context: SinkContext, lines: list[str]) -> dict[str, bytes]:
    """Everything the sink has brought anywhere, except its files' clock-bound names."""
    found = {
        path.name.split(".vm")[0]: path.read_bytes()
        for path in sorted(context.directory.rglob("*"))
        if path.is_file()
    }
    return found | {"console": "\n".join(lines).encode()}


@pytest.fixture
def no_room() -> Iterator[None]:
    """Until the fixture's value is called, no file may grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_it_has_a_name_and_says_what_its_failure_costs(kind: Factory) -> None:
    assert kind.name and kind.cost
    assert len({each.name for each in SINKS}) == len(SINKS)


def test_opening_does_no_io(kind: Factory, context: SinkContext) -> None:
    opened(kind, context).close()
    assert not context.directory.exists()


def test_it_takes_every_kind_of_record_and_writes_nothing_outside_its_directory(
    kind: Factory, context: SinkContext, tmp_path: Path
) -> None:
    sink = opened(kind, context)
    for record in sample_run():
        sink.write(record)
    sink.flush()
    sink.close()
    assert {path.name for path in tmp_path.iterdir()} <= {"logs"}


def test_it_can_be_flushed_without_records_and_closed_twice(kind: Factory, context: SinkContext) -> None:
    sink = opened(kind, context)
    sink.flush()
    sink.flush()
    sink.close()
    sink.close()


def test_how_often_it_is_flushed_makes_no_difference(
    kind: Factory, context: SinkContext, lines: list[str]
) -> None:
    contents = []
    for often in (False, True):
        sink = opened(kind, context)
        for record in sample_run():
            sink.write(record)
            if often:
                sink.flush()
        sink.flush()
        sink.close()
        contents.append(content_of(context, lines))
        shutil.rmtree(context.directory, ignore_errors=True)
        lines.clear()
    assert contents[0] == contents[1]


def test_no_room_for_a_while_loses_nothing(
    kind: Factory, context: SinkContext, lines: list[str], no_room
) -> None:
    sink = opened(kind, context)
    for record in sample_run():
        sink.write(record)
        if kind.__name__ not in WITHOUT_FILES:
            with pytest.raises(OSError, match="File too large"):
                sink.flush()
    no_room()
    sink.flush()
    sink.close()
    after = content_of(context, lines)
    shutil.rmtree(context.directory, ignore_errors=True)
    lines.clear()
    sink = opened(kind, context)
    for record in sample_run():
        sink.write(record)
    sink.flush()
    sink.close()
    assert after == content_of(context, lines)


def test_a_removed_directory_is_made_again(kind: Factory, context: SinkContext) -> None:
    sink = opened(kind, context)
    sink.flush()
    shutil.rmtree(context.directory, ignore_errors=True)
    for record in sample_run()[1:]:
        sink.write(record)
    sink.flush()
    sink.close()
    assert kind.__name__ in WITHOUT_FILES or any(context.directory.rglob("*"))


def test_two_sessions_in_one_directory_leave_each_other_alone(kind: Factory, context: SinkContext) -> None:
    sessions = [
        opened(kind, replace(context, header=replace(context.header, session_id=f"20240129_103000{tail}")))
        for tail in ("", "_2")
    ]
    refused = "^session 20240129_103000_2 writes .*x.prom, too$" if kind is PrometheusTextfileSink else None
    for number in range(1, 4):
        for place, sink in enumerate(sessions):
            is_taken = refused is not None and place == 0 and number == 3  # seen at the flush before
            with pytest.raises(OSError, match=refused) if is_taken else nullcontext():
                sink.write(make_interval(number * 10))
            sink.flush()
    for sink in sessions:
        sink.close()
    shared = {"perf_realtime.log", "x.prom"}
    files = [path for path in context.directory.rglob("*") if path.is_file() and path.name not in shared]
    assert len(files) in (0, 2)
    texts = [path.read_text() for path in context.directory.glob("*.log")]
    assert all(text.count("  30  ") in (1, 2) for text in texts)


SHOW_MODULES = """
import sys
from pathlib import Path
from flagscale_perf.sinks.prometheus import PrometheusTextfileSink
from flagscale_perf.sinks.registry import SINKS
from flagscale_perf.spine.jsonl import dump
from tests.fakes import make_context, make_header, sample_run
header = make_header(perf_console_output=True, perf_prometheus_textfile=sys.argv[1] + "/x.prom")
context = make_context(header, Path(sys.argv[1]), lambda line: None)
for sink in filter(None, [kind.open(context) for kind in SINKS]):
    for record in sample_run():
        sink.write(record)
    sink.flush()
    sink.close()
print([name for name in ("torch", "tensorflow", "megatron") if name in sys.modules])
"""


def test_none_of_them_needs_torch(tmp_path: Path, run_python: RunPython) -> None:
    done = run_python("-c", SHOW_MODULES, tmp_path / "logs")
    assert (done.stdout, done.stderr) == ("[]\n", "")
