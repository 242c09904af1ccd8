"""docs/reading.md, "In Python": the public names, and every example of the page with what it prints.

`python -m tests.contract.test_api_page` renews what they print.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import flagscale_perf
from tests.golden import golden

REPO = Path(__file__).parents[2]
PAGE = REPO / "docs/reading.md"
EXAMPLE = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)
LOOP = "PerfMonitor("  # in the one example without an output of its own
# What the page leaves to its reader, for the example that has a loop.
OF_THE_READER = """
from types import SimpleNamespace
sizes = {f"{name}_model_parallel_size": 1 for name in ("tensor", "pipeline", "expert", "context")}
model = SimpleNamespace(config=SimpleNamespace(bf16=True, fp16=False, context_parallel_size=1, **sizes))
batches, train_on = range(3), bool
"""
DEADLINE_S = 120  # for the slowest machine


def examples() -> list[tuple[str, str]]:
    found = [(match[1], match[2] or "") for match in EXAMPLE.finditer(PAGE.read_text(encoding="utf-8"))]
    return [example for example in found if LOOP not in example[0]]


def printed(code: str, directory: Path) -> str:
    """What an example prints in a directory with the sample run in it."""
    logs = directory / "logs/perf_monitor"
    logs.mkdir(parents=True)
    (logs / "perf_records_20240129_103000.jsonl").write_text(golden("perf_records.jsonl"))
    return run(code, directory)


def run(code: str, directory: Path) -> str:
    """What it prints; it must end well."""
    environment = os.environ | {"PYTHONPATH": str(REPO), "FLAGSCALE_PERF_ENABLE_MONITOR": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    said = [
        line for line in done.stderr.splitlines() if not line.startswith("USDT:")
    ]  # of torch's own profiler
    assert (done.returncode, said) == (0, [])
    return done.stdout


@pytest.mark.parametrize("number", range(len(examples())))
def test_an_example_prints_what_the_page_says(number: int, tmp_path: Path) -> None:
    code, said = examples()[number]
    assert printed(code, tmp_path) == said, "renew it: python -m tests.contract.test_api_page"


def test_the_loop_s_example_records_a_run(tmp_path: Path) -> None:
    (code,) = [match[1] for match in EXAMPLE.finditer(PAGE.read_text(encoding="utf-8")) if LOOP in match[1]]
    run(OF_THE_READER + code, tmp_path)
    recorded = flagscale_perf.open_run(tmp_path / "logs/perf_monitor")
    assert recorded.report().overview.end_reason == "completed"
    assert recorded.steps()["outcome"].tolist() == [
        "update_skipped",
        "trained",
        "trained",
    ]  # bool(0), (1), (2)


def test_every_public_name_is_on_the_page_and_in_an_example() -> None:
    table = (
        PAGE.read_text(encoding="utf-8")
        .partition("## In Python")[2]
        .split("| --- | --- |\n", 1)[1]
        .split("\n\n", 1)[0]
    )
    names = sorted(re.findall(r"`(\w+)`", re.sub(r"\| [^|]* \|$", "", table, flags=re.MULTILINE)))
    assert names == sorted(flagscale_perf.__all__) == sorted(flagscale_perf._PUBLIC)
    imported = {
        name
        for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        for line in re.findall(r"^from flagscale_perf import (.*)$", code, re.MULTILINE)
        for name in line.split(", ")
    }
    assert imported == set(flagscale_perf.__all__)


def test_each_name_is_what_its_module_calls_so() -> None:
    from flagscale_perf.flops_calculator import ModelShape, step_flops
    from flagscale_perf.hosts.manual import PerfMonitor
    from flagscale_perf.opened import open_run
    from flagscale_perf.spine.errors import PerfError

    assert flagscale_perf.PerfMonitor is PerfMonitor is flagscale_perf.monitor.PerfMonitor
    assert (flagscale_perf.ModelShape, flagscale_perf.step_flops) == (ModelShape, step_flops)
    assert (flagscale_perf.open_run, flagscale_perf.PerfError) == (open_run, PerfError)
    assert set(flagscale_perf.__all__) <= set(dir(flagscale_perf))
    with pytest.raises(AttributeError, match="has no attribute 'PerfMonitr'"):
        _ = flagscale_perf.PerfMonitr  # type: ignore[attr-defined]


def test_importing_the_package_loads_none_of_them(run_python) -> None:
    ours = "[name for name in sys.modules if 'flagscale_perf' in name]"
    code = f"import sys, flagscale_perf; print({ours}, 'typing' in sys.modules)"
    bare = run_python("-S", "-c", "import sys; print('typing' in sys.modules)").stdout.strip()
    assert run_python("-S", "-c", code).stdout == f"['flagscale_perf'] {bare}\n"


def test_type_checkers_know_the_names_and_refuse_others(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from flagscale_perf import ModelShape, PerfMonitor, monitor, open_run, step_flops\n"
        "from flagscale_perf.training.records import StepRecord\n"
        "reveal_type(open_run('x').report().figures.tflops_per_gpu)\n"
        "reveal_type(next(open_run('x').records(StepRecord)).iteration_ns)\n"
        "reveal_type(step_flops(ModelShape.from_args({}), 1, 1).model_flops)\n"
        "reveal_type(PerfMonitor(None, monitor.Training(1, 1, 1)).step().samples)\n"
        "from flagscale_perf import PerfMonitr\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", str(script)],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    shown = re.findall(r'Revealed type is "(.*?)"', done.stdout)
    expected = ["float | None", "int", "int | None", "int"]
    assert [kind.replace("builtins.", "") for kind in shown] == expected, done.stdout
    assert 'has no attribute "PerfMonitr"' in done.stdout


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    for code, said in examples():
        with tempfile.TemporaryDirectory() as directory:
            page = page.replace(
                f"{code}```\n\n```text\n{said}```",
                f"{code}```\n\n```text\n{printed(code, Path(directory))}```",
            )
    PAGE.write_text(page, encoding="utf-8")
