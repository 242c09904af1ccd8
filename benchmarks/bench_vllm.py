"""How far a compiled vLLM's layers are from those of an eager one, what profiling costs in vLLM, and which of
its ways to run can be profiled.

make bench NAME=vllm ARGS="[--rounds N] [ARM ...]"

Starts one vLLM after another (half a minute each, or more), with a Qwen3 of random weights, 4 layers, hidden
512, and profiles 30 steps of each kind. A share is the time in a layer's operators and collectives, of all in
the layers, the embedding and the head; Python between them is left out, as an eager model has more of
it. "eager again" is the same once more: what two runs differ by anyway. Needs vLLM's environment
(`make venv-vllm`).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.provenance import head  # noqa: E402
from flagscale_perf.analysis.job import open_session  # noqa: E402
from flagscale_perf.profile.analysis.instrument import read_report  # noqa: E402
from flagscale_perf.profile.analysis.report import ProfileReport  # noqa: E402
from tests.vllm.conftest import environment_of, plugin_in  # noqa: E402
from tests.vllm.generate import write_model  # noqa: E402

LAYERS = 4
SIZES = {"hidden_size": 512, "intermediate_size": 1536, "num_attention_heads": 8, "num_hidden_layers": LAYERS}
STEPS, PHASES = "1-30", ("prefill", "decode")
LEFT_OUT = ("host", "engine")
EAGER = "eager"


class Arm(NamedTuple):
    """A way to run vLLM."""

    mode: str = EAGER
    ranks: int = 1
    words: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


ARMS = {
    EAGER: Arm(),
    "eager again": Arm(),
    "compiled": Arm("compiled"),
    "compiled, TP2": Arm("compiled", 2),
    "eager, V2 model runner": Arm(environment=(("VLLM_USE_V2_MODEL_RUNNER", "1"),)),
    "eager, PP2": Arm(words=("pipeline=2",)),
}


def run(name: str, rounds: int, directory: Path) -> ProfileReport | str:
    """What was profiled, or the last line of what vLLM said when it ended."""
    arm = ARMS[name]
    ours, cwd = directory / "profile", directory / "cwd"
    cwd.mkdir(parents=True)
    environment = environment_of(plugin_in(directory / "plugin"), 2 if arm.words else arm.ranks)
    environment |= {"FLAGSCALE_PERF_PROFILE_STEPS": STEPS, "FLAGSCALE_PERF_PROFILE_DIR": str(ours)}
    model = write_model(directory / "model", **SIZES)
    command = [
        sys.executable,
        "-m",
        "tests.vllm.generate",
        str(model),
        str(arm.ranks),
        arm.mode,
        f"rounds={rounds}",
        *arm.words,
    ]
    ended = subprocess.run(
        command, cwd=cwd, env=environment | dict(arm.environment), text=True, capture_output=True, check=False
    )
    if ended.returncode:
        return _error_of(ended.stdout + ended.stderr) or f"exit code {ended.returncode}"
    return read_report(open_session(next(ours.glob("perf_records_*.jsonl"))))


def _error_of(said: str) -> str:
    """The first error of all its processes, with what stands behind it, or, where nothing does, before it."""
    lines = [
        re.sub(r"^(\(.*?\) )?(ERROR .*?\] )?(\[.*?\] )?", "", line).strip() for line in said.splitlines()
    ]
    for place, line in enumerate(lines):
        if re.match(r"[\w.]*Error\b", line):
            before = [each for each in lines[:place] if each.strip("^~ ")][-1:]
            is_bare = line.rstrip(":").endswith("Error")
            return " ".join([line, *(before if is_bare else lines[place + 1 : place + 2])])
    return ""


def shares_of(report: ProfileReport, phase: str) -> dict[str, float]:
    """Of each place in the model."""
    found: dict[str, float] = {}
    for cell in report.sums[phase].cells:
        if cell.kind not in LEFT_OUT and cell.place.name != "outside":
            found[cell.place.name] = found.get(cell.place.name, 0.0) + cell.self_ns
    whole = sum(found.values())
    return {name: value / whole for name, value in found.items()}


def apart(one: ProfileReport, other: ProfileReport, phase: str) -> str:
    """Of two reports' layers, in points of their shares."""
    left, right = shares_of(one, phase), shares_of(other, phase)
    layers = [f"layer {number}" for number in range(LAYERS)]
    points = [100 * (right.get(name, 0.0) - left.get(name, 0.0)) for name in layers]
    words = "  ".join(
        f"{100 * right.get(name, 0.0):5.1f} ({by:+.1f})" for name, by in zip(layers, points, strict=True)
    )
    return f"{words}   mean {sum(map(abs, points)) / LAYERS:.1f}, largest {max(map(abs, points)):.1f}"


def main() -> int:
    """Runs the arms and prints what each costs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=64, help="prompts, one after another (default: 64)")
    parser.add_argument("arms", nargs="*", metavar="ARM", help=f"of: {', '.join(ARMS)} (default: all)")
    given = parser.parse_args()
    print(head("profile", "hosts"))
    print(f"steps    {STEPS} of each kind, each beside a clean one; prompts of 48 tokens")
    found: dict[str, ProfileReport] = {}
    for name in given.arms or ARMS:
        with tempfile.TemporaryDirectory() as directory:
            report = run(name, given.rounds, Path(directory))
        if isinstance(report, str):
            print(f"{name}: does not run: {report}", flush=True)
            continue
        found[name] = report
        for phase in PHASES:
            print(
                f"{name}, {phase}: profiling {report.observers[phase].words}; books"
                f" {100 * (report.sums[phase].mean.coverage or 0):.1f} %",
                flush=True,
            )
    if EAGER in found:
        for phase in PHASES:
            print(f"\n{phase}: share of each layer in %, and how many points it is from the eager one's")
            for name, report in found.items():
                print(f"  {name:24} {apart(found[EAGER], report, phase)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
