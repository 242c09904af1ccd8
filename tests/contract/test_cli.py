"""What every command of `flagscale-perf` keeps to."""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flagscale_perf import __version__
from flagscale_perf.cli import COMMANDS, load_command, main
from flagscale_perf.cli.base import Command

REPO = Path(__file__).parents[2]
FRAME = {
    "--init--",
    "asking",
    "base",
    "instruments",
    "output",
    "parser",
    "predicting",
    "stopping",
    "training-yaml",
}

# A command that is not in the package, registered as a real one would be.
STAND_IN = """
import sys, types
from flagscale_perf import cli
from flagscale_perf.cli.base import Command
from flagscale_perf.spine.errors import PerfError

class ProbeCommand(Command):
    def add_arguments(self, parser):
        parser.add_argument("--times", type=int, default=1)
    def run(self, args):
        {body}

module = types.ModuleType("flagscale_perf.cli.probe")
module.ProbeCommand = ProbeCommand
sys.modules[module.__name__] = module
cli.COMMANDS["probe"] = "stand-in"
sys.exit(cli.main(["probe", *sys.argv[1:]]))
"""

# A program that gets SIGINT as it begins to import one of its parts.
INTERRUPTED = """
import os, runpy, signal, sys
class Interrupting:
    def find_spec(self, module, path=None, target=None):
        if module == part:
            os.kill(os.getpid(), signal.SIGINT)
program, part, *sys.argv[1:] = sys.argv[1:]
sys.meta_path.insert(0, Interrupting())
run = runpy.run_path if program.endswith(".py") else runpy.run_module
run(program, run_name="__main__")
"""
DRYRUN = ("action=dryrun", "train=demo_llama")


def stand_in(body: str) -> str:
    return STAND_IN.format(body=body)


def test_one_file_one_command() -> None:
    files = {path.stem.replace("_", "-") for path in (REPO / "flagscale_perf/cli").glob("*.py")} - FRAME
    assert files == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
class TestEveryCommand:
    def test_is_a_command_of_its_name(self, name) -> None:
        command = load_command(name)
        assert isinstance(command, Command)
        assert type(command).__name__.lower() == f"{name.replace('-', '')}command"

    def test_explains_itself(self, name, capsys) -> None:
        with pytest.raises(SystemExit) as end:
            main([name, "--help"])
        assert end.value.code == 0
        shown = capsys.readouterr().out
        assert shown.startswith(f"usage: flagscale-perf {name} ")
        assert "".join(COMMANDS[name].split()) in "".join(
            shown.split()
        )  # argparse breaks lines at hyphens, too

    def test_explains_every_argument(self, name) -> None:
        parser = argparse.ArgumentParser()
        load_command(name).add_arguments(parser)
        assert [action.dest for action in parser._actions if not action.help] == []

    def test_refuses_an_unknown_option_with_2(self, name, capsys) -> None:
        with pytest.raises(SystemExit) as end:
            main([name, "--no-such-option"])
        assert end.value.code == 2
        assert "Traceback" not in capsys.readouterr().err

    def test_is_loaded_alone(self, name, run_python) -> None:
        code = (
            f"from flagscale_perf.cli import load_command; load_command({name!r}); import sys, json; "
            "print(json.dumps(sorted(sys.modules)))"
        )
        loaded = json.loads(run_python("-c", code).stdout)
        others = {f"flagscale_perf.cli.{other.replace('-', '_')}" for other in COMMANDS if other != name}
        assert others & set(loaded) == set()
        assert {"torch", "matplotlib", "megatron", "zmq"} & set(loaded) == set()


def test_help_lists_every_command_and_imports_none(run_python) -> None:
    result = run_python("-X", "importtime", "-m", "flagscale_perf", "--help")
    assert result.returncode == 0
    for name, text in COMMANDS.items():
        assert any(line.split(maxsplit=1) == [name, text] for line in result.stdout.splitlines())
    imported = {
        line.split("|")[-1].strip() for line in result.stderr.splitlines() if line.startswith("import time:")
    }
    assert {name for name in imported if name.startswith("flagscale_perf.")} == {
        "flagscale_perf.cli",
        "flagscale_perf.cli.base",
        "flagscale_perf.spine",
        "flagscale_perf.spine.errors",
        "flagscale_perf.spine.interrupted",
    }


def test_version(run_python) -> None:
    assert run_python("-m", "flagscale_perf", "--version").stdout == f"flagscale-perf {__version__}\n"


def test_an_unknown_command_is_wrong_usage(run_python) -> None:
    result = run_python("-m", "flagscale_perf", "reprot")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.splitlines()[0] == "flagscale-perf: 'reprot' is not a command; did you mean report?"


def test_without_a_command_the_help_says_which_there_are(run_python) -> None:
    result, asked = (run_python("-m", "flagscale_perf", *words) for words in ([], ["--help"]))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == asked.stdout


def test_a_command_gets_its_arguments_and_gives_the_exit_code(run_python) -> None:
    result = run_python("-c", stand_in("print('ha' * args.times); return 7"), "--times", "3")
    assert (result.returncode, result.stdout, result.stderr) == (7, "hahaha\n", "")


def test_a_mistake_is_told_in_its_own_words(run_python) -> None:
    result = run_python(
        "-c", stand_in("print('so far'); raise PerfError('no run in /x; name another directory')")
    )
    assert (result.returncode, result.stdout, result.stderr) == (
        2,
        "so far\n",
        "no run in /x; name another directory\n",
    )


def test_any_other_error_keeps_its_traceback(run_python) -> None:
    result = run_python("-c", stand_in("return 1 // 0"))
    assert result.returncode == 1
    assert "ZeroDivisionError" in result.stderr


def test_an_interrupt_ends_quietly_with_130(run_python) -> None:
    result = run_python(
        "-c", stand_in(f"import os, signal; os.kill(os.getpid(), {int(signal.SIGINT)}); signal.pause()")
    )
    assert (result.returncode, result.stderr) == (130, "")


@pytest.mark.parametrize(
    ("program", "words", "part"),
    [
        ("flagscale_perf", ["--version"], "flagscale_perf.cli"),
        ("flagscale_perf", ["runs", "."], "flagscale_perf.cli.runs"),
        (REPO / "run.py", DRYRUN, "hydra"),
        (REPO / "run.py", DRYRUN, "antlr4.LL1Analyzer"),
    ],
)
def test_an_interrupt_while_it_begins_ends_quietly_with_130(
    run_python, program: str, words: list[str], part: str
) -> None:
    result = run_python("-c", INTERRUPTED, program, part, *words)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


def test_where_interrupts_are_ignored_they_are_ignored_from_the_beginning(run_python) -> None:
    ignored = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{INTERRUPTED}"
    result = run_python("-c", ignored, "flagscale_perf", "flagscale_perf.cli", "--version")
    assert (result.returncode, result.stdout) == (0, f"flagscale-perf {__version__}\n")


@pytest.mark.parametrize(
    "body", ["print('x' * 100000)", "print('x')"], ids=["while printing", "when flushing"]
)
def test_a_reader_that_has_gone_is_no_error(body) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        result = subprocess.run(
            [sys.executable, "-c", stand_in(f"{body}; return 0")],
            stdout=write_end,
            stderr=subprocess.PIPE,
            cwd=REPO,
            text=True,
            timeout=60,
        )
    finally:
        os.close(write_end)
    assert (result.returncode, result.stderr) == (141, "")
