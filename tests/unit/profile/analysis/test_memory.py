"""Memory of the forward pass as a tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.profile.analysis import memory
from flagscale_perf.profile.analysis.memory import Held, memory_of
from flagscale_perf.profile.analysis.source import Profile, read_profile
from flagscale_perf.profile.records import MemoryRecord
from tests.profile_runs import FORWARD, Profiled, make_profile

MB = 1_000_000
# what is called before what it contains, as a profiler sees it
AROUND = (
    *("GPTModel", "model", "model.embed_tokens", "model.layers.0.self_attn"),
    *("model.layers.0.self_attn.q_proj", "model.layers.1.self_attn", "model.layers.1.mlp", "lm_head"),
)


def _hold(job: Profiled, process: int, module: str, peak: int) -> None:
    what = dict(window=1, step_phase="train", phase=FORWARD, module=module, op="", allocations=1)
    held = dict(allocated_bytes=MB, retained_bytes=MB, transient_bytes=0, largest_bytes=MB)
    job.add(MemoryRecord, process, **what, **held, peak_bytes=peak * MB)


def _nested() -> Profiled:
    job = make_profile()
    for place, module in enumerate(AROUND):
        for process in (1, 2):
            _hold(job, process, module, 20 - place + process)
    return job


def test_memory_is_that_of_the_rank_with_the_highest_peak(profile: Profile) -> None:
    assert memory_of(profile) == [Held("layer 0", 0, 3e6, 2e6, 9e6), Held("layer 1", 0, 1e6, 2e6, 7e6)]


def test_a_module_stands_below_what_contains_it_with_one_level_in_a_layer(tmp_path: Path) -> None:
    made = memory_of(read_profile(open_session(_nested().write(tmp_path))))
    assert [one.label for one in made] == [
        *("GPTModel", "· model", "· · embed_tokens", "· · layer 0", "· · · self_attn"),
        *("· · layer 1", "· · · self_attn", "· · · mlp", "· lm_head"),
    ]
    assert made[0].peak_bytes == 22 * MB  # of rank 1


def test_each_chunk_of_a_stage_stands_below_its_own_model(tmp_path: Path) -> None:
    job = make_profile()
    job.records = [each for each in job.records if not isinstance(each, MemoryRecord)]
    for module in ("0.GPTModel", "0.decoder.layers.0", "1.GPTModel", "1.decoder.layers.1", "1.output_layer"):
        _hold(job, 1, module, 20)
    labels = [one.label for one in memory_of(read_profile(open_session(job.write(tmp_path))))]
    assert labels == ["0.GPTModel", "· layer 0", "1.GPTModel", "· layer 1", "· 1.output_layer"]


def test_what_is_in_layers_is_left_out_where_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "MOST_ROWS", 8)
    made = memory_of(read_profile(open_session(_nested().write(tmp_path))))
    names = ["GPTModel", "model", "embed_tokens", "layer 0", "layer 1", "lm_head"]
    assert [each.name for each in made] == names
