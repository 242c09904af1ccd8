"""Whether a job fits: what is refused, what is said, and whom nobody has to ask."""

import pytest

from flagscale_perf.launcher import preflight
from flagscale_perf.launcher.config import read_job
from flagscale_perf.launcher.machine import Free
from flagscale_perf.launcher.plan import make_plan
from flagscale_perf.launcher.preflight import Devices, memory_notes
from flagscale_perf.spine.errors import PerfError

GB = 10**9
NO_GPU = Devices(0, None)
# 0.93e9 parameters of 16 bytes: 14.9 GB a rank
MODEL = {
    "num_layers": 16,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "seq_length": 1024,
    "swiglu": True,
    "micro_batch_size": 1,
    "global_batch_size": 8,
    "vocab_size": 32000,
    "disable_bias_linear": True,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "normalization": "RMSNorm",
    "position_embedding_type": "rope",
    "untie_embeddings_and_output_weights": True,
}


@pytest.fixture
def notes(config, monkeypatch):
    """The notes about a job of `ranks` with so much free memory and these devices; None: nobody may ask."""

    def look(free_gb, devices, ranks=8, runner=None, **changed):
        config["experiment"]["runner"] |= {"nproc_per_node": ranks} | (runner or {})
        config["train"]["model"] = MODEL | changed
        free = None if free_gb is None else Free(int(free_gb * GB), "MemAvailable")
        monkeypatch.setattr(preflight.Machine, "free", lambda self: free)

        def ask(plan):
            assert devices is not None
            return devices

        monkeypatch.setattr(preflight, "_ask", ask)
        return memory_notes(make_plan(read_job(config, "/"), {}))

    return look


def test_a_rehearsal_that_does_not_fit_is_refused_with_a_line_that_does(notes) -> None:
    with pytest.raises(PerfError) as refusal:
        notes(24, NO_GPU)
    assert str(refusal.value).splitlines() == [
        "memory: 8 ranks of this model need about 160 GB on the CPU, and 24 GB is free (MemAvailable).",
        "    There is no GPU here, or rehearse_on_cpu is always: all of it is in this machine's memory.",
        "    a rank: 14.9 GB for weights, gradients and optimizer, 4.6 GB for activations, 0.5 GB for"
        " collectives and the process; the machine: 0.0 GB for the order of the samples",
        "    to try it here, add: experiment.runner.nproc_per_node=1 train.model.global_batch_size=2"
        " train.model.num_layers=2",
        "        (about 5.1 GB)",
        "    or only write the script, for the machine that has the GPUs: action=dryrun",
        "    or start it all the same: ++experiment.runner.check_memory=false",
    ]


def test_who_wants_it_all_the_same_is_told_and_not_refused(notes) -> None:
    (said,) = notes(24, NO_GPU, runner={"check_memory": False})
    assert said.startswith("memory: 8 ranks of this model need about 160 GB on the CPU, and 24 GB is free")


def test_fewer_ranks_are_the_first_proposal(notes) -> None:
    with pytest.raises(PerfError, match="to try it here, add: experiment.runner.nproc_per_node=1\n"):
        notes(60, NO_GPU)


def test_a_smaller_model_has_its_parallel_sizes_still(notes) -> None:
    with pytest.raises(PerfError) as refusal:
        notes(12, NO_GPU, tensor_model_parallel_size=2, pipeline_model_parallel_size=2)
    assert (
        "add: experiment.runner.nproc_per_node=4 train.model.num_layers=4 train.model.seq_length=256"
        " train.model.hidden_size=1024\n"
    ) in str(refusal.value)


def test_a_proposal_reads_few_samples_and_multiplies_what_a_cpu_can(notes) -> None:
    with pytest.raises(PerfError) as refusal:
        notes(20, NO_GPU, ranks=1, num_layers=4, train_samples=10**10, lr_warmup_samples=1000, fp16=True)
    assert "the machine: 120 GB for the order of the samples" in str(refusal.value)
    assert (
        "add: experiment.runner.nproc_per_node=1 train.model.global_batch_size=2"
        " train.model.train_samples=200 train.model.lr_warmup_samples=0 train.model.fp16=false\n"
    ) in str(refusal.value)


def test_without_room_for_any_the_demo_is_proposed(notes) -> None:
    with pytest.raises(PerfError, match="to try something here: python run.py train=demo_llama"):
        notes(0.6, NO_GPU)


def test_what_may_not_fit_is_said(notes) -> None:
    assert notes(21, NO_GPU, ranks=1) == [
        "memory: 1 rank of this model needs about 20 GB on the CPU of 21 GB free; it may run out"
    ]


def test_a_small_model_asks_nobody(notes) -> None:
    assert notes(24, None, ranks=2, num_layers=2, hidden_size=256) == []


def test_a_job_with_gpus_is_not_held_against_the_machines_memory(notes) -> None:
    assert notes(24, Devices(8, 80 * GB)) == []


def test_what_cannot_fit_into_a_device_is_only_said(notes) -> None:
    assert notes(2000, Devices(8, 10 * GB)) == [
        "warning: the weights, gradients and optimizer of a rank need about 14.9 GB, and the device has"
        " 10.0 GB: this cannot fit; use more tensor or pipeline parallelism, more ranks with"
        " use_distributed_optimizer, or a smaller model"
    ]


def test_a_python_that_does_not_answer_refuses_nothing(config, monkeypatch) -> None:
    config["train"]["model"] = MODEL
    monkeypatch.setattr(preflight.Machine, "free", lambda self: Free(GB, "MemAvailable"))
    for python in ("/bin/false", "/nowhere/python"):
        config["experiment"]["task"]["python"] = python
        assert memory_notes(make_plan(read_job(config, "/"), {})) == [
            f"memory: not checked: {python} does not say which devices torch sees"
        ]


def test_unknown_memory_is_said(notes) -> None:
    assert notes(None, NO_GPU) == [
        "memory: 8 ranks of this model need about 160 GB on the CPU; how much is free cannot be read here"
    ]


def test_a_model_that_is_not_described_is_not_estimated(notes) -> None:
    assert notes(24, None, hidden_size=None) == [
        "memory: not estimated: model: hidden_size is missing; add it to the arguments"
    ]


def test_a_rank_for_each_device(notes) -> None:
    assert notes(24, Devices(4, 80 * GB), ranks="gpu") == []
    with pytest.raises(PerfError, match="ranks? of this model needs? about"):
        notes(10, NO_GPU, ranks="auto")
