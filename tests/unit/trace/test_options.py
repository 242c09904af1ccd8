"""What is traced, by the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.spine.errors import PerfError
from flagscale_perf.trace.options import TraceOptions


def test_nothing_is_on_by_itself() -> None:
    options = TraceOptions.of({})
    assert options == TraceOptions(trace=False, detail=False, directory=Path.cwd() / "logs/trace")
    assert not options.is_on


def test_every_variable_has_its_field(tmp_path: Path) -> None:
    variables = {
        "TQ_TRACE_ENABLED": "true",
        "TQ_TRACE_DETAIL_ENABLED": " ON ",
        "TQ_TRACE_DIR": str(tmp_path),
        "TQ_TRACE_JOB": "job",
        "TQ_TRACE_STDOUT": "yes",
        "TQ_TRACE_STAMP": "1",
        "TQ_TRACE_KEYS": "on",
        "TQ_SAMPLE_EVERY": "10",
        "TQ_SAMPLE_RATIO": "0.1",
        "TQ_SAMPLE_SLOW_MS": "2.5",
    }
    assert TraceOptions.of(variables) == TraceOptions(
        trace=True,
        detail=True,
        directory=tmp_path,
        job="job",
        to_stdout=True,
        stamp=True,
        keys=True,
        every=10,
        ratio=0.1,
        slow_ms=2.5,
    )


@pytest.mark.parametrize("name", ["TQ_TRACE_ENABLED", "TQ_TRACE_DETAIL_ENABLED"])
def test_either_alone_is_on(name: str) -> None:
    assert TraceOptions.of({name: "1"}).is_on


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "TQ_TRACE_ENABLED",
            "maybe",
            "TQ_TRACE_ENABLED: 'maybe' is neither true nor false; write true or false",
        ),
        (
            "TQ_SAMPLE_EVERY",
            "0",
            "TQ_SAMPLE_EVERY: '0' is not a whole number from 1 to 1000000000; write for example 10",
        ),
        (
            "TQ_SAMPLE_RATIO",
            "1.5",
            "TQ_SAMPLE_RATIO: '1.5' is not a number above 0 and up to 1; write for example 0.1",
        ),
        (
            "TQ_SAMPLE_SLOW_MS",
            "soon",
            "TQ_SAMPLE_SLOW_MS: 'soon' is not a number above 0 and up to 1e+09; write for example 20",
        ),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(PerfError) as refused:
        TraceOptions.of({name: value})
    assert str(refused.value) == said


def test_another_process_is_given_the_same_options(tmp_path: Path) -> None:
    options = TraceOptions(
        trace=True, directory=tmp_path, job="job", keys=True, every=3, ratio=0.3, slow_ms=2.5
    )
    assert TraceOptions.of(options.variables) == options


def test_a_directory_is_a_text_or_a_path_and_nothing_else() -> None:
    assert TraceOptions(directory="logs/x").directory == Path("logs/x").absolute()  # type: ignore[arg-type]
    with pytest.raises(PerfError, match=r"directory is 3; give a path"):
        TraceOptions(directory=3)  # type: ignore[arg-type]
