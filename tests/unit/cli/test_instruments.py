"""The table of instruments: reading any run file needs no other import."""

from __future__ import annotations

import importlib.util
import json

from flagscale_perf.cli.instruments import INSTRUMENTS

PROBE = """
import json
from flagscale_perf.cli import instruments
from flagscale_perf.spine.records import KINDS
before = sorted(KINDS)
instruments.INSTRUMENTS += ("not_installed",)
instruments.load_records()
print(json.dumps([before, sorted(KINDS)]))
"""


def test_record_types_are_known_once_the_instruments_are_loaded(run_python) -> None:
    before, after = json.loads(run_python("-c", PROBE).stdout)
    assert before == ["end", "event", "header"]
    assert after == [
        *("end", "event", "hardware", "header", "interval", "node", "phases", "ranks", "step", "straggler")
    ]


def test_every_instrument_of_the_table_is_there() -> None:
    assert all(importlib.util.find_spec(f"flagscale_perf.{name}.records") for name in INSTRUMENTS)
