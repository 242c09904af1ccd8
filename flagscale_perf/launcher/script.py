"""The bash script that starts a job. Values of the configuration are quoted, whatever they hold."""

from __future__ import annotations

import os
import shlex
import subprocess

from flagscale_perf.launcher.plan import Plan
from flagscale_perf.spine.errors import PerfError


def render(plan: Plan) -> str:
    """The script's text. `experiment.cmds.before_start` is the user's own shell code and goes in as it is."""
    lines = [
        "#!/usr/bin/env bash",
        "# Written by run.py; written anew by every action=run, test and dryrun.",
        "set -eu",
        f"cd -- {shlex.quote(plan.paths.cwd)}",
    ]
    if plan.job.before_start:
        lines += [
            "set +u  # activation scripts of environments rarely stand `set -u`",
            plan.job.before_start,
            "set -eu",
        ]
    for name, value in plan.job.env.items():
        lines.append(f"unset -v {name}" if value is None else f"export {name}={shlex.quote(value)}")
    if plan.pythonpath:
        lines.append(
            "export"
            f" PYTHONPATH={shlex.quote(os.pathsep.join(plan.pythonpath))}${{PYTHONPATH:+:${{PYTHONPATH}}}}"
        )
    return "\n".join([*lines, f"exec -- {shlex.join(plan.command)}", ""])


def write_script(plan: Plan) -> str:
    """Replaces the script. Returns its path. Raises PerfError if bash cannot parse `before_start`."""
    plan.paths.make()
    path = plan.paths.script
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(render(plan))
        os.chmod(temporary, 0o750)
        checked = subprocess.run(
            ["bash", "-n", temporary], capture_output=True, text=True, errors="replace", check=False
        )
        if checked.returncode != 0:
            complaint = checked.stderr.strip()
            raise PerfError(
                f"experiment.cmds.before_start: {plan.job.before_start!r} is not whole bash code: "
                f"{complaint};"
                " mend its quotes"
            )
        os.replace(temporary, path)
    except OSError as error:
        raise PerfError(
            f"experiment.exp_dir: cannot write {path!r}: {error.strerror}; give a directory that can be"
            " written"
        ) from None
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)
    return path
