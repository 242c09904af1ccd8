"""A long run through the whole pipeline: training thread, ring, writer process, every file.

    python benchmarks/soak.py [--steps 1000000]

A synthetic loop with 28 marks a step calls the same hooks as a real one. Its steps take microseconds, so now
and then, outside of what is timed, it waits until the writer has fewer than 20 000 records in the ring: the
writer sets the pace and nothing may be dropped. After each tenth of the steps the writer is let finish what
is there; then memory, the training thread's time and the writer's CPU time are taken. At the end the files
are weighed, the run is rebuilt from its run file, and the two summaries are compared. Exits 1 where a bar is
missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402

from benchmarks.bench_hot_path import Arm, loop  # noqa: E402
from benchmarks.bench_overhead import WRITER, catch_up, feed, memory_mb  # noqa: E402
from benchmarks.provenance import head  # noqa: E402
from flagscale_perf.analysis.job import open_session  # noqa: E402
from flagscale_perf.training.analysis.fold import read_summary  # noqa: E402
from tests.fakes import free_port  # noqa: E402

PARTS = 10
STEPS_PER_HOUR = 5 * 3600  # the pace at which the growth of files is judged
ROTATED_BYTES, REALTIME_BYTES = 32 << 20, 8 << 20
SLACK_BYTES = 1 << 20  # a file is looked at after it was flushed
MEMORY_BAR_MB, GROWTH_BAR, DISK_BAR_MB = 20.0, 1.1, 50.0


class Part(NamedTuple):
    """A tenth of the steps: microseconds a step of the training thread and of the writer's CPU, MB resident
    of both.
    """

    step_us: float
    writer_us: float
    trainer_mb: float
    writer_mb: float


class Bar(NamedTuple):
    """What must hold: the figure is at most the limit."""

    what: str
    figure: float
    limit: float


def writer_cpu_s() -> float:
    """Of the writer process of this one."""
    (writer,) = (child for child in psutil.Process().children() if WRITER in child.cmdline())
    times = writer.cpu_times()
    return float(times.user + times.system)


def soak(arm: Arm, steps: int) -> list[Part]:
    """Feeds the steps in tenths."""
    parts = []
    for _ in range(PARTS):
        before_s = writer_cpu_s()
        times = feed(arm, steps // PARTS)
        memory = memory_mb(arm)  # once the writer has caught up
        cpu_us = (writer_cpu_s() - before_s) * 1e6 / len(times)
        parts.append(Part(statistics.median(times) / 1e3, cpu_us, memory.trainer, memory.writer))
    return parts


def files_of(directory: Path) -> dict[str, int]:
    """Bytes by name."""
    return {
        str(path.relative_to(directory)): path.stat().st_size
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def rebuilt(directory: Path) -> tuple[bool, int]:
    """Whether the run file gives the summary that the writer wrote, and how many train steps that says."""
    (records,) = directory.glob("perf_records_*.jsonl")
    (written,) = directory.glob("perf_summary_*.json")
    summary = json.loads(read_summary(open_session(records)).text())
    return summary == json.loads(written.read_text()), summary["totals"]["train_steps"]


def bars_of(parts: list[Part], files: dict[str, int], steps: int, dropped: int) -> list[Bar]:
    """Memory and cost from the second tenth on: the first one fills the reservoirs and the summary's rows."""
    second, last = parts[1], parts[-1]
    per_hour = sum(files.values()) / steps * STEPS_PER_HOUR / 1e6
    logs = max(size for name, size in files.items() if name.startswith("perf_metrics"))
    return [
        Bar("trainer's memory grew, MB", last.trainer_mb - second.trainer_mb, MEMORY_BAR_MB),
        Bar("writer's memory grew, MB", last.writer_mb - second.writer_mb, MEMORY_BAR_MB),
        Bar("training thread, last tenth / second", last.step_us / second.step_us, GROWTH_BAR),
        Bar("writer's CPU, last tenth / second", last.writer_us / second.writer_us, GROWTH_BAR),
        Bar("all files at 5 steps/s, MB/h", per_hour, DISK_BAR_MB),
        Bar("largest part of the text log, MB", logs / 1e6, (ROTATED_BYTES + SLACK_BYTES) / 1e6),
        Bar("realtime log, MB", files["perf_realtime.log"] / 1e6, (REALTIME_BYTES + SLACK_BYTES) / 1e6),
        Bar("records dropped", dropped, 0),
    ]


def main() -> int:
    """Prints the tenths, the files and the bars; 1 if one is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1_000_000)
    steps = parser.parse_args().steps // PARTS * PARTS
    print(head("spine", "training", "hooks.py", "perf_metrics.py", "perf_logger.py", "writer", "sinks"))
    start_s = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        textfile = str(directory / "metrics.prom")
        options = {
            "perf_csv": True,
            "perf_prometheus_port": str(free_port()),
            "perf_prometheus_textfile": textfile,
        }
        arm = loop(directory, monitor="phases", timers=True, **options)
        feed(arm, 100)
        catch_up(arm, 0)
        parts = soak(arm, steps)
        dropped = arm.hooks._logger._ring.dropped
        arm.close()
        files = files_of(directory)
        is_same, train_steps = rebuilt(directory)
    steps += 100
    took_s = time.monotonic() - start_s
    print(
        f"soak     {steps} steps with phases, 28 marks each, in {took_s:.0f} s; text, realtime, "
        "summary, TensorBoard, CSV, Prometheus"
    )
    print(
        f"{'tenth':>5} {'training thread us':>19} {'writer CPU us':>14} {'trainer MB':>11} {'writer MB':>10}"
    )
    for number, part in enumerate(parts, 1):
        print(
            f"{number:5} {part.step_us:19.1f} {part.writer_us:14.1f} {part.trainer_mb:11.1f} "
            f"{part.writer_mb:10.1f}"
        )
    print(f"{'file':60} {'MB':>8} {'bytes a step':>13} {'MB/h at 5/s':>12}")
    for name, size in files.items():
        print(f"{name:60} {size / 1e6:8.2f} {size / steps:13.1f} {size / steps * STEPS_PER_HOUR / 1e6:12.2f}")
    bars = bars_of(parts, files, steps, dropped)
    bars += [
        Bar("steps missing in the rebuilt summary", steps - train_steps, 0),
        Bar("summaries that differ", float(not is_same), 0),
    ]
    for bar in bars:
        print(
            f"{'held' if bar.figure <= bar.limit else 'MISSED'}   {bar.what:40} {bar.figure:10.2f}  "
            f"bar {bar.limit:g}"
        )
    return 1 if any(bar.figure > bar.limit for bar in bars) else 0


if __name__ == "__main__":
    sys.exit(main())
