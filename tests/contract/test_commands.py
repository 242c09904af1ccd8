"""Every command of README and docs is typed by the walk or by a test that is named here, or today's program
accepts it.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from flagscale_perf.cli import COMMANDS, load_command
from flagscale_perf.cli.base import Parser
from tests.conftest import REPO
from tests.contract.test_from_perf_monitor import HERE
from tests.contract.test_makefile import MAKEFILE, TARGETS
from tests.walk.docs_steps import DOCS_STEPS
from tests.walk.readme import commands
from tests.walk.steps import STEPS

PAGES = [path for path in sorted([*REPO.glob("*.md"), *REPO.glob("docs/*.md")]) if path.stem != "CHANGELOG"]
WALKED = {step.command for step in (*STEPS, *DOCS_STEPS) if step.place is not None}
SHELL = {"break", "cd", "done", "echo", "export", "sleep"}
SHORT = re.compile(rf"`((?:{'|'.join(COMMANDS)}) (?:--|-o |[A-Z]{{2}}|\w+/)[^`\n]*)`")  # `report RUN --full`

RUN_PY, FLAGSCALES = "tests/processes/test_run_py.py::", "tests/processes/test_flagscales_run_py.py::"
REQUIRED = f"{RUN_PY}test_command_lines_of_the_requirement"
AQUILA = "python run.py --config-path ./examples/aquila/conf --config-name train"
DATA = "train.data.data_path=PREFIX"
# Typed by a test, with a value for each thing that the page leaves open.
TYPED = {
    "bash outputs/logs/scripts/host_0_localhost_run.sh": f"{RUN_PY}test_script_can_be_started_by_hand",
    "python flagscale/train/train_gpt.py --enable-perf-monitor --tensorboard --tensorboard-dir ./tb_logs"
    " --train-iters 100": "tests/processes/test_flagscale_outputs.py::"
    "test_the_curves_come_from_rank_0_beside_the_hosts_own",
    f"{AQUILA} action=run {DATA} +train.system.enable_perf_monitor=true +train.system.perf_log_interval=10"
    " +train.system.perf_log_dir=$PWD/outputs/logs/perf_monitor": f"{FLAGSCALES}test_keys_with_a_plus",
    f"{AQUILA} train=7b_with_perf_monitor action=run {DATA}": (
        f"{FLAGSCALES}test_a_file_of_ours_beside_flagscales_own"
    ),
    f"{AQUILA} action=run {DATA} train.system.enable_perf_monitor=true train.system.perf_log_interval=10"
    " train.system.perf_log_dir=./outputs/logs/perf_monitor": REQUIRED,
    "python run.py ... train.system.enable_perf_monitor=true": REQUIRED,
    "python test_perf_simple.py": f"{HERE}::test_a_script_of_tests_runs_them",
    "python test_perf_monitor_unit.py": f"{HERE}::test_a_script_of_tests_runs_them",
    "torchrun --max-restarts": "tests/processes/test_flagscale_restart.py::"
    "test_a_restarted_job_leaves_two_sessions_that_fit_together",
    "flagscale-perf capture RUN --steps 20": "tests/processes/test_flagscale_capture.py::"
    "test_a_live_run_is_asked_for_more_steps",
    "make demo-trace": "tests/trace/test_example.py::test_the_demo_shows_and_exports_it",
    "make demo-job": "tests/trace/test_job.py::test_one_command_leaves_report_page_and_trace",
}
# Typed nowhere, and why.
ELSEWHERE = {
    "watch -n 1 tail -20 ...": "procps' watch, of the log that the walk follows with tail",
    "python your_training_script.py": "the reader's own",
    "python train.py | tee training.log": "the reader's own",
    "FLAGSCALE_PERF_PROFILE_STEPS=20-22 FLAGSCALE_PERF_PROFILE_DIR=outputs/vllm vllm serve MODEL"
    " --tensor-parallel-size 2": "needs vLLM and two GPUs; tests/vllm profiles an engine on the CPU",
    'split -l 1 --filter \'curl -sSf -H "Content-Type: application/json" --data-binary @-'
    " http://127.0.0.1:4318/v1/traces' spans.otlp.ndjson": "needs a collector on port 4318",
}


def commands_of(page: Path) -> list[str]:
    """With those of `flagscale-perf` that a table shortens to their subcommand."""
    text = page.read_text(encoding="utf-8")
    return [*commands(text), *(f"flagscale-perf {short}" for short in SHORT.findall(text))]


def complaint(command: str) -> str:
    """What would be refused of it; empty where nothing would."""
    return next(filter(None, map(_complaint, _parts(command))), "")


def _parts(command: str) -> Iterator[list[str]]:
    """The programs that a line starts, with their words. Of a synopsis everything that may be given."""
    line = re.sub(r"\[(--?\w[^]|]*)(\|[^]]*)?\]", r"\1", re.sub(r"\$\([^)]*\)", "x", command))
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split, lexer.commenters = True, ""
    part: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set(";&|"):
            if part:
                yield part
            part = []
        elif part or not re.match(r"(while|do)$|\w+=", word):
            part.append(word)


def _complaint(words: list[str]) -> str:
    program = Path(words[0]).name
    if program in SHELL or words == ["tail", words[-1]]:  # `tail -f` in a sentence
        return ""
    judge = JUDGES.get(program)
    return judge(words[1:]) if judge else f"what is {program}?"


def _of_ours(words: list[str]) -> str:
    name, *rest = words
    if name not in COMMANDS:
        return f"{name} is no command"
    parser = Parser(prog=name)
    load_command(name).add_arguments(parser)
    if not rest or (rest[0].startswith("--") and set(rest[::2]) <= set(parser._option_string_actions)):
        return ""  # in a sentence a command stands for itself, alone or with an option
    try:
        parser.parse_args([{"N": "1"}.get(word, word) for word in rest if word != "..."])
    except SystemExit:
        return "its parser refuses it"
    return ""


def _of_make(words: list[str]) -> str:
    for word in words:
        variable, given, _ = word.partition("=")
        if given and not re.search(rf"\b{variable}\b", MAKEFILE):
            return f"make knows no {variable}"
        if not given and word not in TARGETS:
            return f"make has no target {word}"
    return ""


def _of_pip(words: list[str]) -> str:
    setup = (REPO / "setup.py").read_text(encoding="utf-8")
    files = [name for flag, name in zip(words, words[1:], strict=False) if flag == "-r"]
    for named in re.findall(r"\[(\w+)\]", " ".join(words)):
        if f'"{named}": ' not in setup.partition("extras_require=")[2]:
            return f"no extra {named}"
    return next((f"{name} is not there" for name in files if not (REPO / name).is_file()), "")


def _of_script(words: list[str]) -> str:
    """Its file is there, and has every option that is given to it in its source."""
    for place, word in enumerate(words):
        if word == "-m":
            return "" if importlib.util.find_spec(words[place + 1]) else f"no module {words[place + 1]}"
        if word.endswith(".py"):
            found = [home / word for home in (REPO, REPO / "examples/tee_gpu") if (home / word).is_file()]
            if not found:
                return f"{word} is not there"
            source = found[0].read_text(encoding="utf-8")
            options = [w.partition("=")[0] for w in words[place + 1 :] if w.startswith("--")]
            return next((f"{word} has no {option}" for option in options if f'"{option}"' not in source), "")
    return "it names no script"


JUDGES = {
    "flagscale-perf": _of_ours,
    "make": _of_make,
    "pip": _of_pip,
    "python": _of_script,
    "torchrun": _of_script,
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_every_command_is_typed_or_accepted(page: Path) -> None:
    left = [line for line in commands_of(page) if not {line} & {*WALKED, *TYPED, *ELSEWHERE}]
    assert {line: why for line in left if (why := complaint(line))} == {}


def test_every_row_is_of_a_command_and_names_a_test_that_is_there() -> None:
    said = {line for page in PAGES for line in commands_of(page)}
    assert {*WALKED, *TYPED, *ELSEWHERE} - said == set()
    assert TYPED.keys() & ELSEWHERE.keys() == set()
    for test in TYPED.values():
        path, _, name = test.partition("::")
        assert f"def {name}(" in (REPO / path).read_text(encoding="utf-8"), test


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("flagscale-perf report RUN --fulll", "its parser refuses it"),
        ("flagscale-perf reports RUN", "reports is no command"),
        ("flagscale-perf report --fulll", "its parser refuses it"),
        ("make tests", "make has no target tests"),
        ("make bench NOME=ring", "make knows no NOME"),
        ("pip install '.[server]'", "no extra server"),
        ("python benchmarks/bench_rings.py", "benchmarks/bench_rings.py is not there"),
        ("python benchmarks/bench_ring.py", ""),
        ("python run.py --peers DIR", "run.py has no --peers"),
        ("while d=x; do flagscale-perf report RUN --fulll || break; sleep 1h; done", "its parser refuses it"),
        ("flagscale-perf serve RUN [--port N]", ""),
        ("A=1 perf report", "what is perf?"),
    ],
)  # fmt: skip
def test_what_would_be_refused_is_seen(command: str, why: str) -> None:
    assert complaint(command) == why
