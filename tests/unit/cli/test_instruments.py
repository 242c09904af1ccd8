"""What commands ask of instruments."""

from __future__ import annotations

import json

PROBE = """
import json
from flagscale_perf.cli import instruments
from flagscale_perf.spine.records import KINDS
before = sorted(KINDS)
instruments.load_records()
print(json.dumps([before, sorted(KINDS)]))
"""


def test_record_types_are_known_once_the_instruments_are_loaded(run_python) -> None:
    before, after = json.loads(run_python("-c", PROBE).stdout)
    assert before == ["clock", "end", "event", "header", "name", "process"]
    training = "capture captured curve cuts doing finding hardware host interval node phases ranks standstill"
    queue = "tq_call tq_clear tq_fields tq_keys tq_operation tq_rows tq_start tq_units tq_unsized tq_versions"
    parts = "begin collective memory rank roof row step window"
    profile = [f"profile_{part}" for part in parts.split()]
    bench = [f"bench_{part}" for part in ("begin", "end", "figure", "point")]
    others = ["step", "straggler", "rpc_call", "rpc_served", *queue.split(), "tq_wait", *profile, *bench]
    assert after == sorted([*before, *training.split(), *others])
