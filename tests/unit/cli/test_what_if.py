"""`flagscale-perf what-if`: a prediction with its interval, its entry, its outcome, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from flagscale_perf.cli import main
from tests.captured_runs import evenly, make_late, write_run
from tests.every_instrument import beside
from tests.profile_runs import make_profile, make_profile_header
from tests.traces import check, of_protobuf

RECORDED = Path(__file__).parents[3] / "benchmarks" / "whatif" / "runs" / "pp2_s2" / "perf.jsonl.gz"


@pytest.fixture()
def run(tmp_path: Path) -> str:
    return str(write_run(tmp_path / "jobs" / "old", make_late(evenly(), 1, 15)).parent)


def test_a_prediction_has_its_interval_and_is_entered(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", run, "rank=1", "forward*=peers"]) == 0
    shown, said = capsys.readouterr()
    assert shown.splitlines() == [
        "rank=1 forward=peers  (class A)",
        "measured        355.0 ms a step; 8 captured steps, 8-15",
        "predicted       310.0 ms, 95 of 100 times within [297.6, 322.4]",
        "gain             45.0 ms +- 9.0 (+12.7 %)",
        "throughput      +14.5 %",
        "interval   replay 0.0, sampling 0.0, drift 8.6, record 9.0 ms",
        "ceiling         305.0 ms, if no message took time, and no rank was late",
        "tokens/s      6,606.5",
        "MFU %             3.2",
        "checked    none of this class yet",
        "note       between two runs 1.0 %: assumed for devices",
    ]
    assert said == f"entered into {run}/predictions.jsonl; --check NEWRUN will say whether it held\n"


def test_json_has_every_part(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", run, "m=8", "--json", "--noise", "2%"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {*found["parts"]} == {"replay", "sampling", "drift", "record"}
    assert (found["text"], found["kind"], found["samples"], found["checked"]) == ("m=8", "B", 2, [0, 0])
    assert found["low_ns"] < found["predicted_ns"] < found["high_ns"]
    assert found["notes"] == ["between two runs 2.0 %: --noise"]
    assert found["rates"]["tokens/s"] > 0


def test_a_trace_draws_every_rank_recorded_and_predicted(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    assert main(["what-if", run, "rank=1", "forward=peers", "--trace", str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: open it at https://ui.perfetto.dev")
    events = json.loads(out.read_bytes())["traceEvents"]
    names = {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}
    what = ("recorded", "predicted: rank=1 forward=peers")
    assert [*names] == [f"stage {rank // 2}, rank {rank}, {each}" for each in what for rank in range(4)]
    steps = [event for event in events if event["name"].startswith("step ")]
    took_ms = {event["pid"]: event["dur"] / 1000 for event in steps}
    assert [round(took_ms[pid]) for pid in names.values()] == [355] * 4 + [310] * 4
    assert main(["what-if", run, "m=8", "--trace", str(tmp_path / "none" / "out.json")]) == 2


def test_perfetto_reads_the_picture_of_a_recorded_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two stages of 8 micro-batches on real FlagScale: all that a rank does, in one step and in the other."""
    pytest.importorskip("perfetto.protos", reason="needs Perfetto's package")
    recorded, out = tmp_path / "perf_records_20261129_001004.jsonl", tmp_path / "out.pftrace"
    recorded.write_bytes(gzip.decompress(RECORDED.read_bytes()))
    assert main(["what-if", str(recorded), "m=16", "--trace", str(out)]) == 0
    told = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[2:])
    found = of_protobuf(out.read_bytes())
    check(found)
    for what, batches, word in (("recorded", 8, "measured"), ("predicted: m=16", 16, "predicted")):
        for rank in range(2):
            own = [one for one in found.slices if one.process == f"stage {rank}, rank {rank}, {what}"]
            (step,) = (one for one in own if one.name.startswith("step "))
            parts = [one for one in own if one is not step]
            assert sum(one.end_ns - one.begin_ns for one in parts) == step.end_ns - step.begin_ns
            assert sum(one.name == "backward" for one in parts) == batches
            took_ms = (step.end_ns - step.begin_ns) / 1e6
            assert took_ms == pytest.approx(float(told[word].split()[0]), rel=0.02)


