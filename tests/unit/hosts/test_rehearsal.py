"""torch.cuda on the CPU, in a process of its own: the redirection is global by nature."""

from types import SimpleNamespace

import pytest

from flagscale_perf.hosts import rehearsal
from flagscale_perf.hosts.patching import Patches

SCRIPT = """
import torch
before = {name: getattr(torch, name) for name in ("zeros", "tensor")}
before |= {"to": torch.Tensor.to, "available": torch.cuda.is_available()}
from flagscale_perf.hosts import rehearsal
from flagscale_perf.hosts.patching import Patches
patches = Patches()
rehearsal.install(patches)
assert torch.cuda.is_available() and torch.cuda.device_count() == 1
for tensor in (
    torch.zeros(2, device="cuda"), torch.empty(2, device=torch.cuda.current_device()),
    torch.ones(2, device=torch.device("cuda:0")), torch.ones(2).cuda(), torch.ones(2).to("cuda"),
    torch.ones(2).to(device="cuda:0"), torch.cuda.FloatTensor([1, 2]),
    torch.nn.Linear(2, 2).cuda().weight, torch.arange(2, device=0),
):
    assert tensor.device.type == "cpu", tensor.device
assert torch.ones(2).to(torch.int64).dtype == torch.int64
assert torch.ones(2).type() == "torch.cuda.FloatTensor"
assert torch.ones(2).type(torch.int32).dtype == torch.int32
torch.cuda.manual_seed(3); first = torch.rand(2)
state = torch.cuda.get_rng_state(); second = torch.rand(2)
torch.cuda.set_rng_state(state)
assert torch.equal(torch.rand(2), second) and not torch.equal(first, second)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record(); end.record()
assert end.query() and start.elapsed_time(end) >= 0
with torch.cuda.stream(torch.cuda.Stream()):
    torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
assert torch.cuda.memory_allocated() == 0 and torch.cuda.memory_stats() == {}
patches.undo()
after = {name: getattr(torch, name) for name in ("zeros", "tensor")}
assert before == after | {"to": torch.Tensor.to, "available": torch.cuda.is_available()}
print("done")
"""


def test_torch_cuda_lands_on_the_cpu_and_comes_back(run_python):
    result = run_python("-c", SCRIPT)
    assert (result.stdout.strip(), result.returncode) == ("done", 0), result.stderr


# What torch's CUDA build answers, whatever build runs the test. It has a name for the accelerator even on a
# machine without a driver, where every question about the device itself ends the process.
CUDA_BUILD = """
import sys, torch
DRIVER = "a driver" in sys.argv
def index():
    if not DRIVER:
        raise RuntimeError("Found no NVIDIA driver on your system")
    return 0
torch._C._accelerator_getAccelerator = lambda: torch.device("cuda")
torch._C._accelerator_getDeviceIndex = index
torch.cuda.is_available = lambda: DRIVER
answers = lambda: (torch.accelerator.is_available(), str(torch.accelerator.current_accelerator()))
before = answers()
from flagscale_perf.hosts import rehearsal
from flagscale_perf.hosts.patching import Patches
patches = Patches()
rehearsal.install(patches)
assert answers() == (False, "None") and torch.accelerator.device_count() == 0
data = torch.utils.data.DataLoader(torch.arange(6), batch_size=3, num_workers=1, pin_memory=True)
print([batch.tolist() for batch in data])
weight = torch.ones(2)
assert weight.pin_memory() is weight
assert not torch.empty(2, pin_memory=True).is_pinned() and not torch.tensor([1], pin_memory=True).is_pinned()
patches.undo()
assert answers() == before == (DRIVER, "cuda")
"""


@pytest.mark.parametrize("machine", ["a driver", "no driver"])
def test_nothing_is_pinned_where_torch_is_built_for_cuda(run_python, machine):
    result = run_python("-W", "ignore", "-c", CUDA_BUILD, machine)
    assert (result.stdout.strip(), result.returncode) == ("[[0, 1, 2], [3, 4, 5]]", 0), result.stderr


def test_only_arguments_that_need_a_gpu_are_changed():
    args = SimpleNamespace(distributed_backend="nccl", transformer_impl="local", fp8="hybrid", lr=1.0)
    assert rehearsal.adapt_args(args) == ["distributed_backend: nccl -> gloo", "fp8: hybrid -> None"]
    assert vars(args) == {"distributed_backend": "gloo", "transformer_impl": "local", "fp8": None, "lr": 1.0}
    assert rehearsal.adapt_args(args) == []


def test_a_norm_marks_what_sequence_parallelism_sums():
    class WrappedTorchNorm:
        """As Megatron-Core's."""

        def __new__(cls, config, size):
            assert not config.sequence_parallel
            weight = SimpleNamespace(size=size)
            return SimpleNamespace(parameters=lambda: [weight])

    module, patches = SimpleNamespace(WrappedTorchNorm=WrappedTorchNorm), Patches()
    before = vars(WrappedTorchNorm)["__new__"]
    rehearsal.host_patches(patches)["megatron.core.transformer.torch_norm"](module)
    config = SimpleNamespace(sequence_parallel=True)
    (weight,) = WrappedTorchNorm(config, 8).parameters()
    assert (weight.size, weight.sequence_parallel, config.sequence_parallel) == (8, True, True)
    (weight,) = WrappedTorchNorm(SimpleNamespace(sequence_parallel=False), 8).parameters()
    assert not hasattr(weight, "sequence_parallel")
    patches.undo()
    assert vars(WrappedTorchNorm)["__new__"] is before


def test_numbers_of_an_experts_tokens_become_numpy_on_the_cpu_too():
    module, patches = SimpleNamespace(maybe_move_tensor_to_cpu=None, te_general_gemm=1), Patches()
    rehearsal.host_patches(patches)["megatron.core.transformer.moe.moe_utils"](module)
    tensor = SimpleNamespace(numpy=lambda: [3, 5])
    assert module.maybe_move_tensor_to_cpu(tensor, as_numpy=True) == [3, 5]
    assert module.maybe_move_tensor_to_cpu(tensor) is tensor
    assert module.maybe_move_tensor_to_cpu(None, as_numpy=True) is None
    patches.undo()
    assert vars(module) == {"maybe_move_tensor_to_cpu": None, "te_general_gemm": 1}


def test_t5_and_bert_without_transformer_engine_have_the_names_they_import():
    patches = Patches()
    for_modules = rehearsal.host_patches(patches)
    norm = object()
    t5, bert = SimpleNamespace(LNImpl=norm), SimpleNamespace(HAVE_TE=False)
    for_modules["megatron.core.models.T5.t5_spec"](t5)
    for_modules["megatron.core.models.bert.bert_layer_specs"](bert)
    assert (t5.TENorm, bert.bert_layer_with_transformer_engine_spec) == (norm, None)
    patches.undo()
    assert (vars(t5), vars(bert)) == ({"LNImpl": norm}, {"HAVE_TE": False})
    complete = SimpleNamespace(LNImpl=norm, TENorm=1, HAVE_TE=True)
    for name in ("T5.t5_spec", "bert.bert_layer_specs"):
        for_modules[f"megatron.core.models.{name}"](complete)
    assert vars(complete) == {"LNImpl": norm, "TENorm": 1, "HAVE_TE": True}
