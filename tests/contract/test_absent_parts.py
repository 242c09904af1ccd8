"""Every optional part absent, for everything that uses it: two lines, an exit code, no traceback."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from flagscale_perf.sinks.registry import VIEWS
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.packages import PARTS, SERVE, TABLES, find_part
from flagscale_perf.writer.fanout import FanOut
from tests import every_instrument
from tests.fakes import make_context, make_header, sample_run
from tests.run_files import steady, write

REPO = Path(__file__).parents[2]
# Runs what follows on the command line as `python ...` would, the named parts not to be imported.
BLOCKED = """
import os, runpy, sys
sys.modules |= dict.fromkeys(sys.argv[1].split(","))
sys.argv = sys.argv[2:]
if sys.argv[0].endswith(".py"):
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
else:
    from flagscale_perf.cli import main
    sys.exit(main(sys.argv))
"""
RUN_PY = str(REPO / "run.py")
TEE_GPU = REPO / "examples/tee_gpu"
MODEL = REPO / "conf/train/demo_llama.yaml"
# Part -> what uses it, as typed in a directory with a run in logs/.
USERS = {
    "hydra": [[RUN_PY]],
    "omegaconf": [[RUN_PY]],
    "yaml": [["flops", "--args", str(MODEL)]],
    "rich": [["watch", "logs", "--once"], ["watch", "logs"]],
    "plotly": [
        ["report", "logs", "--format", "html"],
        ["runs", "logs", "--format", "html", "-o", "runs.html"],
    ],
    "matplotlib": [["report", "logs", "--format", "png", "-o", "report.png"]],
    "torch": [["peak"]],
    "starlette": [["serve", "logs"]],
    "uvicorn": [["serve", "logs"]],
    "zmq": [[f"{TEE_GPU}/server_optimized.py"], [f"{TEE_GPU}/diagnose_transport.py"]],
    "msgspec": [
        *(["report", "logs"], ["compare", "base.jsonl", "new.jsonl"]),
        *([f"{TEE_GPU}/tee_runner_optimized.py"], [f"{TEE_GPU}/test_simple.py"]),
    ],
    "pyarrow": [
        *(["seal", "logs"], ["query", "logs", "select 1"]),
        ["report", "logs", "--format", "parquet", "-o", "tables"],
    ],
    "duckdb": [["query", "logs", "select 1"]],
    "perfetto": [["trace-export", "logs", "-o", "t.pftrace"], ["trace-export", "logs", "-o", "t.tar"]],
    "numpy": [["report", "profiled"], ["report", "called"]],
    "msgpack": [[f"{TEE_GPU}/test_simple.py"]],
}
# A command that needs all parts of an extra: whichever is missing, one line brings them all.
NEEDS_ALL_OF = {"serve": SERVE, "query": TABLES}
# What is there for a run without a command, and the examples: tested below.
NO_COMMAND = {
    "",  # py-spy, a program
    "tensorboard",
    "pynvml",
    "prometheus_client",
    "megatron",
    "opentelemetry",
    "pandas",
    "wandb",
}
# The same for command lines, one after another: exit codes.
BLOCKED_COMMANDS = """
import json, sys
parts, *lines = json.loads(sys.argv[1])
sys.modules |= dict.fromkeys(parts)
from flagscale_perf.cli import main
codes = [main(words) for words in lines]
print()
print(codes)
"""
# Everything that needs none of them.
PLAIN = [
    ["report", "logs"],
    ["report", "logs", "--format", "markdown"],
    ["report", "logs", "--format", "json"],
    ["report", "logs", "--format", "csv"],
    ["report", "logs", "--all-sessions"],
    ["compare", "base.jsonl", "new.jsonl"],
    ["runs", "logs"],
    ["trace-export", "logs", "-o", "trace.json"],
    ["flops", "--args", "model.json"],
    ["peak", "--device", "NVIDIA H100"],
    ["disable"],
]
MODULES = [part.module for part in PARTS]
READS = "msgspec"  # which every command that reads a run file needs


@pytest.fixture
def logs(tmp_path) -> None:
    """What the commands read."""
    for name, where in (("profile", "profiled"), ("rpc", "called")):
        (tmp_path / where).mkdir()
        every_instrument.write(name, tmp_path / where, "completed")
    (tmp_path / "logs").mkdir()
    write(tmp_path / "base.jsonl", steady(64))
    write(tmp_path / "new.jsonl", steady(64))
    (tmp_path / "logs/perf_records_20240129_103000.jsonl").write_bytes(b"".join(map(encode, sample_run())))
    model = {
        "num_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "seq_length": 64,
        "padded_vocab_size": 8000,
        "global_batch_size": 4,
    }
    (tmp_path / "model.json").write_text(json.dumps(model))


@pytest.fixture
def type_without(run_python, logs):
    """Types a command where these parts cannot be imported."""

    def type_(parts: str, words: list[str]):
        return run_python("-c", BLOCKED, parts, *words)

    return type_


def test_every_part_is_tried() -> None:
    assert set(USERS) | NO_COMMAND == {part.module for part in PARTS}


@pytest.mark.parametrize(
    ("module", "words"),
    [(module, words) for module, users in USERS.items() for words in users],
    ids=lambda each: each if isinstance(each, str) else Path(each[0]).name,
)
def test_a_command_without_its_part_says_so_in_two_lines(type_without, module, words) -> None:
    done = type_without(module, words)
    part = find_part(module)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    needs, line = done.stderr.splitlines()
    assert needs.endswith(f" needs {part.name}, which is not installed")
    assert line.startswith(f"install it: {sys.executable} -m pip install ") and part.name in line
    if words[0] in NEEDS_ALL_OF:
        assert all(each.wanted in line for each in PARTS if each.extra == NEEDS_ALL_OF[words[0]])


@pytest.mark.parametrize("example", ["plot_summary.py", "read_report.py"])
def test_an_example_without_pandas_says_so_in_two_lines(type_without, example) -> None:
    done = type_without("pandas", [str(REPO / "examples/analysis" / example), "logs"])
    needs, line = done.stderr.splitlines()
    assert done.returncode in (1, 2) and "pandas" in needs
    assert f"{sys.executable} -m pip install pandas" in line


def test_everything_else_needs_none_of_them(run_python, logs) -> None:
    done = run_python(
        "-c", BLOCKED_COMMANDS, json.dumps([[name for name in MODULES if name != READS], *PLAIN])
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout.splitlines()[-1]) == [0] * len(PLAIN)


def test_doctor_lists_every_part_and_how_to_get_what_is_missing(type_without) -> None:
    done = type_without(",".join(MODULES), ["doctor"])
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("parts "))
    listed = [line[12:].split(maxsplit=2) for line in lines[first : first + 2 * len(PARTS) : 2]]
    below = [line.strip() for line in lines[first + 1 : first + 2 * len(PARTS) : 2]]
    core = next(place for place, part in enumerate(PARTS) if part.module == "megatron")
    assert listed.pop(core)[1][0].isdigit()  # FlagScale brings one along
    assert below.pop(core).endswith("/Megatron-LM: nothing to install")
    others = [part for part in PARTS if part.module != "megatron"]
    assert listed == [[part.name, "MISSING", part.purpose] for part in others]
    assert below == [part.line for part in others]
    found = type_without(",".join({*MODULES} - {"plotly"}), ["doctor"]).stdout
    assert re.search(rf"plotly +{find_part('plotly').version}", found)


def test_a_view_without_its_package_says_how_to_get_it_and_the_others_go_on(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tensorboard", "prometheus_client"):
        for module in [each for each in sys.modules if each.partition(".")[0] == name]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, name, None)
    said: list[str] = []
    options = {"perf_prometheus_port": "9400", "perf_prometheus_textfile": str(tmp_path / "x.prom")}
    context = make_context(make_header(**options), tmp_path, print, may_serve=True)
    FanOut(VIEWS, context, lambda kind, line: said.append(line)).close()
    assert len(said) == 3
    for line, module in zip(said, ("tensorboard", "prometheus_client", "prometheus_client"), strict=True):
        part = find_part(module)
        assert f"the package {part.name} is not installed; install it: {part.line}; " in line
