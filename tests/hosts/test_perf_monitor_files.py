"""What FlagScale's own monitor writes and counts, asked of its own code: every name in its files is in this
package's, too, and it counts as docs/hosts.md says.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.flops_calculator import ModelShape, count
from tests.contract.test_from_perf_monitor import FILES, PAGE
from tests.hosts.trees import MISSING, source_trees

pytestmark = [pytest.mark.host, pytest.mark.other_host]
FOLDER = "flagscale/train/perf_monitor"
# Trains nothing: its callbacks around ten steps, and its calculator of each of the given models.
ASK = """
import contextlib, json, sys
from pathlib import Path
from types import SimpleNamespace
from flagscale.train.perf_monitor.perf_metrics import FLOPSMeasurementCallback, ModelFLOPSCalculator
models, logs = json.loads(sys.argv[1]), Path(sys.argv[2])
tags, shown = [], set()
writer = SimpleNamespace(add_scalar=lambda tag, value, step: tags.append(tag))
wandb = SimpleNamespace(log=lambda figures, step: shown.update(figures))
args = SimpleNamespace(**models["GPT"], perf_log_dir=str(logs), perf_log_interval=4, world_size=2)
monitor = FLOPSMeasurementCallback(args, 4)
for number in range(10):
    monitor.on_train_batch_start(number)
    monitor.on_train_batch_end(number, writer, wandb)
monitor.on_train_end(writer, wandb)
monitor.monitor.step_times = [2.0] * 4
metrics = monitor.monitor.calculate_metrics()
flops = {name: ModelFLOPSCalculator(SimpleNamespace(**model)).calculate_total_flops() for name, model in
         models.items()}
print(json.dumps({"tags": tags, "W&B": sorted(shown), "flops": flops, "samples": metrics.samples_per_second,
                  "total": metrics.tflops_total, "device": metrics.tflops_per_gpu}))
"""
BATCH = {"micro_batch_size": 1, "num_micro_batches": 1}
GPT = BATCH | {
    "num_layers": 24,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "ffn_hidden_size": 8192,
    "seq_length": 2048,
    "max_position_embeddings": 2048,
    "vocab_size": 50257,
    "padded_vocab_size": 50304,
}
LLAMA = BATCH | {
    "num_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_query_groups": 8,
    "group_query_attention": True,
    "ffn_hidden_size": 14336,
    "seq_length": 8192,
    "vocab_size": 128256,
    "padded_vocab_size": 128256,
    "swiglu": True,
    "normalization": "RMSNorm",
    "add_bias_linear": False,
    "untie_embeddings_and_output_weights": True,
    "position_embedding_type": "rope",
}
MIXTRAL = LLAMA | {
    "group_query_attention": False,
    "num_query_groups": 32,
    "num_experts": 8,
    "moe_router_topk": 2,
    "seq_length": 4096,
    "vocab_size": 32000,
    "padded_vocab_size": 32000,
}
QWEN = LLAMA | {
    "num_layers": 48,
    "hidden_size": 2048,
    "kv_channels": 128,
    "num_query_groups": 4,
    "qk_layernorm": True,
    "ffn_hidden_size": 6144,
    "moe_ffn_hidden_size": 768,
    "num_experts": 128,
    "moe_router_topk": 8,
    "seq_length": 4096,
    "vocab_size": 151936,
    "padded_vocab_size": 151936,
}
AS_LLAMA = {"perf_model_type": "llama"}
MODELS = {
    "GPT": GPT,
    "Mixtral": MIXTRAL,
    "Llama": LLAMA | AS_LLAMA,
    "Llama, auto": LLAMA,
    "Llama 4096": LLAMA | AS_LLAMA | {"seq_length": 4096},
    "Llama 4096, auto": LLAMA | {"seq_length": 4096},
    "Qwen": QWEN,
}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, logs: Path) -> dict[str, Any]:
    """What the monitor of the first tree that has one says, run as it is."""
    tree = tmp_path_factory.mktemp("tree")
    if not source_trees():
        pytest.skip(MISSING)
    if not any(unpack(place, tree) for place in source_trees()):
        pytest.skip("no tree there has a performance monitor of its own")
    for package in (tree / "flagscale", tree / "flagscale" / "train"):
        (package / "__init__.py").touch()  # nothing else of the host is imported
    asked = [sys.executable, "-c", ASK, json.dumps(MODELS), str(logs)]
    done = subprocess.run(asked, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def unpack(place: Path, tree: Path) -> bool:
    """Its monitor alone, into `tree`; whether it has one."""
    if place.is_dir():
        if (place / FOLDER).is_dir():
            shutil.copytree(place / FOLDER, tree / FOLDER)
    else:
        with tarfile.open(place) as archive:
            members = [member for member in archive if f"{FOLDER}/" in member.name]
            archive.extractall(tree, members, filter="data")
    return (tree / FOLDER).is_dir()


def test_every_name_in_its_files_is_on_the_page(said: dict[str, Any], logs: Path) -> None:
    summary = json.loads(next(logs.glob("perf_summary_*.json")).read_text())
    live = (logs / "perf_realtime.log").read_text().splitlines()
    (titles,) = (line for line in live if line.startswith("Timestamp"))
    assert set(said["W&B"]) == set(said["tags"])
    names = {
        "session_info": summary["session_info"],
        "final_statistics": summary["final_statistics"],
        "iteration_logs": summary["iteration_logs"][0],
        "TensorBoard": said["tags"],
        "text log": titles.split(),
    }
    assert {(where, name) for where, each in names.items() for name in each} == set(FILES)
    assert [row["iteration"] for row in summary["iteration_logs"]] == [1, 4, 8]
    assert set(summary) == {"session_info", "final_statistics", "iteration_logs"}


def test_it_counts_as_the_page_says(said: dict[str, Any]) -> None:
    half, full = {}, {}
    for name, model in MODELS.items():
        totals = count(ModelShape.from_args(model), 1, model["seq_length"]).totals
        half[name] = said["flops"][name] / totals["model_flops_causal_half"]
        full[name] = said["flops"][name] / totals["model_flops_full_attention"]
    assert [full[name] for name in ("GPT", "Mixtral", "Llama", "Llama 4096")] == pytest.approx(
        [1] * 4, rel=1e-4
    )
    section = PAGE.partition("### Where the figures differ")[2]
    rows = dict(re.findall(r"^\| ([\w ]+) \| (.+?) \|", section, re.MULTILINE))
    said_there = {name: re.findall(r"\d\.\d{3}", row) for name, row in rows.items()}
    assert said_there["the causal half of attention"] == [
        f"{half[n]:.3f}" for n in ("GPT", "Mixtral", "Llama")
    ]
    assert said_there["GQA"] == [
        f"{half['Llama, auto']:.3f}",
        f"{half['Llama']:.3f}",
        f"{full['Llama 4096, auto']:.3f}",
    ]
    assert said_there["experts"] == [f"{half['Qwen']:.3f}"]


def test_it_counts_one_replica(said: dict[str, Any]) -> None:
    """Two devices, each with a micro-batch of one sequence in 2 s: one sample a second is trained."""
    assert said["samples"] == 0.5
    assert said["total"] == pytest.approx(said["flops"]["GPT"] / 2 / 1e12)  # of one replica
    assert said["device"] == said["total"] / 2
