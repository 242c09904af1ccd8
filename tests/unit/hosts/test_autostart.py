"""`enable` writes one line into an environment, which installs the hooks in workers alone; `disable` removes
it.
"""

import os
import subprocess
import sys

import pytest

from flagscale_perf.hosts import autostart
from flagscale_perf.spine.errors import PerfError

ON = "--enable-perf-monitor"
UNUSED = (
    "nothing was recorded: the script ended without entering a training loop that the monitor knows"
    " (flagscale-perf doctor lists them)"
)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(autostart, "pth_path", lambda: tmp_path / autostart.PTH_NAME)
    return tmp_path


def test_enable_and_disable_are_idempotent(elsewhere):
    assert not autostart.is_enabled()
    assert autostart.enable() == autostart.enable() == elsewhere / autostart.PTH_NAME
    assert autostart.is_enabled()
    assert [path.name for path in elsewhere.iterdir()] == [autostart.PTH_NAME]
    assert autostart.disable() == elsewhere / autostart.PTH_NAME
    assert autostart.disable() is None
    assert list(elsewhere.iterdir()) == []


def test_an_environment_that_cannot_be_written_is_named(elsewhere, monkeypatch):
    monkeypatch.setattr(autostart, "pth_path", lambda: elsewhere / "missing" / autostart.PTH_NAME)
    with pytest.raises(PerfError, match="cannot write .*No such file"):
        autostart.enable()


LOADED = "import sys; print(sorted(m for m in sys.modules if m.startswith('flagscale_perf')))"


def run_with_pth(tmp_path, *words, **environ):
    """A Python whose site-packages hold the .pth line: `site.addsitedir` runs it as start-up does."""
    (tmp_path / autostart.PTH_NAME).write_text(autostart.PTH_LINE)
    (tmp_path / "usercustomize.py").write_text("")
    site = tmp_path / "sitecustomize.py"
    site.write_text(f"import site; site.addsitedir({str(tmp_path)!r}); site.addsitedir({str(tmp_path)!r})")
    root = os.path.dirname(os.path.dirname(autostart.__file__.replace("/hosts/", "/")))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), root]), **environ}
    return subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, timeout=60)


def test_the_line_loads_nothing_for_others(tmp_path):
    script = tmp_path / "other.py"
    script.write_text(LOADED)
    assert run_with_pth(tmp_path, str(script)).stdout == "[]\n"


# A host that says how many finders of ours there are, and whether torch was loaded for them.
HOST = (
    "import sys; print([type(f).__name__ for f in sys.meta_path].count('ImportHook'), 'torch' in sys.modules)"
)


@pytest.mark.parametrize(
    "words",
    [
        ["train_gpt.py", ON],
        ["./linked", ON],
        ["bin/train", ON],
        ["-m", "of_host.train", ON],
        ["-um", "of_host", ON],
        ["-m", "flagscale.train.train_gpt", ON],
        ["-c", "import megatron", ON],
    ],
)
def test_the_hooks_are_there_when_the_host_is_imported_however_it_is_started(tmp_path, monkeypatch, words):
    for name in ("megatron", "of_host", "bin", "flagscale/train"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "megatron" / "__init__.py").write_text(HOST)
    for name in (
        "train_gpt.py",
        "bin/train",
        "of_host/__main__.py",
        "of_host/train.py",
        "flagscale/train/train_gpt.py",
    ):
        (tmp_path / name).write_text("import megatron")
    (tmp_path / "linked").symlink_to(tmp_path / "train_gpt.py")
    monkeypatch.chdir(tmp_path)
    result = run_with_pth(tmp_path, *words, FLAGSCALE_PERF_REHEARSE_ON_CPU="never")
    assert (result.stdout, result.stderr) == ("1 False\n", f"flagscale_perf: {UNUSED}\n")


@pytest.mark.parametrize("module", autostart._HOSTS)
def test_the_hooks_are_there_before_each_host(tmp_path, module):
    place = tmp_path.joinpath(*module.split("."))
    place.mkdir(parents=True)
    for parent in (place, *place.parents[: module.count(".")]):
        (parent / "__init__.py").write_text(HOST if parent == place else "")
    never = {"FLAGSCALE_PERF_REHEARSE_ON_CPU": "never"}
    assert run_with_pth(tmp_path, "-c", f"import {module}", ON, **never).stdout == "1 False\n"


def test_before_the_host_is_imported_a_worker_has_nothing_but_a_finder(tmp_path):
    result = run_with_pth(tmp_path, "-c", LOADED, ON)
    assert "flagscale_perf.hosts.autostart" in result.stdout
    assert "flagscale_perf.hosts.install" not in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import megatron", True),
        ("import megatron; raise SystemExit(0)", True),
        ("import megatron, sys; sys.exit()", True),
        ("import megatron, sys; sys.exit(1)", False),
        ("import megatron, argparse; argparse.ArgumentParser().parse_args()", False),  # ON is unknown to it
        ("pass", False),
        ("import megatron; raise ValueError('own fault')", False),
    ],
)
def test_a_megatron_script_without_a_known_loop_is_told_at_its_end(tmp_path, code, said):
    (tmp_path / "megatron").mkdir()
    script = tmp_path / "train_gpt.py"
    script.write_text(code)
    result = run_with_pth(tmp_path, str(script), ON, FLAGSCALE_PERF_REHEARSE_ON_CPU="never")
    assert ("flagscale_perf: nothing was recorded" in result.stderr) is said


HOOKED = "import sys; print([type(f).__name__ for f in sys.meta_path].count('ImportHook'))"


@pytest.mark.parametrize(
    ("variables", "hooks", "said"),
    [
        ({"TQ_TRACE_ENABLED": "1"}, 1, ""),
        ({"TQ_TRACE_DETAIL_ENABLED": "true"}, 1, ""),
        ({"TQ_TRACE_ENABLED": "0"}, 0, ""),
        ({"TQ_TRACE_ENABLED": "false"}, 0, ""),
        ({"TQ_TRACE_ENABLED": "perhaps"}, 0, "is neither true nor false; write true or false"),
    ],
)
def test_the_line_traces_a_queue_where_the_environment_says_so(tmp_path, variables, hooks, said):
    result = run_with_pth(tmp_path, "-c", HOOKED, **variables)
    assert result.stdout == f"{hooks}\n"
    assert (said in result.stderr) if said else not result.stderr
