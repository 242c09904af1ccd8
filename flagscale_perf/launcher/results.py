"""What is shown when a job has ended: the log's last lines, the summary, and the paths of all files."""

from __future__ import annotations

import os
import subprocess
import sys

from flagscale_perf.launcher.ended import FAILED
from flagscale_perf.launcher.plan import Plan
from flagscale_perf.launcher.tail import last_lines
from flagscale_perf.spine.session import age_key, file_names, session_of

_LOG_LINES = 12
_OUTPUT_LINES = 30
_REPORT_TIMEOUT_S = 60


def sessions(perf_log_dir: str) -> set[str]:
    """Ids of the monitor's sessions in the directory, now."""
    try:
        names = os.listdir(perf_log_dir)
    except OSError:
        return set()
    return {session for name in names if (session := session_of(name)) is not None}


def reason(output: str) -> list[str]:
    """The last lines of a failed job's output, up to where torchrun begins to speak of itself; of a job that
    torchrun has restarted, those of the last start.
    """
    lines = last_lines(output, 1000)
    ends = [index + 1 for index, line in enumerate(lines) if FAILED.search(line)]
    begin, end = ([0, *ends] if ends else [0, len(lines)])[-2:]
    return lines[begin:end][-_OUTPUT_LINES:]


def results(plan: Plan, earlier: set[str], with_log: bool) -> list[str]:
    """Lines about the job that has just ended: the log's end if `with_log`, the summary, the files.

    `earlier` are the sessions from before it.
    """
    perf_dir = plan.perf.perf_log_dir
    new = sorted(sessions(perf_dir) - earlier, key=age_key)
    lines: list[str] = []
    if new and with_log:
        log = os.path.join(perf_dir, file_names(new[-1])["metrics"])
        end = last_lines(log, 1000)
        heading = next((line for line in end if line.startswith("Timestamp ")), "")
        lines = ["", f"last lines of {log}:", heading, *end[-_LOG_LINES:]]
    if new:
        lines += ["", *_report(plan)]
    return [*lines, "", "files:", *(f"  {name:<12}{path}" for name, path in _places(plan, new))]


def _report(plan: Plan) -> list[str]:
    """The summary as `flagscale-perf report` prints it."""
    command = [sys.executable, "-m", "flagscale_perf", "report", plan.perf.perf_log_dir]
    search = os.pathsep.join([*plan.pythonpath, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_REPORT_TIMEOUT_S, check=False,
            env={**os.environ, "PYTHONPATH": search},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return [f"no summary: `flagscale-perf report` took longer than {_REPORT_TIMEOUT_S} s"]
    if done.returncode != 0:
        complaint = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return [f"no summary: `flagscale-perf report` ended with {done.returncode}: {complaint}"]
    return done.stdout.rstrip().splitlines()


def _places(plan: Plan, new: list[str]) -> list[tuple[str, str]]:
    perf_dir, tensorboard = plan.perf.perf_log_dir, plan.settings["tensorboard_dir"].value
    named = {"output": plan.paths.output, "script": plan.paths.script}
    if tensorboard is not None:
        named["tensorboard"] = tensorboard
    if plan.perf.enable_perf_monitor:
        named["perf logs"] = perf_dir
    found = [
        (kind, os.path.join(perf_dir, name)) for session in new for kind, name in file_names(session).items()
    ]
    return [(kind, path) for kind, path in [*named.items(), *found] if os.path.exists(path)]
