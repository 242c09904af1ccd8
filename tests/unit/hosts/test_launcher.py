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
    assert done.stdout.startswith(
        "usage: python -m flagscale_perf.launch SCRIPT ARGS..., or -m MODULE ARGS...\n"
    )


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


WHERE = "import sys; print(__name__, sys.argv[1:], bool(sys.path[0]) and sys.path[0])"


def test_a_module_a_command_a_link_and_a_script_without_suffix_run_as_python_runs_them(
    run_python, tmp_path, monkeypatch
):
    real = tmp_path / "real"
    (real / "host").mkdir(parents=True)
    for name in ("host/__main__.py", "host/train.py", "train"):
        (real / name).write_text(f"#!/usr/bin/env python3\n{WHERE}")
    (real / "train").chmod(0o755)
    (tmp_path / "linked.py").symlink_to(real / "train")
    monkeypatch.setenv("PATH", f"{real}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{real}:{REPO}")
    for words in (["-m", "host"], ["-m", "host.train"], ["linked.py"], ["real/train"]):
        alone = run_python(*words, "--x")
        hooked = run_python("-m", "flagscale_perf.launch", *words, "--x")
        assert (hooked.stdout, hooked.stderr) == (alone.stdout, ""), words
    assert run_python("-m", "flagscale_perf.launch", "train", "--x").stdout == f"__main__ ['--x'] {real}\n"


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["-c", "pass"], "-c: code has no file that a worker could import; write it into a script"),
        (
            ["-m", "absent.train"],
            "training module 'absent.train' is not found; give its name as in `import`, from sys.path",
        ),
        (["absent"], "training script 'absent' is not a file; give its path from {here}"),
        (["./run.sh"], "'./run.sh' is not written in Python; give the Python script that it runs"),
        (
            ["torchrun", "train.py"],
            "'torchrun' starts the training in processes of its own, where the hooks must be; write torchrun"
            " ... -m flagscale_perf.launch SCRIPT ARGS...",
        ),
    ],
)
def test_what_cannot_be_hooked_is_refused(run_python, tmp_path, words, refusal):
    (tmp_path / "run.sh").write_text("#!/bin/bash\necho")
    done = run_python("-m", "flagscale_perf.launch", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"flagscale_perf: error: {refusal.format(here=tmp_path)}\n"
