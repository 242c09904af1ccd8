"""What a user sees of a real run with two ranks: the log, the same lines on the console, the curves, the
summary in pandas.
"""

import json
import re
import subprocess
import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.processes import flagscale as fs
from tests.processes.shared_runs import with_monitor

pytestmark = pytest.mark.host

ROW = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  \d+ .*")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with every option away from its default; its directory, and what it printed."""
    run = with_monitor(tmp_path_factory, "TP2")
    return run.directory, run.finished.output


def test_the_console_shows_the_lines_of_the_log(finished):
    cwd, output = finished
    (log,) = (cwd / "perf").glob("perf_metrics_*.log")
    rows = [line for line in log.read_text().splitlines() if ROW.fullmatch(line)]
    assert [line.split()[2] for line in rows] == ["4", "8", "10"]
    assert [row for row in rows if row in output] == rows
    heading = next(line for line in log.read_text().splitlines() if line.startswith("Timestamp"))
    assert heading in output
    assert (cwd / "perf" / "perf_realtime.log").read_text().count(rows[0]) == 1
    for column in ("MFU(%)", "Data%", "Fwd%", "Bwd%", "Optim%"):
        assert column in heading


def test_the_curves_come_from_rank_0_beside_the_hosts_own(finished):
    cwd, _ = finished
    assert [step for step, _ in fs.host_losses(cwd / "tb")] == list(range(1, 11))
    events = EventAccumulator(str(cwd / "tb" / "flagscale_perf"))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert tags >= {
        "performance/tflops_per_gpu",
        "performance/tflops_total",
        "performance/samples_per_second",
        "performance/tokens_per_second",
        "performance/mfu",
        "performance/hfu",
        "time/iteration_ms",
    }
    assert not tags & {"memory/current_gb", "memory/peak_gb", "time/device_ms"}, (
        "the CPU has no device to ask"
    )
    per_gpu, total = (
        {e.step: e.value for e in events.Scalars(tag)}
        for tag in ("performance/tflops_per_gpu", "performance/tflops_total")
    )
    assert list(per_gpu) == [4, 8, 10]
    for step, value in per_gpu.items():
        assert total[step] == pytest.approx(2 * value, rel=1e-6)


def test_the_summary_follows_from_the_records(finished):
    cwd, _ = finished
    steps = [step for step in fs.records(cwd / "perf") if not step["warmup"]]
    time_s = sum(step["iteration_ns"] for step in steps) / 1e9
    statistics = fs.summary(cwd / "perf")["final_statistics"]
    tflops = sum(step["model_flops"] for step in steps) / time_s / 2 / 1e12
    assert statistics["avg_tflops_per_gpu"] == pytest.approx(tflops, rel=1e-9)
    assert statistics["avg_mfu"] == pytest.approx(tflops / 0.5, rel=1e-9)
    hardware_flops = sum(step["hardware_flops"] for step in steps)
    assert hardware_flops > sum(step["model_flops"] for step in steps)
    assert statistics["avg_hfu"] == pytest.approx(hardware_flops / time_s / 2 / 0.5e12, rel=1e-9)
    assert statistics["suspect_intervals"] == 0
    assert statistics["avg_throughput_tokens"] == pytest.approx(
        sum(step["tokens"] for step in steps) / time_s, rel=1e-9
    )
    assert statistics["peak_memory_gb"] is None


def test_every_interval_has_the_shares_its_sums_make(finished):
    cwd, _ = finished
    intervals = fs.records(cwd / "perf", "interval")
    assert len(intervals) == 3
    for interval in intervals:
        capacity = interval["iteration_ns"] / 1e9 * 2 * 0.5e12
        assert interval["mfu"] == pytest.approx(interval["model_flops"] / capacity, rel=1e-9)
        assert interval["hfu"] == pytest.approx(interval["hardware_flops"] / capacity, rel=1e-9)


