"""run.py as typed: real Hydra, real bash, real torchrun; the training script is a stand-in except where
FlagScale itself is named.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.faults.surroundings import memory_group, remove_group
from tests.processes import flagscale as fs
from tests.warm_ranks import make_torchrun_warm

RUN_PY = Path(__file__).parents[2] / "run.py"
DEADLINE_S = 600  # only what hangs takes so long
AQUILA = ["--config-path", "./examples/aquila/conf", "--config-name", "train"]
DATA = "train.data.data_path=../pile_wikipedia_demo/pile_wikipedia_demo"
ANY_SIZE = ["experiment.runner.check_memory=false"]
STAND_IN = """
import json, os, sys, time
with open("starts", "a") as file:
    file.write(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}) + "\\n")
for iteration in (1, 2):
    print(f"iteration {iteration}/ 2 | lm loss: 1.0 |", flush=True)
while os.path.exists("hold"):
    time.sleep(0.02)
sys.exit(int(os.environ.get("EXIT_WITH", "0")))
"""


WAIT_FOR_HOLD = "import os, time\nwhile os.path.exists('hold'):\n    time.sleep(0.02)\n"


@pytest.fixture
def run_py(run_python, tmp_path, tmp_path_factory, monkeypatch):
    """Types `python run.py ARGS...` in tmp_path, where stand_in.py trains and torchrun is warm."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    make_torchrun_warm(tmp_path_factory.mktemp("warm"), monkeypatch)

    def run(*args):
        return run_python(RUN_PY, *args, timeout_s=DEADLINE_S)

    yield run
    (tmp_path / "hold").unlink(missing_ok=True)
    if any(not pid.with_suffix(".exit").exists() for pid in tmp_path.rglob("pids/*.pid")):
        run("action=stop")


@pytest.fixture
def starts(tmp_path):
    """What each start of the stand-in has noted."""

    def read():
        path = tmp_path / "starts"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    return read


@pytest.fixture
def data(tmp_path):
    """Typed: a data set that is there."""
    for suffix in (".bin", ".idx"):
        (tmp_path / f"pile_wikipedia_demo{suffix}").write_text("")
    return "train.data.data_path=pile_wikipedia_demo"


STAND_IN_TASK = ["experiment.task.entrypoint=stand_in.py", "train.system.enable_perf_monitor=false"]


def wait_for(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    "typed",
    [
        [
            "train.system.enable_perf_monitor=true",
            "train.system.perf_log_interval=10",
            "train.system.perf_log_dir=./outputs/logs/perf_monitor",
        ],
        ["train=7b_with_perf_monitor"],
    ],
    ids=["flags", "prepared"],
)
def test_command_lines_of_the_requirement(run_py, starts, tmp_path, typed) -> None:
    result = run_py(*AQUILA, "action=dryrun", *typed, DATA)
    assert (result.returncode, result.stderr) == (0, "")
    script = (tmp_path / "outputs/logs/scripts/host_0_localhost_run.sh").read_text()
    for words in (
        f"--enable-perf-monitor --perf-log-interval 10 --perf-log-dir {tmp_path}/outputs/logs/perf_monitor ",
        "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 ",
        "--data-path ../pile_wikipedia_demo/pile_wikipedia_demo ",
        "-m flagscale_perf.launch /",
        "/flagscale/train/train_gpt.py ",
    ):
        assert words in script
    assert f"bash {tmp_path}/outputs/logs/scripts/host_0_localhost_run.sh" in result.stdout
    assert starts() == []
    assert sorted(os.listdir(tmp_path)) == ["outputs", "stand_in.py"]  # nothing of Hydra's
    assert sorted(path.name for path in (tmp_path / "outputs").rglob("*") if path.is_file()) == [
        "host_0_localhost_run.sh"
    ]


