"""What profiling itself costs."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from torch import nn

from flagscale_perf.analysis.job import open_session
from flagscale_perf.profile.analysis.observer import Observer, observers_of
from flagscale_perf.profile.analysis.source import Profile, read_profile
from flagscale_perf.profile.kineto import Session
from flagscale_perf.profile.profiler import Profiler
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.peers.records import ProcessRecord
from tests.profile_runs import make_profile_header
from tests.profiled_events import options_of


def test_profiled_steps_against_the_clean_ones_beside_them(profile: Profile) -> None:
    one = observers_of(profile)["train"]
    assert one.ratios == [100 / 96, 102 * 2 / (96 + 98)] * 2
    assert one.clean == [98 / 96] * 2
    assert one.ratio == pytest.approx((100 / 96 + 102 / 97) / 2)
    assert one.spread == pytest.approx((102 / 97 - 100 / 96) / 2)
    assert (one.outside_ns, one.reduce_ns) == (2.5e6, 10e6)
    assert one.lost == pytest.approx(one.ratio + 2.5 / 97)
    assert one.words == "x1.047 +- 0.005, 4 pairs; x1.072 with starting and stopping the profiler"


def test_what_a_profiled_step_costs_is_what_the_caller_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the caller's own clock, with a profiler that takes 60 ms to start around steps of 40 ms."""
    start = Session.start
    monkeypatch.setattr(Session, "start", lambda self: (time.sleep(0.06), start(self)))
    records: list[Any] = [ProcessRecord(0, 1, "rank 0", 0, None, 0, None)]
    taken: dict[bool, list[float]] = {True: [], False: []}
    options = options_of(tmp_path, "1-4", shapes=False, memory=False)
    model = nn.Linear(2, 2)
    with Profiler(model, options, put=records.append) as profiler:
        for iteration in range(1, 9):
            begin = time.perf_counter()
            with profiler.step(iteration):
                time.sleep(0.04)
                model(torch.zeros(1, 2))
            taken[iteration % 2 == 1].append(time.perf_counter() - begin)
    path = tmp_path / "perf_records_20240129_103000.jsonl"
    path.write_bytes(b"".join(map(encode, [make_profile_header(), *records])))
    one = observers_of(read_profile(open_session(path)))["train"]
    assert one.ratio is not None and one.lost is not None
    assert one.lost == pytest.approx(median(taken[True]) / median(taken[False]), rel=0.2)
    assert one.lost > 1.3 * one.ratio


def test_without_a_clean_step_nothing_is_said() -> None:
    one = Observer([], [], None, None)
    assert one.words == "not known: no clean step beside a profiled one"
    assert one.as_dict()["ratio"] is None
