"""`bench bandwidth`: its options, checked."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.bench.analysis.source import read_bench
from flagscale_perf.bench.bandwidth import experiment
from flagscale_perf.bench.bandwidth.experiment import job_of, prepare, put_ceilings, size_of
from flagscale_perf.bench.bandwidth.links import Card, Topology
from flagscale_perf.spine.errors import PerfError
from tests.bench_runs import book_in


def parsed(*words: str, quick: bool = False) -> Namespace:
    parser = ArgumentParser()
    experiment.add_arguments(parser)
    return parser.parse_args(words, Namespace(quick=quick))


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "_devices", lambda: 0)
    monkeypatch.setattr(experiment, "free_bytes", lambda: 1 << 30)
    monkeypatch.setattr(experiment.os, "getloadavg", lambda: (0.0, 0.0, 0.0))


def test_without_a_gpu_two_ranks_measure_the_processor() -> None:
    job, settings = job_of(parsed())
    assert (job.ranks, job.backend, job.device) == (2, "gloo", "cpu")
    assert (job.sizes[0], job.sizes[-1], job.message_sizes) == (
        1024,
        64 << 20,
        tuple((1 << 20) << n for n in range(7)),
    )
    assert settings["said"][0] == (
        "the largest messages have 67,108,864 bytes: larger ones do not fit into the free memory"
    )


def test_a_largest_size_cuts_the_list_and_needs_no_word() -> None:
    job, settings = job_of(parsed("--max-size", "1M", "--operations", "all_reduce", quick=True))
    assert (job.operations, job.sizes, job.message_sizes) == (
        ("all_reduce",),
        (1024, 65536, 1 << 20),
        (65536, 1 << 20),
    )
    assert not any("largest" in line for line in settings["said"])


def test_one_rank_has_nobody_to_talk_to() -> None:
    job, _ = job_of(parsed("--ranks", "1", quick=True))
    assert (job.operations, job.message_sizes, job.planned) == ((), (), 2)


def test_more_ranks_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "_devices", lambda: 2)
    assert job_of(parsed(quick=True))[0].backend == "nccl"
    with pytest.raises(
        PerfError, match="--ranks 4: this machine has 2 GPUs that torch can use; take --ranks 2"
    ):
        job_of(parsed("--ranks", "4"))


def test_more_ranks_than_the_machine_has_room_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "_devices", lambda: 0)
    with pytest.raises(PerfError, match="--ranks 4000: .* at most; take --ranks .*, or --even-if-busy"):
        job_of(parsed("--ranks", "4000"))
    assert job_of(parsed("--ranks", "4000", "--even-if-busy"))[0].ranks == 4000


def test_nccl_without_a_gpu_is_refused() -> None:
    with pytest.raises(PerfError, match="--backend nccl: there is no GPU that torch can use; leave it out"):
        job_of(parsed("--backend", "nccl"))


@pytest.mark.parametrize(
    ("text", "size"), [("1K", 1 << 10), ("64m", 64 << 20), ("2G", 2 << 30), ("4096", 4096)]
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize(
    "words", [("--max-size", "1"), ("--max-size", "big"), ("--operations", "all_reduce,sum")]
)
def test_what_cannot_be_meant_is_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(*words)
    assert (
        "is not a size of 1K or more" in (said := capsys.readouterr().err)
        or "'sum' is none of all_reduce" in said
    )


CARD = Card(0, "NVIDIA A100", "GPU-a", 4, 25_000, None, None, None, None, None, None, 43)


def test_a_busy_card_is_refused_by_who_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "_devices", lambda: 1)
    monkeypatch.setattr(experiment, "read_topology", lambda: Topology((CARD,)))
    with pytest.raises(PerfError, match=r"GPU 0 is busy \(43 %\) with a process.*--even-if-busy"):
        prepare(parsed(quick=True))
    assert prepare(parsed("--even-if-busy", quick=True)).settings["topology"]["cards"][0]["links"] == 4
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert prepare(parsed(quick=True)).planned == 8


def test_what_the_driver_knows_is_kept_and_what_it_does_not_is_said(tmp_path: Path) -> None:
    with book_in(tmp_path) as book, book.part("bandwidth", None, {}) as part:
        put_ceilings(part, Topology((CARD,)))
        put_ceilings(part, Topology(why="no NVIDIA driver"))
    figures = read_bench(open_session(book.path)).parts["bandwidth"].figures
    assert [(one.case["of"], one.value, one.why) for one in figures] == [
        ("nvlink", 100.0, "4 links of 25 GB/s, the line's rate"),
        ("memory", None, "the driver does not report memory"),
        ("pcie", None, "the driver does not report pcie"),
        *((of, None, "no NVIDIA driver") for of in ("nvlink", "memory", "pcie")),
    ]


def test_a_joined_rank_is_one_of_torchruns(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PerfError, match="--joined: this process is not a rank of torchrun"):
        job_of(parsed("--joined", quick=True))
    for name, value in (("WORLD_SIZE", "8"), ("LOCAL_WORLD_SIZE", "4"), ("RANK", "0")):
        monkeypatch.setenv(name, value)
    assert job_of(parsed("--joined", quick=True))[0].ranks == 8
    assert prepare(parsed("--joined", quick=True)).follow is None  # the first rank writes
    monkeypatch.setenv("RANK", "5")
    assert prepare(parsed("--joined", quick=True)).follow is not None


def test_other_work_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment.os, "getloadavg", lambda: (400.0, 0.0, 0.0))
    assert job_of(parsed(quick=True))[1]["said"][0].startswith(
        "other work keeps this machine busy (load 400.0"
    )
