"""Where a profile is read from."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.profile.analysis.source import UNKNOWN, Profile, read_profile
from flagscale_perf.spine.peers.records import ProcessRecord
from tests.profile_runs import MS, make_profile, make_profile_header
from tests.run_files import left_behind


def test_ranks_have_columns_with_names(profile: Profile) -> None:
    first = profile.ranks[0]
    assert [rank.title for rank in profile.ranks] == ["rank 0", "rank 1"]
    assert (first.place["host"], first.place["model"], first.place["tensor"], first.place["expert"]) == (
        "megatron",
        "GPTModel",
        0,
        None,
    )
    assert first.rows["module"][:2].tolist() == ["model.embed_tokens", "model.layers.0.self_attn.q_proj"]
    assert first.rows["self_ns"].sum() == 198 * MS
    assert first.profiled["total_ns"].tolist() == [100 * MS, 102 * MS]
    assert first.clean["total_ns"].tolist() == [96 * MS, 98 * MS]
    assert profile.phases() == ["train"]


def test_what_is_not_known_is_told_apart(profile: Profile) -> None:
    rows = profile.ranks[0].rows
    assert rows["flops"][0] == UNKNOWN
    assert not rows.known("flops")[0]
    assert rows.total("flops") == 9_200_000_000
    assert rows.total("device_ns") is None
    assert next(rows.records())["flops"] is None


def test_how_the_run_ended_and_what_is_lost(tmp_path: Path) -> None:
    job = make_profile()
    job.records.append(ProcessRecord(1, 4000, "rank 0", 0, "gone", 3, 2))
    profile = read_profile(open_session(left_behind(job.write(tmp_path, end=None))))
    assert (profile.session.state, profile.lost) == ("killed", 2)


def test_another_machines_ranks_are_put_on_one_clock(tmp_path: Path) -> None:
    path = make_profile().write(tmp_path)
    header = make_profile_header(
        "20240129_103001",
        host="node1",
        boot_id="b",
        start_mono_ns=1000 * MS,
    )
    make_profile(world_size=4).write(tmp_path, header)
    profile = read_profile(open_session(path))
    assert profile.session.machines == ["node0", "node1"]
    assert [rank.steps["start_ns"][0] for rank in profile.ranks] == [0, -1000 * MS, 0, -1000 * MS]