def test_a_new_run_says_whether_it_held_and_widens_what_did_not(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = str(write_run(tmp_path / "jobs" / "new", evenly()).parent)
    slow = str(write_run(tmp_path / "jobs" / "slow", make_late(evenly(), 0, 40)).parent)
    late = ["what-if", run, "--noise", "1%", "rank=1", "forward=peers"]
    assert main(late) == 0
    capsys.readouterr()
    assert main(["what-if", run, "--check", new]) == 0
    hit = "hit: rank=1 forward=peers: 310.0 ms; predicted 310.0 ms [297.6, 322.4]\n"
    assert capsys.readouterr().out == hit
    assert main(["what-if", run, "--check", new]) == 2
    assert "those not yet checked: none" in capsys.readouterr().err
    assert main(late) == 0
    assert "checked    1 of 1 of this class held" in capsys.readouterr().out
    assert main(["what-if", run, "rank=1 forward=peers", "--check", slow]) == 0
    assert capsys.readouterr().out.startswith("MISS: ")
    assert main([*late, "--json"]) == 0
    wider = json.loads(capsys.readouterr().out)
    assert wider["checked"] == [1, 2]
    assert wider["high_ns"] == pytest.approx(430e6), "as far off as the last one was"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["forwrd=peers"], "did you mean forward?"),
        (["pp=3"], "8 layers do not divide among 3 stages"),
        (["v=2", "m=3"], "an interleaved schedule of 2 stages takes a multiple of 2 micro-batches"),
        (["rank=99", "forward*=.5"], "'rank=99' chooses no rank: this run has ranks 0 to 3"),
        (["recompute=full"], "recompute=full: no answer without a profile of the operators"),
        (["tp=4"], "tp=4: no answer without how operators behave with tp=4"),
        (["--check", "nowhere"], "name the prediction that NEWRUN checks; those not yet checked: none"),
    ],
)
def test_what_has_no_answer_is_one_line_and_exit_code_2(
    run: str, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["what-if", run, *words]) == 2
    shown, said = capsys.readouterr()
    assert (shown, said.count("\n")) == ("", 1)
    assert why in said


def test_what_is_no_run_with_the_change_checks_nothing(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["what-if", run, "m=8"]) == 0
    entered = Path(run, "predictions.jsonl").read_bytes()
    steps = make_late(evenly(), 0, 40)
    other = write_run(tmp_path / "jobs" / "other", steps, model={"hidden_size": 77}, global_batch_size=16)
    few = write_run(tmp_path / "jobs" / "few", steps)
    capsys.readouterr()
    for new, why in (
        (run, "is the run itself; give one that was made with m=8"),
        (other, "is no run with m=8: its hidden size is 77, and not 64"),
        (few, "is no run with m=8: its global batch size is 8, and not 16"),
    ):
        assert main(["what-if", run, "--check", str(new)]) == 2
        assert why in capsys.readouterr().err
    assert Path(run, "predictions.jsonl").read_bytes() == entered


def test_what_loses_is_called_a_loss(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", run, "forward+=20ms"]) == 0
    assert "%)  a loss\n" in capsys.readouterr().out


def test_of_a_job_it_is_the_training_or_what_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beside(tmp_path, "training", 10, 80, (7,), pid=7)
    beside(tmp_path / "calls", "rpc", 20, 60, (7,), pid=6)
    beside(tmp_path, "profile", 30, 40, (7,), pid=7)
    assert main(["what-if", str(tmp_path), "m=8"]) == 2
    assert "no answer without captured steps of every rank" in capsys.readouterr().err
    assert main(["what-if", str(tmp_path), "--instrument", "rpc"]) == 0
    assert "a session of the same work; 98 calls" in capsys.readouterr().out


def test_a_session_of_another_instrument_has_nothing_to_predict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_profile().write(tmp_path, make_profile_header("20240129_103001"))
    assert main(["what-if", str(tmp_path), "m=8"]) == 2
    assert "has nothing for this command" in capsys.readouterr().err


def test_a_profile_in_the_same_directory_tells_what_recomputing_takes(
    run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of its forward passes, 102 of 106 ms are in layers."""
    make_profile().write(Path(run), make_profile_header("20240129_103001"))
    assert main(["what-if", run, "--instrument", "training", "recompute=full", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "C"
    again_ms = 35 * 102 / 106  # of the late rank's
    assert 4 * again_ms <= (found["predicted_ns"] - found["measured_ns"]) / 1e6 <= 5 * again_ms
    assert found["parts"]["record"] > 0.1 * found["predicted_ns"]
