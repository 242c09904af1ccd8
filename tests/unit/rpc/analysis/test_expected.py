"""The closed form beside the calls of a session."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from flagscale_perf.rpc.analysis.expected import Call, Volume, expected
from flagscale_perf.rpc.traffic import Pass, Stage, pass_traffic, total
from tests.rpc_sessions import LLAMA_1B, SMALL

INIT: Call = ("Init", 0, 5000)
DESCRIBED = asdict(SMALL) | {"family": "llama"}


def calls_of(*passes: Pass) -> list[Call]:
    return [INIT, *(tuple(call) for run in passes for call in pass_traffic(SMALL, run))]


def volume_of(*passes: Pass) -> Volume:
    found = [total(pass_traffic(SMALL, run)) for run in passes]
    return Volume(sum(each.sent_bytes for each in found), sum(each.received_bytes for each in found))


def test_the_requirements_workload_in_both_types() -> None:
    calls = pass_traffic(LLAMA_1B, Pass())
    found = expected(asdict(LLAMA_1B), "torch.bfloat16", [tuple(call) for call in calls])
    assert found is not None and found.in_dtype is not None
    assert (found.passes, found.item_bytes, found.repeats_kv, found.is_wide) == (1, 4, True, True)
    assert found.found == found.by_model
    assert [round(each / 2**20, 2) for each in (*found.by_model, *found.in_dtype)] == [
        3328.02, 3656.49, 1664.01, 1828.24,
    ]  # fmt: skip


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize(("batch", "items"), [(1, 4), (3, 2)])
def test_every_cut_of_a_prompt_and_of_the_tokens_behind_it(
    stage: Stage, repeats: bool, batch: int, items: int
) -> None:
    prompt = Pass(stage, batch, 7, 0, items, repeats)
    passes = [prompt, *(replace(prompt, tokens=1, cached=cached) for cached in (7, 8)), prompt]
    found = expected(DESCRIBED, "torch.float32" if items == 4 else "torch.bfloat16", calls_of(*passes))
    assert found is not None
    assert (found.passes, found.item_bytes, found.is_wide) == (4, items, False)
    assert found.found == found.by_model == found.in_dtype == volume_of(*passes)


def test_more_than_the_model_needs_is_seen() -> None:
    *calls, (method, sent, received) = calls_of(Pass(tokens=8))
    found = expected(DESCRIBED, None, [*calls, (method, sent, received + 100)])
    assert found is not None
    assert (found.found.received - found.by_model.received, found.in_dtype, found.dtype) == (100, None, "")


@pytest.mark.parametrize(
    ("described", "calls"),
    [
        (None, calls_of(Pass())),
        ({"layers": 4}, calls_of(Pass())),
        (DESCRIBED, []),
        (DESCRIBED, [("Embedding", 8, 256), ("LMHead", 256, 2048)]),
        (DESCRIBED, [("Embedding", 0, 0), ("Matmul", 0, 0), ("LMHead", 0, 0)]),
        (DESCRIBED, [call for call in calls_of(Pass(tokens=8)) if call[0] != "Matmul"]),
    ],
)
def test_of_other_calls_nothing_is_expected(described, calls) -> None:
    assert expected(described, "torch.float32", calls) is None
