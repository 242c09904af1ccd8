"""A rank's place among those of Megatron-Core."""

from __future__ import annotations

from flagscale_perf.hosts import rehearsal
from flagscale_perf.hosts.core_loop import parallel_state
from flagscale_perf.profile.rank import Rank


def megatron_rank() -> Rank:
    """This rank's place in Megatron-Core's groups; only host and device where it has made none. An expert's
    place is given where there is expert parallelism.
    """
    device = "CPU (rehearsal)" if rehearsal.is_installed() else ""
    groups = parallel_state()
    if groups is None:
        return Rank(host="megatron", device=device)
    experts = int(groups.get_expert_model_parallel_world_size())
    expert_size = experts if experts > 1 else None
    return Rank(
        tensor=int(groups.get_tensor_model_parallel_rank()),
        tensor_size=int(groups.get_tensor_model_parallel_world_size()),
        pipeline=int(groups.get_pipeline_model_parallel_rank()),
        pipeline_size=int(groups.get_pipeline_model_parallel_world_size()),
        data=int(groups.get_data_parallel_rank(with_context_parallel=True)),
        data_size=int(groups.get_data_parallel_world_size(with_context_parallel=True)),
        expert=None if expert_size is None else int(groups.get_expert_model_parallel_rank()),
        expert_size=expert_size,
        host="megatron",
        device=device,
    )
