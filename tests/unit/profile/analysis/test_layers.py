"""Which layer a module belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.profile.analysis.layers import Place, Places, number_of, ordered, short, within
from flagscale_perf.profile.analysis.source import Profile, read_profile
from tests.profile_runs import Profiled, add_rank


@pytest.mark.parametrize(
    ("module", "number", "rest"),
    [
        ("model.layers.3.self_attn.q_proj", 3, "self_attn.q_proj"),
        ("decoder.layers.12", 12, ""),
        ("transformer.h.0.attn", 0, "attn"),
        ("layers.7.mlp.experts.layers.2", 7, "mlp.experts.layers.2"),
        ("model.embed_tokens", None, ""),
        ("", None, ""),
    ],
)
def test_by_path(module: str, number: int | None, rest: str) -> None:
    assert (number_of(module), within(module)) == (number, rest)


def test_places_in_the_order_of_the_model(profile: Profile) -> None:
    places = Places(profile)
    names = ["lm_head", "", "model.layers.1.mlp", "model.norm", "model.layers.0", "model.embed_tokens"]
    found = ordered(places.of(name, 0) for name in names)
    assert [place.name for place in found] == [
        *("embed_tokens", "layer 0", "layer 1", "norm", "lm_head", "outside"),
    ]


def test_a_later_pipeline_stages_layers_follow(tmp_path: Path) -> None:
    job = Profiled()
    add_rank(job, 0, pipeline=0, pipeline_size=2)
    add_rank(job, 1, pipeline=1, pipeline_size=2)
    places = Places(read_profile(open_session(job.write(tmp_path))))
    assert places.of("decoder.layers.1.mlp", 0) == Place(2, 1, "layer 1")
    assert places.of("decoder.layers.1.mlp", 1) == Place(4, 3, "layer 3")


def test_short_names() -> None:
    assert short("model.embed_tokens") == "embed_tokens"
    assert short("model") == "model"
