"""What a profile says of passes as a whole: which part of a forward pass recomputing would do again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from flagscale_perf.analysis.replays import CORE, LAYERS, PYTHON
from flagscale_perf.analysis.session import Session
from flagscale_perf.profile.analysis.layers import number_of
from flagscale_perf.profile.analysis.source import Column, Rank, read_profile
from flagscale_perf.profile.records import Sort

_PASSES, _CORE = ("forward", "backward"), "core_attention"


def shares_of(session: Session) -> Mapping[str, Mapping[int, float]]:
    """By pipeline stage, means over its profiled ranks: of a forward pass what layers take, and what their
    core attention does; of both passes what Python takes, 0 where a device's time is known.
    """
    found: dict[str, dict[int, list[float]]] = {name: defaultdict(list) for name in (LAYERS, CORE, PYTHON)}
    for rank in read_profile(session).ranks:
        stage = rank.place.get("pipeline") or 0
        for name, share in _of_rank(rank).items():
            found[name][stage].append(share)
    return {
        name: {stage: float(np.mean(own)) for stage, own in by_stage.items()}
        for name, by_stage in found.items()
    }


def _of_rank(rank: Rank) -> Mapping[str, float]:
    rows = rank.rows.where(rank.rows["step_phase"] == "train")
    on_device = rows.known("device_ns")
    times = np.where(on_device, rows["device_ns"], 0) if on_device.any() else rows["self_ns"]
    forward, both = rows["phase"] == "forward", np.isin(rows["phase"], _PASSES)
    if not times[forward].sum():
        return {}
    modules = rows["module"].tolist()
    in_layer = forward & np.array([number_of(each) is not None for each in modules])
    in_core = in_layer & np.array([_CORE in each.split(".") for each in modules])
    in_python = both & np.isin(rows["sort"], (int(Sort.HOST), int(Sort.ENGINE)))

    def share(part: Column, whole: Column) -> float:
        return float(times[part].sum() / times[whole].sum())

    return {LAYERS: share(in_layer, forward), CORE: share(in_core, forward), PYTHON: share(in_python, both)}
