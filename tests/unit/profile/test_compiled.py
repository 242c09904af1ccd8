"""Layers in a region of compiled code, by events that a reader can lay out."""

from __future__ import annotations

from collections import defaultdict

import pytest
from torch import nn

from flagscale_perf.profile.attribution import Attribution
from flagscale_perf.profile.compiled import GRAPH, REGION, attention_paths, layer_of, layered
from flagscale_perf.profile.events import Events
from flagscale_perf.profile.pieces import Pieces
from flagscale_perf.profile.records import Sort
from flagscale_perf.profile.rows import rows_of
from tests.profiled_events import Event, events_of, module, step

PATHS = ["model.layers.0.self_attn.attn", "model.layers.1.self_attn.attn"]
CALL = f"{GRAPH} None ##"
MM, CACHE, ATTENTION = "_C::onednn_mm", "vllm::unified_kv_cache_update", "vllm::unified_attention_with_output"
REDUCE = "_C::shm_allreduce"

# Two layers of one product before attention and two after it; what is no operator is compiled code.
ONE_RANK = [
    Event(CALL, 10, 90),
    Event(MM, 15, 20),
    Event(CACHE, 22, 24),
    Event(ATTENTION, 25, 30),
    Event(MM, 31, 34),
    Event(MM, 36, 40),
    Event(MM, 45, 50),
    Event(CACHE, 52, 54),
    Event(ATTENTION, 55, 60),
    Event(MM, 61, 64),
    Event(MM, 66, 80),
]


def times(events: Events) -> dict[tuple[str, str, str], int]:
    """Microseconds of each (module, sort, operator)."""
    found: dict[tuple[str, str, str], int] = defaultdict(int)
    places = Attribution(events)
    for key, row in rows_of(events, places, Pieces.of(events, places)).rows.items():
        found[key.module, Sort(key.sort).name.lower(), key.op] += row.self_ns // 1000
    return {key: value for key, value in found.items() if value}


def test_a_layer_ends_with_its_last_product() -> None:
    events = events_of([step(100), module("Qwen3ForCausalLM", 5, 95), *ONE_RANK])
    assert times(layered(events, PATHS)) == {
        ("", "host", ""): 10,
        ("Qwen3ForCausalLM", "host", ""): 10,
        ("Qwen3ForCausalLM", "operator", CALL): 10,  # from 80: the last normalisation
        ("model.layers.0", "operator", REGION): 5 + 2 + 1 + 2,
        ("model.layers.0", "operator", MM): 5 + 3 + 4,
        ("model.layers.0.self_attn.attn", "host", ""): 1,
        ("model.layers.0.self_attn.attn", "operator", CACHE): 2,
        ("model.layers.0.self_attn.attn", "operator", ATTENTION): 5,
        ("model.layers.1", "operator", REGION): 5 + 2 + 1 + 2,
        ("model.layers.1", "operator", MM): 5 + 3 + 14,
        ("model.layers.1.self_attn.attn", "host", ""): 1,
        ("model.layers.1.self_attn.attn", "operator", CACHE): 2,
        ("model.layers.1.self_attn.attn", "operator", ATTENTION): 5,
    }


def test_the_collective_behind_the_last_product_is_the_layers() -> None:
    """And what comes before one ahead of the first product is the embedding's."""
    events = events_of(
        [
            step(100),
            Event(CALL, 0, 100),
            Event(REDUCE, 2, 10),
            Event(MM, 15, 20),
            Event(ATTENTION, 25, 30),
            Event(MM, 31, 34),
            Event(REDUCE, 35, 50),
            Event(MM, 55, 60),
            Event(ATTENTION, 65, 70),
            Event(MM, 71, 74),
            Event(REDUCE, 76, 90),
        ]
    )
    found = times(layered(events, PATHS))
    assert found["", "operator", CALL] == 2 + 10
    assert found["", "communication", REDUCE] == 8
    assert found["model.layers.0", "communication", REDUCE] == 15
    assert found["model.layers.0", "operator", REGION] == 5 + 5 + 1 + 1
    assert found["model.layers.1", "communication", REDUCE] == 14
    assert found["model.layers.1", "operator", REGION] == 5 + 5 + 1 + 2


def test_where_layers_have_products_of_their_own_number_attention_alone_tells_them() -> None:
    events = events_of([step(100), *ONE_RANK, Event(MM, 81, 83)])
    found = times(layered(events, PATHS))
    # from the first cache's update to the second one's; the last layer ends with its attention
    assert found["model.layers.0", "operator", MM] == 3 + 4 + 5
    assert found["model.layers.0", "operator", REGION] == 1 + 2 + 5 + 2
    assert ("model.layers.1", "operator", MM) not in found
    assert found["", "operator", MM] == 5 + 3 + 14 + 2


@pytest.mark.parametrize("paths", [[], [*PATHS, "model.layers.2.self_attn.attn"]])
def test_without_one_attention_for_each_layer_nothing_is_told(paths: list[str]) -> None:
    events = events_of([step(100), *ONE_RANK])
    found = times(layered(events, paths))
    assert {module for module, _, _ in found} == {""}
    assert sum(found.values()) == 100


def test_two_forward_passes_in_one_step() -> None:
    again = [event._replace(start=event.start + 100, end=event.end + 100) for event in ONE_RANK]
    events = layered(events_of([step(200), *ONE_RANK, *again]), PATHS)
    assert times(events)["model.layers.1", "operator", MM] == 2 * (5 + 3 + 14)


def test_time_is_neither_made_nor_lost() -> None:
    events = layered(events_of([step(100), *ONE_RANK]), PATHS)
    assert sum(times(events).values()) == 100


@pytest.mark.parametrize(
    ("path", "layer"),
    [("model.layers.3.self_attn.attn", "model.layers.3"), ("decoder.12.attn", "decoder.12"), ("attn", "")],
)
def test_layer_of_a_path(path: str, layer: str) -> None:
    assert layer_of(path) == layer


def test_attention_is_known_by_its_class() -> None:
    class AttentionLayerBase:
        pass

    class Attention(nn.Module, AttentionLayerBase):
        pass

    model = nn.Sequential(nn.Linear(1, 1), Attention(), nn.Sequential(Attention()))
    assert attention_paths(model) == ["1", "2.0"]
    assert attention_paths(nn.Linear(1, 1)) == []
