"""The real nvidia-ml-py, in a process of its own, against a driver with two cards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.bench.bandwidth.links import Card, Process, Topology
from tests import fake_nvml

READ = """
import json
from dataclasses import asdict
from flagscale_perf.bench.bandwidth.links import read_topology
found = read_topology()
cards = [[card.peers, card.ceilings, card.source["nvlink"]] for card in found.cards]
pairs = [list(asdict(pair).values()) for pair in found.pairs]
print(json.dumps([cards, pairs, found.why, found.busy(), found.busy({0})]))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_nvml.build(tmp_path_factory.mktemp("driver"), source="fake_nvml_cards.c")


@pytest.fixture
def read(run_python, library: Path):
    def run(mode: str) -> Any:
        done = run_python("-c", READ, env=fake_nvml.environment(library, mode))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_two_cards_with_links_between_them(read) -> None:
    cards, pairs, why, busy, _ = read("pair")
    first = [
        {"GPU 1": 4},
        {"nvlink": pytest.approx(103.124), "pcie": pytest.approx(31.504), "memory": pytest.approx(1555.2)},
    ]
    assert cards[0] == [*first, "4 links of 25.781 GB/s, the line's rate"]
    assert cards[1][0] == {"GPU 0": 4}
    assert (pairs, why, busy) == ([[0, 1, "NV4", "ok"]], "", "")  # 5 % is not busy


def test_cards_on_a_switch_are_all_alike(read) -> None:
    cards, pairs, *_ = read("switch")
    assert [card[0] for card in cards] == [{"NVSwitch": 4}] * 2
    assert pairs == [[0, 1, "NVSwitch", "ok"]]


def test_cards_without_links_meet_at_an_ancestor(read) -> None:
    cards, pairs, *_ = read("pcie")
    assert ("nvlink" in cards[0][1], pairs) == (False, [[0, 1, "SYS", "not supported"]])


def test_who_keeps_a_card_busy_is_named(read) -> None:
    *_, busy, busy_first = read("busy")
    assert (busy, busy_first) == ("GPU 1 is busy (43 %) with pid 4321 python (3.1 GB)", "")


def test_a_driver_that_refuses_says_so(read) -> None:
    assert read("refused")[2] == "the NVIDIA driver refuses: Insufficient Permissions"
    assert read("no driver")[2] == "no NVIDIA driver"


def test_no_library_is_no_driver(run_python) -> None:
    cards, pairs, why, *_ = json.loads(run_python("-c", READ).stdout)
    assert (cards, pairs) == ([], [])
    assert why == "no NVIDIA driver"


def test_what_is_not_known_makes_no_ceiling() -> None:
    nothing = Card(0, *[None] * 11)
    assert nothing.ceilings == {}
    busy = Card(3, *[None] * 10, 90)
    assert Topology((busy,)).busy() == "GPU 3 is busy (90 %) with a process that is not shown here"
    assert Process(7, "", None).words == "pid 7"
