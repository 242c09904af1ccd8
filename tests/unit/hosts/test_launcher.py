"""What the launcher says when the script has entered no training loop that the monitor knows."""

import os

import pytest

from tests.conftest import REPO

ON = "--enable-perf-monitor"
LINE = "nothing was recorded: the script ended without entering a training loop that the monitor knows"


@pytest.fixture
def launch(run_python, tmp_path):
    """Runs a script of these lines with the launcher."""

    def run(code, *words, **env):
        (tmp_path / "script.py").write_text(code)
        return run_python("-m", "flagscale_perf.launch", tmp_path / "script.py", *words, env=env)

    return run


@pytest.mark.parametrize(
    "code",
    ["print('trained')", "print('trained'); raise SystemExit", "import sys; print('trained'); sys.exit(0)"],
)
def test_an_unknown_loop_is_said_once_and_changes_nothing(launch, code):
    done = launch(code, ON)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert done.stderr == f"flagscale_perf: {LINE} (flagscale-perf doctor lists them)\n"


def test_the_variable_asks_too_and_only_rank_0_answers(launch):
    assert LINE in launch("", FLAGSCALE_PERF_ENABLE_MONITOR="1", RANK="0").stderr
    assert launch("", FLAGSCALE_PERF_ENABLE_MONITOR="1", RANK="1").stderr == ""


def test_help_is_not_a_mistake(run_python):
    done = run_python("-m", "flagscale_perf.launch", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: python -m flagscale_perf.launch SCRIPT ARGS...\n")


def test_nobody_who_did_not_ask_is_told(launch):
    assert launch("").stderr == ""


@pytest.mark.parametrize(
    ("code", "returncode"), [("raise ValueError('own fault')", 1), ("raise SystemExit(3)", 3)]
)
def test_a_script_that_fails_says_why_itself(launch, code, returncode):
    done = launch(code, ON)
    assert done.returncode == returncode
    assert LINE not in done.stderr


def test_a_script_that_monitors_itself_is_known(launch):
    assert launch("import flagscale_perf.monitor", ON).stderr == ""


def test_a_child_that_the_script_forks_says_nothing(launch):
    done = launch("import os, sys\nif os.fork() == 0:\n    sys.exit(0)\nos.wait()\nprint('trained')", ON)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert done.stderr.count(LINE) == 1


def test_a_python_that_puts_no_directory_first_keeps_its_search_path(launch, tmp_path):
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "of_the_host.py").write_text("")
    (tmp_path / "beside.py").write_text("")
    search = os.pathsep.join((str(tmp_path / "library"), str(REPO)))
    found = "import of_the_host, importlib.util as u; print(u.find_spec('beside') is not None)"
    assert launch(found, PYTHONPATH=search, PYTHONSAFEPATH="1").stdout == "False\n"
    assert launch(found, PYTHONPATH=search).stdout == "True\n"


def test_children_of_every_start_method_find_the_scripts_functions(launch):
    script = """
import multiprocessing as mp

def one_more(number):
    return number + 1

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with mp.get_context(method).Pool(1) as pool:
            print(method, pool.map(one_more, [1]))
"""
    done = launch(script)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "fork [2]\nspawn [2]\nforkserver [2]\n"
