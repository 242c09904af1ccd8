"""What is shown when a job has ended: the log's last rows, what was found, and where to go on."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys

from flagscale_perf.launcher.ended import FAILED
from flagscale_perf.launcher.follow import is_heading, is_row_or_remark
from flagscale_perf.launcher.plan import Plan
from flagscale_perf.launcher.tail import last_lines
from flagscale_perf.spine.session import file_names, page_name, session_of

_PROGRAM = "flagscale-perf"
_LOG_LINES = 15
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


def log_rows(perf_log_dir: str, session: str, width: int) -> list[str]:
    """The last rows and remarks of a session's log under their heading, each at most `width` characters."""
    path = os.path.join(perf_log_dir, file_names(session)["metrics"])
    end = last_lines(path, 1000)
    heading = [line for line in end if is_heading(line)][-1:]
    rows = [line for line in end if is_row_or_remark(line)][-_LOG_LINES:]
    return [line[:width] for line in heading + rows]


def summary(plan: Plan, session: str) -> list[str]:
    """What was found in a session, its key figures, where its page is, and how to see more."""
    page = os.path.join(plan.perf.perf_log_dir, page_name(session))
    lines = _report(plan, session, page)
    if os.path.exists(page):
        lines.append(f"page   {plan.paths.shown(page)}")
    run = shlex.quote(plan.paths.shown(plan.perf.perf_log_dir))
    return [*lines, f"next   {_program(plan)} report {run}  # all figures, options and files"]


def _report(plan: Plan, session: str, page: str) -> list[str]:
    """`flagscale-perf report --brief`, which writes the page, too."""
    command = [sys.executable, "-m", "flagscale_perf", "report", plan.perf.perf_log_dir]
    command += ["--session", session, "--brief", "-o", page]
    search = os.pathsep.join([*plan.pythonpath, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_REPORT_TIMEOUT_S, check=False,
            env={**os.environ, "PYTHONPATH": search},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return [f"no summary: `flagscale-perf report` took longer than {_REPORT_TIMEOUT_S} s"]
    lines = done.stdout.rstrip().splitlines()
    if done.returncode != 0:
        complaint = (done.stderr.strip().splitlines() or ["no message"])[-1]
        what = "page" if lines else "summary"
        lines.append(f"no {what}: `flagscale-perf report` ended with {done.returncode}: {complaint}")
    return lines


def _program(plan: Plan) -> str:
    """`flagscale-perf` as it can be typed here: by its name only where that is the one of this Python."""
    here = os.path.join(os.path.dirname(sys.executable), _PROGRAM)
    if not os.path.exists(here):
        return f"{shlex.quote(plan.paths.shown(sys.executable))} -m flagscale_perf"
    found = shutil.which(_PROGRAM)
    is_found = found is not None and os.path.samefile(found, here)
    return _PROGRAM if is_found else shlex.quote(plan.paths.shown(here))
