"""The job's shell script passes every value byte by byte, executes none and keeps the exit status."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flagscale_perf.launcher.config import read_job
from flagscale_perf.launcher.job import render, write_script
from flagscale_perf.launcher.plan import make_plan
from flagscale_perf.spine.errors import PerfError

HOSTILE = [
    *("a b", "it's", 'say "hi"', "$(touch pwned)", "`touch pwned`", "x; touch pwned"),
    *("x && touch pwned", "x | tee pwned", "> pwned", "$HOME", "${HOME}", "a\nb", "touch pwned\n"),
    *("a\tb", "a\rb", "\\", "\\n", "x\\", "*", "?", "~", "!x", "#x", "(a)", "{a,b}", "--", "-x"),
    *("--help", "", " ", "é", "数据", "\u202e", "🙂", "\x01\x7f\x1b[2J", "'$(touch pwned)'"),
    *('"; touch pwned; "', "%s", "a=b", "&", "\udcff"),
]


@pytest.fixture
def seen(config, tmp_path):
    """Runs the plan's script through the real bash; its "python" notes its arguments and environment byte by
    byte.
    """
    python = tmp_path / "noting_python"
    python.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys\n"
        "seen = {'argv': [a.encode('utf-8', 'surrogateescape').hex() for a in sys.argv[1:]], 'cwd': "
        "os.getcwd(),\n"
        "        'env': {k.decode(): v.hex() for k, v in os.environb.items() if k.isascii()}}\n"
        "json.dump(seen, open(os.environ['SEEN'], 'w'))\n"
    )
    python.chmod(0o755)
    config["experiment"]["task"]["python"] = str(python)

    def run(cwd=str(tmp_path)):
        plan = make_plan(read_job(config, cwd), {})
        done = subprocess.run(
            ["bash", write_script(plan)],
            env={"PATH": os.environ["PATH"], "SEEN": str(tmp_path / "seen.json")},
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        return plan, json.loads((tmp_path / "seen.json").read_text())

    return run


def hexed(texts):
    return [os.fsencode(text).hex() for text in texts]


def test_hostile_values_arrive_byte_by_byte_and_run_nothing(config, seen, tmp_path) -> None:
    config["train"]["model"] = {f"option_{index}": value for index, value in enumerate(HOSTILE)}
    config["experiment"]["envs"] = {f"VARIABLE_{index}": value for index, value in enumerate(HOSTILE)}
    plan, found = seen()
    assert found["argv"] == hexed(plan.command[1:])
    arguments = plan.command[plan.command.index("--option-0") :]
    for index, value in enumerate(HOSTILE):
        flag = f"--option-{index}"
        assert f"{flag}={value}" in arguments or arguments[arguments.index(flag) + 1] == value
        assert found["env"][f"VARIABLE_{index}"] == os.fsencode(value).hex()
    assert not list(tmp_path.rglob("pwned"))


@given(value=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_arrives(config, seen, value) -> None:
    config["train"]["model"] = {"option": value} if value != "???" else {}
    config["experiment"]["envs"] = {"VARIABLE": value} if value != "???" else {}
    plan, found = seen()
    assert found["argv"] == hexed(plan.command[1:])
    if value != "???":
        assert found["env"]["VARIABLE"] == os.fsencode(value).hex()


@pytest.mark.parametrize("name", ["a b", "$(touch pwned)", "it's", "-x", '"', "`touch pwned`"])
def test_hostile_directories(config, seen, tmp_path, name) -> None:
    (tmp_path / name).mkdir()
    config["experiment"]["exp_dir"] = name
    plan, found = seen(str(tmp_path / name))
    assert plan.job.paths.exp_dir == str(tmp_path / name / name)
    assert found["cwd"] == str(tmp_path / name)
    assert not list(tmp_path.rglob("pwned"))


def test_command_of_the_user_runs_first_and_as_it_is(config, seen) -> None:
    config["experiment"]["cmds"]["before_start"] = (
        "FROM_SHELL=$(echo a; echo b)\nexport FROM_SHELL UNSET_IS_FINE=$NOT_THERE"
    )
    config["experiment"]["envs"] = {"GONE": None, "OVER": "config"}
    config["experiment"]["cmds"]["before_start"] += "\nexport GONE=here OVER=shell"
    _, found = seen()
    assert found["env"]["FROM_SHELL"] == b"a\nb".hex()
    assert found["env"]["OVER"] == b"config".hex()
    assert "GONE" not in found["env"]


def test_search_path(config, seen, tmp_path) -> None:
    plan, found = seen()
    assert found["env"]["PYTHONPATH"] == os.pathsep.join(plan.pythonpath).encode().hex()


def test_failing_command_of_the_user_ends_the_job_with_its_status(config) -> None:
    config["experiment"]["cmds"]["before_start"] = "(exit 7)"
    config["experiment"]["task"]["python"] = "/bin/false"
    assert (
        subprocess.run(["bash", write_script(make_plan(read_job(config, "/"), {}))], check=False).returncode
        == 7
    )


def test_exit_status_is_the_jobs(config) -> None:
    config["experiment"]["task"]["python"] = "/bin/false"
    assert (
        subprocess.run(["bash", write_script(make_plan(read_job(config, "/"), {}))], check=False).returncode
        == 1
    )


def test_whole_script(config, tmp_path) -> None:
    config["experiment"]["envs"] = {"A": "it's"}
    config["experiment"]["cmds"]["before_start"] = "source env.sh"
    plan = make_plan(read_job(config, "/some where"), {})
    root = tmp_path / "FlagScale"
    assert render(plan) == (
        "#!/usr/bin/env bash\n"
        "# Written by run.py; written anew by every action=run, test and dryrun.\n"
        "set -eu\n"
        "cd -- '/some where'\n"
        "set +u  # activation scripts of environments rarely stand `set -u`\n"
        "source env.sh\n"
        "set -eu\n"
        "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"
        "export A='it'\"'\"'s'\n"
        f"export PYTHONPATH={':'.join(plan.pythonpath)}${{PYTHONPATH:+:${{PYTHONPATH}}}}\n"
        "exec -- /usr/bin/python3 -m torch.distributed.run --standalone --nproc_per_node 2 -m "
        "flagscale_perf.launch"
        f" {root}/flagscale/train/train_gpt.py --enable-perf-monitor --num-layers 2 --perf-log-dir "
        f"{tmp_path}/exp/logs/perf_monitor\n"
    )


def test_command_of_the_user_that_is_not_whole_is_refused(config, tmp_path) -> None:
    config["experiment"]["cmds"]["before_start"] = "echo 'never closed"
    plan = make_plan(read_job(config, "/"), {})
    with pytest.raises(
        PerfError, match=r"^experiment.cmds.before_start: .* is not whole bash code: .*; mend its quotes$"
    ):
        write_script(plan)
    assert os.listdir(os.path.dirname(plan.job.paths.script)) == []


def test_directory_that_takes_no_script_is_refused(config) -> None:
    plan = make_plan(read_job(config, "/"), {})
    os.makedirs(plan.job.paths.script)
    with pytest.raises(
        PerfError,
        match=r"^experiment.exp_dir: cannot write .*: Is a directory; give a directory that can be written$",
    ):
        write_script(plan)


@pytest.mark.parametrize("python", ["-a", "-c", "--", "-x y", "$(touch pwned)", "A=b"])
def test_a_python_that_is_none_runs_nothing_else(config, tmp_path, python) -> None:
    config["experiment"]["task"]["python"] = python
    done = subprocess.run(
        ["bash", write_script(make_plan(read_job(config, str(tmp_path)), {}))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 127
    assert f"exec: {python}: not found" in done.stderr
    assert not list(tmp_path.rglob("pwned"))
