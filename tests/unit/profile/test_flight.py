"""What torch's flight recorder and process groups say; real ones: tests/processes/test_collectives.py."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from torch import distributed

from flagscale_perf.profile.flight import Flown, Groups, bytes_of, describe, flown, forget, groups
from flagscale_perf.profile.operations import Group
from flagscale_perf.spine.clock import Anchor

RECORDER, WORLD = "torch._C._distributed_c10d", "torch.distributed.distributed_c10d"


def planted(monkeypatch: pytest.MonkeyPatch, entries: list[dict[str, Any]]) -> None:
    """A process with rank 3, two groups that are alike, one of its own, and these entries."""
    alike, again, own = (SimpleNamespace(group_desc=name) for name in ("TP", "TP", "undefined"))
    names = {id(alike): "1", id(again): "2", id(own): "5"}
    world = SimpleNamespace(
        pg_names=_ById(names, [alike, again, own]),
        pg_group_ranks=_ById(
            {id(alike): {2: 0, 3: 1}, id(again): {2: 0, 3: 1}, id(own): {3: 0}}, [alike, again, own]
        ),
    )
    monkeypatch.setitem(sys.modules, WORLD, SimpleNamespace(_world=world, get_rank=lambda: 3))
    monkeypatch.setitem(
        sys.modules,
        RECORDER,
        SimpleNamespace(_dump_fr_trace_json=lambda *_: json.dumps({"entries": entries})),
    )


class _ById(dict[int, Any]):
    """A mapping by object, as torch's are; SimpleNamespace has no hash."""

    def __init__(self, values: dict[int, Any], keys: list[Any]) -> None:
        super().__init__(values)
        self._keys = keys

    def items(self) -> Any:
        return [(key, dict.__getitem__(self, id(key))) for key in self._keys]

    def __getitem__(self, key: Any) -> Any:
        return dict.__getitem__(self, id(key))


def entry(**changes: Any) -> dict[str, Any]:
    wall_ns = Anchor.now().wall_of(5_000)
    made = {
        "process_group": ["1", "TP"],
        "profiling_name": "gloo:all_gather",
        "input_sizes": [[4, 8]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[2, 4, 8]],
        "output_dtypes": ["BFloat16"],
        "is_p2p": False,
        "collective_seq_id": 17,
        "p2p_seq_id": 2,
        "time_created_ns": wall_ns,
    }
    return made | changes


def test_an_entry_has_group_sequence_and_the_bytes_of_all_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    anchor = Anchor.now()
    monkeypatch.setattr(Anchor, "now", lambda: anchor)
    planted(monkeypatch, [entry()])
    assert flown() == [Flown(5_000, "gloo:all_gather", "TP 2-3", 2, 17, 128)]


def test_point_to_point_has_a_sequence_of_its_own_and_a_strange_type_no_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    strange = entry(is_p2p=True, profiling_name="nccl:send 0->1", input_dtypes=["QInt9"])
    planted(monkeypatch, [strange, entry(process_group=["9", "undefined"])])
    sent, unknown = flown()
    assert (sent.sequence, sent.size_bytes) == (2, None)
    assert (unknown.group, unknown.size, unknown.size_bytes) == ("group#9", None, 128)


def test_two_groups_are_never_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, [])
    assert groups() == Groups(
        3, {"1": Group("TP", (2, 3)), "2": Group("TP#2", (2, 3)), "5": Group("group#5", (3,))}
    )


def test_without_torch_distributed_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, WORLD, raising=False)
    monkeypatch.delitem(sys.modules, RECORDER, raising=False)
    assert (groups(), flown()) == (Groups(), [])


def test_bytes_of_types_as_profiler_and_recorder_name_them() -> None:
    assert bytes_of([[4, 8], [3]], ["float", "c10::BFloat16"]) == 134
    assert bytes_of([10], ["Long"]) == 80
    assert bytes_of([[]], ["double"]) == 8
    assert bytes_of([[2]], ["nobody's"]) is None


def test_a_group_of_torchs_that_is_described_has_that_name_until_it_is_forgotten() -> None:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        described, nameless = distributed.new_group([0], group_desc="theirs"), distributed.new_group([0])
        assert (describe(described, "tp"), describe(nameless, "tp")) == (False, True)
        assert [group.name for group in groups().known.values()] == ["default_pg", "theirs", "tp"]
        forget(nameless)
        assert groups().known[nameless.group_name].name == f"group#{nameless.group_name}"
    finally:
        distributed.destroy_process_group()
