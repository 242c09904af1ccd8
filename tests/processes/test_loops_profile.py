"""Loops beside FlagScale's, profiled: a plain one of Megatron-Core, and Megatron-Bridge's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import flagscale as fs
from tests.processes import test_bridge as bridge
from tests.processes import test_core_loop_example as core
from tests.processes.profiled_shapes import BOTH, profiles, sessions

pytestmark = pytest.mark.host

ROWS = {(layer, part) for layer in (0, 1) for part in BOTH}


def check(directory: Path, ranks: int, tokens: int) -> None:
    """Of two layers on each rank; one step profiled, one clean."""
    found = profiles(sessions(directory)["profile"])
    assert sorted(found) == list(range(ranks))
    for profile in found.values():
        assert profile.rows == ROWS
        assert profile.windows == [(1, 1, 0)]
        assert [(step["iteration"], step["is_profiled"], step["tokens"]) for step in profile.steps] == [
            (3, 1, tokens), (4, 0, tokens),
        ]  # fmt: skip
        profile.check_books()


def test_a_plain_loop_of_megatron_core(tmp_path: Path) -> None:
    words = ["--train-iters", "6"]
    off = core.train(tmp_path, 1, core.NEWER_CORE, *words)
    monitor = ["--enable-perf-monitor", "--perf-log-dir", "perf", "--perf-profile-steps", "3"]
    on = core.train(tmp_path, 1, core.NEWER_CORE, *words, *monitor)
    assert (off.returncode, on.returncode) == (0, 0), off.output[-3000:] + on.output[-3000:]
    assert len(core.losses(on)) == 6 and core.losses(on) == core.losses(off)
    check(tmp_path / "perf", 1, 4 * 64)
    (profile,) = profiles(sessions(tmp_path / "perf")["profile"]).values()
    assert {("DP", "all_reduce"), ("TP", "all_reduce")} <= set(profile.collectives)


def test_megatron_bridge(tmp_path: Path) -> None:
    options = {"train_iters": 6, "eval_interval": 100}
    (tmp_path / "off").mkdir()
    (tmp_path / "on").mkdir()
    off = bridge.train(tmp_path / "off", 1, options)
    on = bridge.train(tmp_path / "on", 1, options, **bridge.ON | {"FLAGSCALE_PERF_PROFILE_STEPS": "3"})
    assert (off.returncode, on.returncode) == (0, 0), off.output[-3000:] + on.output[-3000:]
    losses = fs.host_losses(tmp_path / "on" / "tb")
    assert len(losses) == 6 and losses == fs.host_losses(tmp_path / "off" / "tb")
    check(tmp_path / "on" / "perf", 1, 4 * 64)
