"""What torch's flight recorders are read for; real ones: tests/processes/test_flagscale_hang.py."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from flagscale_perf.device.collectives import Last, debug_server, last_ones


def entry(number: int, **changed: Any) -> dict[str, Any]:
    known = {
        "collective_seq_id": number,
        "input_sizes": [[4]],
        "is_p2p": False,
        "process_group": ["0", "default_pg"],
        "profiling_name": "gloo:all_reduce",
        "retired": True,
        "state": "scheduled",
    }
    return known | changed


def test_the_last_one_of_each_group_and_whether_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"process_group": ["1", "DP"], "profiling_name": "nccl:all_gather"}
    held = {
        "_dump_fr_trace_json": [entry(1), entry(2, retired=False), entry(9, is_p2p=True)],
        "_dump_nccl_trace_json": [
            entry(7, **other, retired=False, state="started"),
            entry(8, **other, retired=False, state="completed"),
        ],
    }
    recorders = {
        name: lambda *_, entries=entries: json.dumps({"entries": entries}) for name, entries in held.items()
    }
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", SimpleNamespace(**recorders))  # type: ignore[misc]
    assert last_ones() == [
        Last("0 (default_pg)", 2, False, "gloo:all_reduce", "[[4]]"),
        Last("1 (DP)", 8, True, "nccl:all_gather", "[[4]]"),
    ]


def test_without_torch_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch._C._distributed_c10d", "torch.distributed.debug"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())  # type: ignore[misc]
    assert (last_ones(), debug_server()) == ([], None)
    serving = SimpleNamespace(_WORKER_SERVER=SimpleNamespace(port=41234))
    monkeypatch.setitem(sys.modules, "torch.distributed.debug", serving)  # type: ignore[misc]
    assert debug_server() == 41234
