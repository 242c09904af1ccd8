"""Which ranks work together and for what: from the group's name, or from the ranks' places in the job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flagscale_perf.profile.groups import Group

# What a group is for, by what is in its name; the first that fits.
LABELS = [
    (re.compile(pattern, re.IGNORECASE), label)
    for pattern, label in (
        (r"tensor_and_data", "TP+DP"),
        (r"tensor_and_context", "TP+CP"),
        (r"expert_tensor", "ETP"),
        (r"expert_data|intra_expert|inter_expert", "EDP"),
        (r"expert|^(mesh_)?ep\b", "EP"),
        (r"tensor|^(mesh_)?tp\b", "TP"),
        (r"pipeline|^(mesh_)?pp\b", "PP"),
        (r"data_parallel|^(mesh_)?dp\b|distributed_optimizer", "DP"),
        (r"context|^(mesh_)?cp\b", "CP"),
        (r"embedding", "embedding"),
        (r"^model_parallel", "TP+PP"),
        (r"default_pg|world", "world"),
    )
]
_PLACES = ("tensor", "pipeline", "data")


def label_of(group: str) -> str:
    """What a group is for: "TP" for "TENSOR_MODEL_PARALLEL_GROUP 0-1"; the group's own name if that does not
    tell.
    """
    name = Group.parse(group).name
    return next((label for pattern, label in LABELS if pattern.search(name)), name)


class Members:
    """The ranks of a job and their places in its parallel groups."""

    def __init__(self, places: Mapping[int, Mapping[str, Any]]) -> None:
        self._places = places

    def group_of(self, rank: int, text: str, is_point_to_point: bool) -> Group:
        """The group of a rank's operation. Where the profiler has none (vLLM's own operators, point-to-point
        over gloo), it is the rank's tensor- or pipeline-parallel group if it has one, else all ranks.
        """
        if text:
            return Group.parse(text)
        axis, label = ("pipeline", "pp") if is_point_to_point else ("tensor", "tp")
        place = self._places.get(rank, {})
        if (place.get(f"{axis}_size") or 1) > 1:
            return Group(label, self._alike(place, axis))
        world = place.get("world_size")
        return Group("world", tuple(range(world)) if world else None)

    def _alike(self, place: Mapping[str, Any], axis: str) -> tuple[int, ...] | None:
        """Ranks that differ in this coordinate alone; None unless all coordinates are known."""
        others = [name for name in _PLACES if name != axis]
        found = sorted(
            (other[axis], rank)
            for rank, other in self._places.items()
            if other.get(axis) is not None and all(other.get(name) == place.get(name) for name in others)
        )
        whole = [at for at, _ in found] == list(range(place[f"{axis}_size"]))
        return tuple(rank for _, rank in found) if whole else None

    @staticmethod
    def peer_of(rank: int, group: Group, peer: int | None) -> int | None:
        """The job rank of a group's rank; in a group of two, the other one."""
        if group.ranks is None:
            return None
        if peer is not None and peer < len(group.ranks):
            return group.ranks[peer]
        others = [each for each in group.ranks if each != rank]
        return others[0] if len(others) == 1 else None
