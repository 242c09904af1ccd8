"""The module of every node of the backward pass, against a walk of autograd's graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gloo_ranks import some_ranks, two_ranks


def held(found: dict[str, Any], is_recomputed: bool) -> None:
    """99 of 100 nodes, of a model that has some, and none without a forward operator."""
    right, wrong = found.get("right", 0), found.get("wrong", 0)
    assert right > 80 and right >= 0.99 * (right + wrong), found
    assert found["unmatched"] == 0
    assert ("recompute" in found["parts"]) == is_recomputed, found["parts"]
    assert {"forward", "backward"} <= set(found["parts"])


@pytest.mark.parametrize(
    "words",
    [
        ("huggingface", "recompute"),
        ("megatron", "selective"),
        *(
            pytest.param(words, marks=pytest.mark.long)
            for words in (
                ("huggingface",),
                ("huggingface", "recompute", "reentrant"),
                ("megatron",),
                ("megatron", "recompute"),
            )
        ),
    ],
    ids=lambda words: " ".join(words),
)
def test_on_one_rank(tmp_path: Path, words: tuple[str, ...]) -> None:
    (found,) = some_ranks(1, "tests.graph_truth", tmp_path, *words)
    held(found, bool({"recompute", "selective"} & set(words)))


@pytest.mark.parametrize(
    "words",
    [
        ("sequence", "recompute"),
        pytest.param(("tensor",), marks=pytest.mark.long),
        pytest.param(("expert",), marks=pytest.mark.long),
    ],
    ids=lambda words: " ".join(words),
)
def test_on_two_ranks_of_megatron(tmp_path: Path, words: tuple[str, ...]) -> None:
    for found in two_ranks("tests.graph_truth", tmp_path, "megatron", *words):
        held(found, "recompute" in words)
