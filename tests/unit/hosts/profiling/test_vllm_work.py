"""What a step is, by outputs of a scheduler that a reader can count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flagscale_perf.hosts.profiling.vllm import Work


def scheduled(
    new: dict[str, tuple[int, int]], cached: dict[str, tuple[int, int, int]], resumed: tuple[str, ...] = ()
) -> Any:
    """`new`: request -> (tokens before this step, tokens in it); `cached`: also tokens it has made."""
    return SimpleNamespace(
        scheduled_new_reqs=[SimpleNamespace(req_id=k, num_computed_tokens=v[0]) for k, v in new.items()],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=list(cached),
            num_computed_tokens=[v[0] for v in cached.values()],
            num_output_tokens=[v[2] for v in cached.values()],
            resumed_req_ids=set(resumed),
        ),
        num_scheduled_tokens={k: v[1] for k, v in (new | cached).items()},
        total_num_scheduled_tokens=sum(v[1] for v in (new | cached).values()),
    )


@pytest.mark.parametrize(
    ("output", "work"),
    [
        (scheduled({}, {}), None),
        (scheduled({"a": (0, 64), "b": (0, 3)}, {}), Work("prefill", 2, 67, 64 * 64 + 3 * 3)),
        (scheduled({}, {"a": (64, 1, 1), "b": (3, 1, 1)}), Work("decode", 2, 2, 65 + 4)),
        (scheduled({"c": (0, 5)}, {"a": (65, 1, 2)}), Work("mixed", 2, 6, 66 + 5 * 5)),
        # the last token of a prompt that was read in two parts
        (scheduled({}, {"a": (64, 1, 0)}), Work("prefill", 1, 1, 65)),
        # three tokens a step, as a smaller model has guessed two of them
        (scheduled({}, {"a": (64, 3, 1)}), Work("decode", 1, 3, 3 * 67)),
        # its cache was filled by another engine
        (scheduled({"a": (63, 1)}, {}), Work("decode", 1, 1, 64)),
        # a prompt of one token
        (scheduled({"a": (0, 1)}, {}), Work("prefill", 1, 1, 1)),
        # had made five tokens when it was preempted, and reads 69 again
        (scheduled({}, {"a": (0, 69, 5), "b": (70, 1, 6)}, ("a",)), Work("mixed", 2, 70, 69 * 69 + 71)),
        # was preempted before it had made one
        (scheduled({}, {"a": (0, 64, 0)}, ("a",)), Work("prefill", 1, 64, 64 * 64)),
    ],
)
def test_phase_and_amount_of_a_step(output: Any, work: Work | None) -> None:
    assert Work.of(output) == work