def test_run_starts_the_job_once_and_passes_everything_on(run_py, starts, tmp_path, data) -> None:
    result = run_py(
        *AQUILA, "action=run", "train.system.enable_perf_monitor=true", data,
        "experiment.task.entrypoint=stand_in.py", "experiment.runner.nproc_per_node=1", *ANY_SIZE,
        "+train.model.hostile='$(touch pwned) `touch pwned` \"x\" é'", "+experiment.envs.TOLD='a  $HOME'",
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    (start,) = starts()
    argv = start["argv"]
    assert argv[argv.index("--hostile") + 1] == '$(touch pwned) `touch pwned` "x" é'
    assert argv[argv.index("--data-path") + 1] == "pile_wikipedia_demo"
    assert start["env"]["TOLD"] == "a  $HOME"
    assert start["env"]["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    root = start["env"]["PYTHONPATH"].split(":")[0]
    assert start["env"]["PYTHONPATH"].split(":")[:2] == [root, f"{root}/third_party/Megatron-LM"]
    assert start["cwd"] == str(tmp_path)
    assert not list(tmp_path.rglob("pwned"))
    *_, started, starting, unused, last, status = result.stdout.splitlines()
    assert started.endswith(f"; output: {tmp_path}/outputs/logs/host_0_localhost.output")
    assert starting == "[........................] starting stand_in.py"
    assert unused.startswith("flagscale_perf: nothing was recorded: ")
    assert last == "[########################] iteration 2/2"
    assert status == "the job ended with exit status 0"


HOSTILE = "a b'\"$(touch pwned)`touch pwned`;touch pwned&touch pwned|touch pwned>pwned #\\"
HOSTILE_KEYS = {
    "experiment.exp_dir": f"./{HOSTILE}", "experiment.exp_name": HOSTILE,
    "experiment.task.entrypoint": f"{HOSTILE}.py",
    "experiment.envs.TOLD": HOSTILE, "experiment.runner.rdzv_id": HOSTILE, "experiment.runner.role": HOSTILE,
    "experiment.runner.log_dir": HOSTILE, "train.system.perf_log_dir": f"sub/{HOSTILE}",
    "train.system.logging.tensorboard_dir": HOSTILE,
    "train.system.logging.log_dir": HOSTILE, "train.system.checkpoint.save": f"sub/{HOSTILE}",
    "train.model.any": HOSTILE,
    "train.data.tokenizer_path": HOSTILE, "train.system.logging.wandb_exp_name": HOSTILE,
}  # fmt: skip


def test_hostile_text_in_every_key_at_once_runs_nothing_and_arrives(run_py, starts, tmp_path) -> None:
    conf = yaml.safe_load((RUN_PY.parent / "conf/train.yaml").read_text())
    conf["defaults"] = [
        "_self_",
        {"override hydra/job_logging": "none"},
        {"override hydra/hydra_logging": "none"},
    ]
    conf["train"] = yaml.safe_load((RUN_PY.parent / "conf/train/demo_llama.yaml").read_text())
    conf["train"]["system"]["enable_perf_monitor"] = False
    for path, value in HOSTILE_KEYS.items():
        *outer, key = path.split(".")
        place = conf
        for name in outer:
            place = place[name]
        place[key] = value
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/hostile.yaml").write_text(yaml.safe_dump(conf))
    (tmp_path / "stand_in.py").rename(tmp_path / f"{HOSTILE}.py")
    typed = ["--config-path", str(tmp_path / "conf"), "--config-name", "hostile"]
    result = run_py(*typed)
    assert (result.returncode, result.stderr) == (0, "")
    (start,) = starts()
    exp_dir = f"{tmp_path}/{HOSTILE}"
    given = {
        word: following
        for word, following in zip(start["argv"], start["argv"][1:], strict=False)
        if word.startswith("--")
    }
    assert {flag: given[flag] for flag in ("--any", "--tokenizer-path", "--wandb-exp-name", "--save",
                                           "--perf-log-dir")} == {
        "--any": HOSTILE, "--tokenizer-path": HOSTILE, "--wandb-exp-name": HOSTILE,
        "--save": f"{exp_dir}/sub/{HOSTILE}", "--perf-log-dir": f"{exp_dir}/sub/{HOSTILE}",
    }  # fmt: skip
    assert start["env"]["TOLD"] == HOSTILE
    assert not list(tmp_path.rglob("pwned"))
    assert f"finished, exit status {result.returncode}" in run_py(*typed, "action=query").stdout


def test_exit_status_is_the_jobs_and_each_start_shows_its_own_error_and_iteration(run_py, tmp_path) -> None:
    first = run_py(*STAND_IN_TASK, "+experiment.envs.EXIT_WITH=3")
    assert first.returncode == 1  # torchrun's own for a worker that failed
    assert first.stdout.splitlines()[-1] == "the job ended with exit status 1"
    assert "failed (exitcode: 3)" in first.stdout
    assert run_py("action=query").stdout.splitlines()[:2] == [
        f"{tmp_path}/outputs: finished, exit status 1",
        "iteration 2/2",
    ]
    second = run_py(*STAND_IN_TASK, "+experiment.envs.EXIT_WITH=4")
    assert "failed (exitcode: 4)" in second.stdout and "exitcode: 3" not in second.stdout
    output = tmp_path / "outputs/logs/host_0_localhost.output"
    assert "exitcode: 3" not in output.read_text()
    (earlier,) = output.parent.glob("host_0_localhost.output.*")
    assert "failed (exitcode: 3)" in earlier.read_text()
    (tmp_path / "stand_in.py").write_text("print('starting', flush=True)\n" + WAIT_FOR_HOLD)
    (tmp_path / "hold").touch()
    assert run_py(*STAND_IN_TASK, "experiment.runner.background=true").returncode == 0
    wait_for(lambda: "starting" in output.read_text())
    state, *rest = run_py("action=query").stdout.splitlines()
    assert state.startswith(f"{tmp_path}/outputs: running (pid ") and rest == ["starting"]


def test_a_rank_that_is_killed_is_explained(run_py, tmp_path) -> None:
    (tmp_path / "stand_in.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    lines = run_py(*STAND_IN_TASK).stdout.splitlines()
    assert lines[-1] == "the job ended with exit status 1"
    assert re.match(r"local rank 0 \(pid \d+\) was ended by signal 9 \(SIGKILL\): ", lines[-2])


def test_a_rank_that_the_kernel_kills_for_want_of_memory_is_explained(run_py, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv(fs.warm.SOCKET)  # a warm torchrun's ranks are not in the control group
    (tmp_path / "stand_in.py").write_text("bytes(range(1, 256)) * (16 << 20)\n")  # 4 GiB, all of it touched
    group, limit = memory_group()
    try:
        # Torchrun of a CUDA build has 0.5 GiB: of half the room the stand-in is the largest, which is killed.
        limit.write_text(str(1200 << 20))
        command = shlex.join([sys.executable, str(RUN_PY), *STAND_IN_TASK])
        line = f"echo $$ >{group}/cgroup.procs && exec {command}"
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    finally:
        remove_group(group)
    lines = done.stdout.splitlines()
    assert lines[-1] == "the job ended with exit status 1", done.stdout + done.stderr
    assert "(SIGKILL): out of memory: the kernel killed 1 process of this control group for it;" in lines[-2]


def test_script_can_be_started_by_hand(run_py, starts, tmp_path) -> None:
    assert run_py(*STAND_IN_TASK, "action=dryrun").returncode == 0
    script = tmp_path / "outputs/logs/scripts/host_0_localhost_run.sh"
    done = subprocess.run(
        ["bash", str(script)], cwd="/", capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "iteration 1/ 2 | lm loss: 1.0 |\niteration 2/ 2 | lm loss: 1.0 |\n"
    assert len(starts()) == 1


def test_background_query_refusal_and_stop(run_py, starts, tmp_path) -> None:
    (tmp_path / "hold").touch()
    bystander = subprocess.Popen(
        ["bash", "-c", "exec -a 'torchrun torch.distributed.run' sleep 300"], start_new_session=True
    )
    try:
        started = run_py(*STAND_IN_TASK, "experiment.runner.background=true")
        assert (started.returncode, started.stderr) == (0, "")
        output = tmp_path / "outputs/logs/host_0_localhost.output"
        wait_for(lambda: "iteration 2/" in output.read_text())
        pid = int((tmp_path / "outputs/logs/pids/host_0_localhost.pid").read_text().split()[0])
        assert run_py("action=query").stdout == (
            f"{tmp_path}/outputs: running (pid {pid})\niteration 2/2\niteration 2/ 2 | lm loss: 1.0 |\n"
        )
        second = run_py(*STAND_IN_TASK)
        assert (second.returncode, second.stdout) == (2, "")
        assert second.stderr == (
            f"run.py: experiment.exp_dir: a job of {tmp_path}/outputs is running already (pid {pid}); "
            "stop it with action=stop,"
            " look at it with action=query, or give another experiment.exp_dir\n"
        )
        stopped = run_py("action=stop")
        assert (stopped.returncode, stopped.stdout) == (
            0,
            f"stopped the job of {tmp_path}/outputs (pid {pid})\n",
        )
        assert run_py("action=stop").stdout == f"nothing running in {tmp_path}/outputs\n"
        assert (
            run_py("action=query")
            .stdout.splitlines()[0]
            .startswith(f"{tmp_path}/outputs: stopped by the user, exit status ")
        )
        assert len(starts()) == 1
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_interrupt_leaves_the_job_running(run_py, starts, tmp_path) -> None:
    (tmp_path / "hold").touch()
    command = subprocess.Popen(
        [sys.executable, str(RUN_PY), *STAND_IN_TASK],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: starts())
    os.killpg(command.pid, signal.SIGINT)
    shown, errors = command.communicate(timeout=DEADLINE_S)
    assert (command.returncode, errors) == (130, "")
    pid = (tmp_path / "outputs/logs/pids/host_0_localhost.pid").read_text().split()[0]
    assert shown.splitlines()[-3:] == [
        f"left it running (pid {pid}); output: {tmp_path}/outputs/logs/host_0_localhost.output",
        f"stop it:    python {RUN_PY} experiment.exp_dir={tmp_path}/outputs action=stop",
        f"look at it: python {RUN_PY} experiment.exp_dir={tmp_path}/outputs action=query",
    ]
    assert f"running (pid {pid})" in run_py("action=query").stdout


@pytest.mark.long
def test_a_reader_who_leaves_early_leaves_the_job_running(run_py, tmp_path) -> None:
    code = "import time\nwhile True:\n    time.sleep(0.1)\n    print('flagscale_perf: a line', flush=True)\n"
    (tmp_path / "stand_in.py").write_text(code)
    typed = shlex.join([sys.executable, str(RUN_PY), *STAND_IN_TASK])
    line = f"{typed} | grep -m1 ^started; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    pid = (tmp_path / "outputs/logs/pids/host_0_localhost.pid").read_text().split()[0]
    assert (done.returncode, len(done.stdout.splitlines())) == (141, 1)
    assert done.stderr.splitlines() == [
        "the reader of this output has gone:",
        f"left it running (pid {pid}); output: {tmp_path}/outputs/logs/host_0_localhost.output",
        f"stop it:    python {RUN_PY} experiment.exp_dir={tmp_path}/outputs action=stop",
        f"look at it: python {RUN_PY} experiment.exp_dir={tmp_path}/outputs action=query",
    ]
    assert f"running (pid {pid})" in run_py("action=query").stdout


@pytest.mark.long
def test_nobody_needs_to_read_it(run_py, tmp_path) -> None:
    line = f"{shlex.join([sys.executable, str(RUN_PY), *STAND_IN_TASK])} >&- 2>&-"
    assert subprocess.run(["bash", "-c", line], cwd=tmp_path, timeout=DEADLINE_S, check=False).returncode == 0
    assert run_py("action=query").stdout.startswith(f"{tmp_path}/outputs: finished, exit status 0")


def test_trial(run_py, starts, tmp_path) -> None:
    passed = run_py(
        *STAND_IN_TASK,
        "action=test",
        "train.system.checkpoint.save=ckpt",
        "train.system.logging.log_interval=50",
    )
    assert (passed.returncode, passed.stdout.splitlines()[-1]) == (0, "test passed")
    argv = starts()[0]["argv"]
    assert (argv[argv.index("--exit-interval") + 1], argv[argv.index("--log-interval") + 1]) == ("2", "1")
    assert "--save" not in argv
    assert argv[argv.index("--perf-log-dir") + 1] == f"{tmp_path}/outputs/test/logs/perf_monitor"
    # with the monitor on the stand-in, which is no Megatron, leaves its log empty
    failed = run_py(STAND_IN_TASK[0], "action=test")
    assert (failed.returncode, failed.stdout.splitlines()[-1]) == (
        1,
        (
            "test failed: the job ended well, but "
            f"{tmp_path}/outputs/test/logs/perf_monitor/perf_realtime.log has no line about an iteration"
        ),
    )


@pytest.mark.host
def test_newcomer_types_run_py(run_py, tmp_path) -> None:
    result = run_py("train.model.train_iters=12")
    assert result.returncode == 0, result.stdout + result.stderr
    perf_logs = tmp_path / "outputs/logs/perf_monitor"
    (summary,) = perf_logs.glob("perf_summary_*.json")
    assert json.loads(summary.read_text())["session_info"]["total_iterations"] == 12
    lines = result.stdout.splitlines()
    heading = next(place for place, line in enumerate(lines) if line.startswith("Timestamp "))
    rows = [line for line in lines if line.startswith("20")]
    assert [row.split()[2] for row in rows] == ["5", "10", "12"]
    log = summary.with_name(summary.name.replace("summary", "metrics")).with_suffix(".log").read_text()
    assert [line for line in log.splitlines() if line in {lines[heading], *rows}] == [lines[heading], *rows]
    assert len(lines) <= 60 and "the job ended with exit status 0" in lines
    found, page, following = lines[-3:]
    assert found.startswith("found  ")
    page_file = "outputs/logs/perf_monitor/" + summary.name.replace("summary", "report").replace(
        "json", "html"
    )
    assert page == f"page   {page_file}" and (tmp_path / page_file).is_file()
    command, _, comment = following.removeprefix("next   ").partition("  # ")
    done = subprocess.run(shlex.split(command), cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "Options in force" in done.stdout and comment == "all figures"


@pytest.mark.host
def test_stop_keeps_every_step_but_at_most_the_last(run_py, run_python, tmp_path) -> None:
    started = run_py("train.model.train_iters=3000", "experiment.runner.background=true")
    assert started.returncode == 0, started.stdout + started.stderr
    output, perf_logs = (
        tmp_path / "outputs/logs/host_0_localhost.output",
        tmp_path / "outputs/logs/perf_monitor",
    )
    wait_for(lambda: "iteration       10/" in output.read_text())
    assert run_py("action=stop").returncode == 0
    wait_for(lambda: fs.records(perf_logs, "end"))  # the writer outlives the job by a moment
    steps = [record["iteration"] for record in fs.records(perf_logs)]
    printed = int(fs.ITERATION.findall(output.read_text())[-1][0])
    assert steps == list(range(1, len(steps) + 1)) and printed - 1 <= len(steps) <= printed + 1
    summary = fs.summary(perf_logs)["session_info"]
    assert (summary["end_reason"], summary["total_iterations"]) == ("stopped by the user", len(steps))
    assert run_py("action=query").stdout.startswith(f"{tmp_path}/outputs: stopped by the user, exit status ")
    report = run_python("-m", "flagscale_perf", "report", perf_logs, "--full")
    assert "stopped by the user" in report.stdout


@pytest.mark.host
def test_sigterm_from_elsewhere_is_no_stop_by_the_user(run_py, tmp_path) -> None:
    assert run_py("train.model.train_iters=3000", "experiment.runner.background=true").returncode == 0
    logs = tmp_path / "outputs/logs"
    wait_for(lambda: "iteration        5/" in (logs / "host_0_localhost.output").read_text())
    os.killpg(int((logs / "pids/host_0_localhost.pid").read_text().split()[0]), signal.SIGTERM)
    wait_for(lambda: fs.records(logs / "perf_monitor", "end"))
    assert fs.records(logs / "perf_monitor", "end")[0]["reason"] == "killed"
    wait_for((logs / "pids/host_0_localhost.exit").exists)
    query = run_py("action=query").stdout
    assert query.startswith(f"{tmp_path}/outputs: finished, exit status ")


@pytest.mark.host
@pytest.mark.usefixtures("run_py")
def test_the_integration_test(tmp_path) -> None:
    script = RUN_PY.parent / "test_perf_monitor.sh"
    done = subprocess.run(
        [script], cwd=tmp_path, env=os.environ | {"PYTHON": sys.executable}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "test passed"
