"""The example, traced by its environment alone (it imports verl, of which this package is a plug-in): each
call and operation that its code makes is recorded once, and every format has all of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.timeline import Item
from flagscale_perf.cli.instruments import load_records
from flagscale_perf.trace.analysis.instrument import read_report
from tests.conftest import RunPython
from tests.trace import warm_workers
from tests.traces import check, of_json
from tests.unit.report.test_otlp import decoded, lines_of, requests_of, same, spans_of

REPO = Path(__file__).parents[2]
STEPS, ROWS = 4, 8  # two prompts with four responses each
PAUSE_S = 0.6
# Of a step: prompts and advantages are the driver's, two workers generate; the trainer puts nothing.
CALLS = {"generate_sequences": 2, "compute_score": 1, "compute_ref_log_prob": 1, "update_actor": 1}
PUTS = {"train.py": 2, "RolloutWorker": 2, "RewardWorker": 1, "ReferenceWorker": 1}
GETS = {"train.py": 1, "RolloutWorker": 2, "RewardWorker": 1, "ReferenceWorker": 1, "ActorWorker": 1}
MADE = STEPS * (sum(CALLS.values()) + sum(PUTS.values()) + sum(GETS.values()))


def train(directory: Path, slow: str) -> tuple[Session, str]:
    """The run file of the example, and what it printed."""
    environment = os.environ | {
        "TQ_TRACE_ENABLED": "1",
        "TQ_TRACE_DETAIL_ENABLED": "1",
        "VERL_LOGGING_LEVEL": "INFO",
        "TQ_TRACE_DIR": str(directory / "trace"),
    }
    environment |= warm_workers.environment(directory)
    example = REPO / "examples/transfer_queue/train.py"
    options = ("--steps", str(STEPS), "--prompts", "2", "--slow-stage", slow)
    words = warm_workers.python(example, *options, "--stage-ms", f"{1000 * PAUSE_S:g}")
    done = subprocess.run(words, cwd=directory, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("reward ") == STEPS
    load_records()
    return open_session(directory / "trace"), done.stdout


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[Session, str]]:
    """By the slow stage."""
    return {slow: train(tmp_path_factory.mktemp(slow), slow) for slow in ("rollout", "train")}


@pytest.fixture(scope="module")
def made(runs: Mapping[str, tuple[Session, str]]) -> Session:
    return runs["rollout"][0]


@pytest.fixture(scope="module")
def spans(made: Session) -> list[Item]:
    return spans_of(made)


@pytest.mark.parametrize(("slow", "waits"), [("rollout", "trainer"), ("train", "generator")])
def test_the_head_says_which_end_is_slow_as_the_examples_own_clock_does(
    runs: Mapping[str, tuple[Session, str]], slow: str, waits: str
) -> None:
    session, printed = runs[slow]
    steps_s = [float(took) for took in re.findall(r"step \d+: .*, ([\d.]+) s", printed)]
    sides = read_report(session).sides
    assert sides is not None and len(steps_s) == STEPS
    assert (sides.generator.name, sides.generator.processes) == ("generate_sequences", 2)
    assert (sides.trainer.name, sides.trainer.processes) == ("update_actor", 1)
    assert (sides.waits_more, sides.mean_age, sides.oldest) == (waits, 0, 0)
    # From the end of its first call, which is in the first step, to that of its last, in the last one.
    rows = ROWS * (STEPS - 1)
    for side, stage in ((sides.generator, "rollout"), (sides.trainer, "train")):
        assert side.samples_per_s is not None
        assert rows / sum(steps_s) <= side.samples_per_s * 1.02
        assert side.samples_per_s <= 1.02 * rows / (sum(steps_s[1:-1]) + PAUSE_S * (slow == stage))
    end = sides.generator if slow == "rollout" else sides.trainer
    assert end.waits_share is not None
    assert 1 - end.waits_share >= 0.95 * (STEPS - 1) * PAUSE_S / sum(steps_s)  # planted in each of its calls


def title_of(span: Item) -> str:
    return span.track.process.title


def test_each_call_and_operation_is_there_once(spans: list[Item]) -> None:
    calls = Counter(span.name for span in spans if span.kind == "internal")
    puts, gets = (
        Counter(title_of(span) for span in spans if span.kind == kind) for kind in ("producer", "consumer")
    )
    assert calls == {name: STEPS * count for name, count in CALLS.items()}
    assert puts == {name: STEPS * count for name, count in PUTS.items()}
    assert gets == {name: STEPS * count for name, count in GETS.items()}
    assert not any(span.error for span in spans)


def test_a_get_is_linked_to_those_who_made_its_batch(spans: list[Item]) -> None:
    titles = {span.id: title_of(span) for span in spans}
    linked = {
        title_of(span): {titles[link] for link in span.links} for span in spans if span.kind == "consumer"
    }
    # by the fields that the example's stages get: rewards become advantages in train.py
    assert linked["RewardWorker"] == {"RolloutWorker"}
    assert linked["ActorWorker"] == {"train.py", "RolloutWorker", "ReferenceWorker"}
    assert all(span.links for span in spans if span.kind == "consumer")


def test_the_demo_shows_and_exports_it(made: Session) -> None:
    """scripts/demo_trace, from behind its training on."""
    script = (REPO / "scripts/demo_trace").read_text()
    shown = script[script.index('"$python" scripts/analyze_tq_logs.py') :]
    directory = made.path.parents[1]
    variables = {"python": sys.executable, "TQ_TRACE_DIR": str(directory / "trace"), "PYTHONPATH": str(REPO)}
    words = ["bash", "-euc", shown, "demo_trace", "", str(directory)]
    done = subprocess.run(
        words, cwd=REPO, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert {"perfetto.json", "spans_otlp.json", "trace.html"} <= {path.name for path in directory.iterdir()}


def test_perfetto_has_all_of_them(made: Session, spans: list[Item], run_python: RunPython) -> None:
    assert len(spans) == MADE
    done = run_python("-m", "flagscale_perf", "trace-export", made.files[0].path, "-o", "-")
    trace = of_json(done.stdout)
    check(trace)
    assert sum("number" in one.facts for one in trace.slices) == MADE
    assert trace.arrows  # from puts to gets
    for put, get in trace.arrows:
        assert (put.name, get.name) == ("put", "get") and put.begin_ns < get.end_ns


def test_a_receiver_decodes_what_was_recorded(made: Session, spans: list[Item]) -> None:
    found: dict[bytes, tuple[dict[str, object], Span]] = decoded(requests_of(lines_of(made)))
    wall_ns = made.header.start_wall_ns - made.header.start_mono_ns
    assert len(found) == MADE
    for span in spans:
        assert span.id
        same(found[span.id.span.to_bytes(8, "big")][1], span, wall_ns)