def test_the_peak_and_its_source_stand_in_the_header_and_in_the_log(finished):
    cwd, _ = finished
    facts = fs.records(cwd / "perf", "header")[0]["facts"]
    assert (facts["peak_flop_per_s"], facts["peak_source"], facts["flops_convention"]) == (
        5e11,
        "--perf-peak-tflops",
        "causal_half",
    )
    (log,) = (cwd / "perf").glob("perf_metrics_*.log")
    assert (
        "# FLOPs causal_half, fp32; peak of a device 0.5 TFLOP/s (--perf-peak-tflops)"
        in log.read_text().splitlines()
    )


def test_a_peak_that_any_machine_passes_makes_every_interval_suspect(tmp_path_factory):
    run = with_monitor(tmp_path_factory, "1 rank")
    perf = run.directory / "perf"
    statistics = fs.summary(perf)["final_statistics"]
    assert (statistics["avg_mfu"], statistics["avg_hfu"], statistics["suspect_intervals"]) == (None, None, 3)
    assert statistics["avg_tflops_per_gpu"] > 0.00001
    (event,) = [event for event in fs.records(perf, "event") if event["name"] == "suspect"]
    assert event["text"].startswith("iterations 1 to 4: MFU ")
    assert "of a peak of 1e-05 TFLOP/s (--perf-peak-tflops)" in event["text"]
    assert f"flagscale_perf: {event['text']}" in run.finished.output
    (log,) = perf.glob("perf_metrics_*.log")
    rows = [line for line in log.read_text().splitlines() if ROW.fullmatch(line)]
    assert [line.count("!") for line in rows] == [2, 2, 2]


ANALYSIS = """
import json
import pandas as pd
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import sys

with open(sys.argv[1]) as f:
    data = json.load(f)
df = pd.DataFrame(data['iteration_logs'])
plt.figure(figsize=(10, 6))
plt.plot(df['iteration'], df['TFLOPS_per_GPU'])
plt.xlabel('Iteration')
plt.ylabel('TFLOPS per GPU')
plt.title('Training Performance')
plt.savefig(sys.argv[2])
mean, peak = df['tokens_per_sec'].mean(), df['TFLOPS_per_GPU'].max()
print(json.dumps({"iterations": list(df['iteration']), "mean": mean, "peak": peak}))
"""


def test_the_users_pandas_script_reads_the_summary(finished, tmp_path):
    cwd, _ = finished
    (path,) = (cwd / "perf").glob("perf_summary_*.json")
    picture = tmp_path / "tflops.png"
    done = subprocess.run(
        [sys.executable, "-c", ANALYSIS, path, picture], capture_output=True, text=True, timeout=fs.DEADLINE_S
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    rows = json.loads(path.read_text())["iteration_logs"]
    assert seen["iterations"] == [4, 8, 10]
    assert seen["mean"] == pytest.approx(sum(row["tokens_per_sec"] for row in rows) / 3)
    assert seen["peak"] == max(row["TFLOPS_per_GPU"] for row in rows)
    assert picture.stat().st_size > 0


WITH_ASCII = """
import os, runpy, sys
os.environ["PYTHONIOENCODING"] = "ascii"  # of what this process starts; its own stdout:
sys.stdout.reconfigure(encoding="ascii")
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_log_directory_that_stdout_cannot_encode_harms_nothing(tmp_path):
    """Megatron prints every argument on rank 0; a C locale without Python's coercion to UTF-8 has such an
    stdout.
    """
    (tmp_path / "ascii.py").write_text(WITH_ASCII)
    words = ["ascii.py", fs.train_gpt(), *fs.SMALL, "--train-iters", "3"]
    command = fs.workers(1, *fs.launched(*words, "--enable-perf-monitor", "--perf-log-dir", "日志"))
    run = fs.run(command, tmp_path)
    assert run.returncode == 0, run.output[-3000:]
    assert re.search(r"perf_log_dir \.+ \\u65e5\\u5fd7\n", run.output)
    assert fs.summary(tmp_path / "日志")["session_info"]["end_reason"] == "completed"
