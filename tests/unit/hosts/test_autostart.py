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


def test_the_line_installs_the_hooks_in_a_worker_once(tmp_path):
    script = tmp_path / "train_gpt.py"
    script.write_text(
        "import sys; print([type(f).__name__ for f in sys.meta_path].count('ImportHook'), 'torch' in "
        "sys.modules)"
    )
    result = run_with_pth(tmp_path, str(script), ON)
    assert (result.stdout, result.stderr) == ("1 False\n", "")


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
