"""`flagscale-perf enable`, then FlagScale's own run.py and runner with one rank; `disable`, and nothing of
ours is left.
"""

import subprocess

import pytest

from tests.processes import flagscale as fs
from tests.processes.runners import flagscale_perf, python_of_its_own, start_and_wait, write_configuration

pytestmark = [pytest.mark.host, pytest.mark.long]


@pytest.fixture
def python(tmp_path):
    return python_of_its_own(tmp_path / "env")


def run_py(python, tmp_path, *overrides):
    """FlagScale's own run.py; returns what the job printed, when it has ended."""
    conf, exp_dir = tmp_path / "conf", tmp_path / "enabled"
    write_configuration(conf, exp_dir, "flagscale/train/train_gpt.py", 8, ranks=1)
    words = [fs.root() / "run.py", "--config-path", conf, "--config-name", "train", "action=run", *overrides]
    return start_and_wait(python, words, tmp_path, exp_dir, str(fs.root()))


def test_flagscales_own_runner_understands_the_flag_until_disabled(python, tmp_path):
    assert "off" in flagscale_perf(python, "doctor").split("activation", 1)[1].splitlines()[0]
    assert flagscale_perf(python, "enable").startswith("enabled: ")
    assert flagscale_perf(python, "enable").startswith("already enabled: ")
    doctor = flagscale_perf(python, "doctor")
    assert "FlagScale 0.8.0" in doctor
    assert "MISSING  " not in doctor[doctor.index("\nhost") :]

    perf = tmp_path / "perf"
    monitor = [
        "+train.system.enable_perf_monitor=true",
        "+train.system.perf_log_interval=2",
        f"+train.system.perf_log_dir={perf}",
    ]
    output = run_py(python, tmp_path, *monitor)
    assert "iteration        8/       8" in output, output[-3000:]
    fs.wait_until(lambda: bool(fs.records(perf, "end")), "the end of the run file")
    assert [step["iteration"] for step in fs.records(perf)] == list(range(1, 9))
    assert fs.records(perf, "header")[0]["facts"]["world_size"] == 1
    assert (perf / "perf_realtime.log").read_text().count("\n20") == 4

    assert flagscale_perf(python, "disable").startswith("disabled: ")
    assert flagscale_perf(python, "disable").startswith("already disabled")
    script = tmp_path / "train_gpt.py"
    script.write_text(
        "import sys; print([name for name in sys.modules if name.startswith('flagscale_perf')])"
    )
    left = subprocess.run(
        [python, script, "--enable-perf-monitor"], capture_output=True, text=True, check=True
    )
    assert left.stdout == "[]\n"
