"""A model with random weights, profiled in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.profile.analysis.instrument import read_report
from flagscale_perf.profile.standalone.model import Run
from flagscale_perf.profile.standalone.run import profile
from flagscale_perf.spine.errors import PerfError
from tests.conftest import RunPython
from tests.members import finished
from tests.processes.flagscale import AGENT
from tests.warm_ranks import warm_environment

SMALL = {
    "model_type": "qwen3",
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
}


def _run(tmp_path: Path, mode: str) -> Run:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(SMALL))
    return Run(tmp_path / "model", 2, 1, 8, 1, 64, mode, tmp_path / "run")


@pytest.mark.parametrize(("mode", "phases"), [("train", {"train"}), ("generate", {"prefill", "decode"})])
def test_steps_of_a_local_configuration(
    tmp_path: Path, run_python: RunPython, mode: str, phases: set[str]
) -> None:
    run, script = _run(tmp_path, mode), tmp_path / "script.py"
    script.write_text(f"""
from pathlib import Path
from flagscale_perf.profile.standalone import run
run.ROOF_S = 0.01  # nothing here is held against them
run.profile(run.Run(Path({str(run.model)!r}), 2, 1, 8, 1, 64, {mode!r}, Path({str(run.directory)!r})))
""")
    done = run_python(AGENT, "as-it-is", script, env=warm_environment())
    assert (done.returncode, "deprecated" in done.stderr) == (0, False), done.stderr
    finished(run.directory)
    found = read_report(open_session(run.directory))
    assert set(found.sums) == phases
    for sums in found.sums.values():
        assert [place.name for place in sums.places if place.number is not None] == ["layer 0", "layer 1"]
        assert {"matmul", "attention", "activation", "embedding", "host"} <= set(sums.kinds)


def test_more_tokens_than_the_model_is_made_for(tmp_path: Path) -> None:
    with pytest.raises(PerfError, match="--num-tokens 8 is more than --max-seq-len 4; raise the latter"):
        profile(Run(None, 1, 1, 8, 1, 4, "train", tmp_path))


def test_a_configuration_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(PerfError, match="no model can be made of it"):
        profile(Run(tmp_path, 1, 1, 8, 1, 64, "train", tmp_path))
