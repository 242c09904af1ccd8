"""Collectives are told by their kernels' names, and their bytes counted as nccl-tests does."""

from __future__ import annotations

import pytest

from flagscale_perf.profile.operations import Named, Role, buffer_bytes, bus_factor, named

CALL, EXECUTED, WAIT = Role.CALL, Role.EXECUTED, Role.WAIT


@pytest.mark.parametrize(
    ("name", "role", "operation"),
    [
        ("c10d::allreduce_", CALL, "all_reduce"),
        ("c10d::allreduce_coalesced_", CALL, "all_reduce"),
        ("c10d::_allgather_base_", CALL, "all_gather"),
        ("c10d::allgather_into_tensor_coalesced_", CALL, "all_gather"),
        ("c10d::_reduce_scatter_base_", CALL, "reduce_scatter"),
        ("c10d::alltoall_base_", CALL, "all_to_all"),
        ("c10d::broadcast_", CALL, "broadcast"),
        ("c10d::reduce_", CALL, "reduce"),
        ("c10d::gather_", CALL, "gather"),
        ("c10d::scatter_", CALL, "scatter"),
        ("c10d::send", CALL, "send"),
        ("c10d::recv_any_source_", CALL, "recv"),
        ("c10d::monitored_barrier_", CALL, "barrier"),
        ("_c10d_functional::all_gather_into_tensor", CALL, "all_gather"),
        ("_c10d_functional_autograd::all_to_all_single", CALL, "all_to_all"),
        ("_c10d_functional::wait_tensor", WAIT, ""),
        ("symm_mem::one_shot_all_reduce", CALL, "all_reduce"),
        ("vllm::all_reduce", CALL, "all_reduce"),
        ("_C::shm_allreduce", CALL, "all_reduce"),
        ("_C::shm_all_gather", CALL, "all_gather"),
        ("_C::shm_gather", CALL, "gather"),
        ("_C::shm_send_tensor_list", CALL, "send"),
        ("_C::shm_recv_tensor_list", CALL, "recv"),
        ("_C_custom_ar::all_reduce", CALL, "all_reduce"),
        ("gloo:all_reduce", EXECUTED, "all_reduce"),
        ("nccl:_all_gather_base", EXECUTED, "all_gather"),
        ("nccl:send 0->1", EXECUTED, "send"),
        ("nccl:coalesced", EXECUTED, ""),
        ("flagcx:reduce_scatter", EXECUTED, "reduce_scatter"),
        (
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            EXECUTED,
            "all_reduce",
        ),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevComm*)", EXECUTED, "reduce_scatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", EXECUTED, "send_recv"),
        ("void vllm::cross_device_reduce_1stage<__half, 2>(RankData*)", EXECUTED, "all_reduce"),
    ],
)
def test_a_collective(name: str, role: Role, operation: str) -> None:
    assert named(name) == Named(role, operation)


@pytest.mark.parametrize(
    "name",
    [
        *("aten::mm", "aten::scatter_", "aten::gather", "vllm::unified_attention_with_output"),
        *("_c10d_functional::_wrap_tensor_autograd", "_c10d_functional::batch_p2p_ops"),
        *("c10d::check_for_nan", "symm_mem::_rendezvous", "symm_mem::nvshmem_put"),
        "_C::init_shm_manager",
        *("void at::native::reduce_kernel<512, 1>(at::native::ReduceOp<float>)", ""),
    ],
)
def test_none(name: str) -> None:
    assert named(name) is None


def test_busbw_factors_are_those_of_nccl_tests() -> None:
    found = {
        operation: bus_factor(operation, 4)
        for operation in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "")
    }
    assert found == {
        "all_reduce": 1.5,
        "all_gather": 0.75,
        "reduce_scatter": 0.75,
        "all_to_all": 0.75,
        "broadcast": 1.0,
        "send": 1.0,
        "": None,
    }
    assert [bus_factor("all_reduce", size) for size in (None, 1, 2)] == [None, None, 1.0]
    assert bus_factor("barrier", 2) is None


def test_bytes_are_of_all_shares_where_each_rank_has_one() -> None:
    assert buffer_bytes("all_reduce", 4096, 4096, 4) == 4096
    assert buffer_bytes("all_gather", 1024, 4096, 4) == 4096
    assert buffer_bytes("all_gather", 1024, 0, 4) == 4096
    assert buffer_bytes("reduce_scatter", 4096, 1024, 4) == 4096
    assert buffer_bytes("reduce_scatter", 0, 1024, 4) == 4096
    assert buffer_bytes("scatter", 0, 1024, None) == 1024
    assert buffer_bytes("send", 512, 0, 4) == 512
    assert buffer_bytes("barrier", 1, 0, 4) == 0
