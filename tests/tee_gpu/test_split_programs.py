"""examples/tee_gpu as a user runs it: a server and a runner, in two processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from split_inference.client import GPUClient, GPUClientOptions
from split_inference.forward import ProtectedModel, SplitOptions
from split_inference.traffic import CallTraffic, Pass, Stage, pass_traffic

from flagscale_perf.rpc.records import Status
from tests.conftest import REPO
from tests.tee_gpu import programs
from tests.tee_gpu.programs import HERE, Run, server

TREE = """\
Total time: # s
├─ GPU compute:                     # s ( #%)
│  ├─ Embedding:                    # s ( #%)
│  ├─ Linear:                       # s ( #%)
│  └─ Matmul:                       # s ( #%)
├─ RPC:                             # s ( #%)
│  ├─ Serialize:                    # s ( #%)
│  ├─ Deserialize:                  # s ( #%)
│  └─ Transport:                    # s ( #%)
└─ TEE compute:                     # s ( #%)
"""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory) -> Iterator[str]:
    endpoint = f"ipc://{tmp_path_factory.mktemp('server')}/gpu.ipc"
    with server(endpoint) as lines:
        assert lines == ["Device: cpu, Dtype: torch.float32", f"GPU server listening at {endpoint}"]
        yield endpoint


@pytest.fixture
def run(tmp_path, endpoint) -> Run:
    return partial(programs.run, cwd=tmp_path, LLAMA_IPC_PATH=endpoint)


def masked(text: str) -> str:
    """The text with `#` for every figure that a clock gave, and one space for many."""
    return re.sub(r" +", " ", re.sub(r"\d+\.\d+", "#", text))


def test_the_runner_prints_what_the_requirement_shows(run, endpoint, tmp_path) -> None:
    made = run("tee_runner_optimized.py", "--check")
    assert (made.returncode, made.stderr) == (0, "")
    lines = made.stdout.splitlines()
    assert lines[:2] == [f"✓ Connected to GPU server at {endpoint}", "  Transport type: IPC"]
    bound, measured = map(
        float, re.fullmatch(r"  Expected latency: <([\d.]+)ms \(measured: ([\d.]+) ms\)", lines[2]).groups()
    )
    assert measured < bound <= 2.5 * max(measured, 0.005)
    assert lines[4] == "  Device: cpu, Dtype: torch.float32"
    tree = made.stdout[made.stdout.index("Total time") : made.stdout.index("Performance statistics")]
    assert masked(tree) == masked(TREE)
    leaves = re.findall(r"^(?:│  .*|└─.*)\( *([\d.]+)%\)$", tree, re.MULTILINE)
    assert sum(int(share.replace(".", "")) for share in leaves) == 1000
    assert "RPC Calls:        98\nCalls in all:     99 (with Init)\n" in made.stdout
    log = (tmp_path / "zmq_performance.log").read_text().splitlines()
    assert log[0] == "ZeroMQ Performance Log - Transport: IPC"
    assert [line.split()[:2] for line in log if re.match(r"(1|2|99) ", line)] == [
        ["1", "Init"],
        ["2", "Embedding"],
        ["99", "LMHead"],
    ]
    assert lines[-1].startswith("Check: ")
    assert "bit for bit" in lines[-1] or float(re.search(r"at most (\S+) from", lines[-1]).group(1)) <= 1e-5


def test_tokens_do_not_depend_on_how_the_model_is_split(run) -> None:
    common = ("tee_runner_optimized.py", "--generate", "6", "--tokens", "9", "--batch", "2")
    split = [(), ("--stage", "fused_blocks"), ("--no-repeat-kv", "--payload", "frames")]
    found = [re.findall("^Tokens: .*", run(*common, *more).stdout, re.MULTILINE) for more in split]
    assert len(found[0]) == 1
    assert found[0] == found[1] == found[2]


def test_micro_batches_overlap_and_the_shares_still_add_up(run) -> None:
    made = run("tee_runner_optimized.py", "--batch", "2", "--pipeline", "2", "--tokens", "16")
    assert made.returncode == 0, made.stderr
    assert "Waiting for the GPU side" in made.stdout
    assert "RPC Calls:        196\n" in made.stdout
    leaves = re.findall(r"^(?:│  .*|└─.*)\( *([\d.]+)%\)$", made.stdout, re.MULTILINE)
    assert sum(int(share.replace(".", "")) for share in leaves) == 1000


@pytest.mark.parametrize("payload", ["auto", "frames"])
@pytest.mark.parametrize("stage", Stage)
def test_bytes_of_calls_are_the_closed_form(endpoint, stage, payload) -> None:
    ids, records = torch.arange(42).reshape(2, 21), []
    with GPUClient(endpoint, None, GPUClientOptions(payload, record=False), say=len) as client:
        model = ProtectedModel(client, SplitOptions(stage, repeat_kv=False))
        client.statistics = SimpleNamespace(add=records.append)
        cache = model.cache(2, 22)
        model.logits(ids, cache)
        model.logits(ids[:, :1], cache)
    first = Pass(stage, batch=2, tokens=21, repeat_kv=False)
    expected = [
        *pass_traffic(model.sizes, first),
        *pass_traffic(model.sizes, replace(first, tokens=1, cached=21)),
    ]
    assert [CallTraffic(each.method, each.sent_bytes, each.received_bytes) for each in records] == expected
    assert {each.status for each in records} == {Status.OK}


def test_the_baseline_gives_the_same_logits(tmp_path) -> None:
    endpoint = f"ipc://{tmp_path}/gpu.ipc"
    common = ("--ipc-path", endpoint, "--payload", "msgpack")
    with server(endpoint, "--dtype", "bfloat16"):
        made = programs.run("tee_runner_optimized.py", *common, "--check", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "  Payload: msgpack\n" in made.stdout
    assert "RPC Calls:        98\n" in made.stdout
    assert made.stdout.endswith("Check: equal to the monolithic model, bit for bit\n")


def test_a_client_has_the_requirements_methods(endpoint, tmp_path) -> None:
    options = GPUClientOptions(methods="BatchLinear", directory=str(tmp_path / "run"))
    x = torch.ones(1, 4, 256)
    with GPUClient(endpoint, str(tmp_path / "own.log"), options) as gpu:
        query, key, value = gpu.batch_linear(x, layer=0, weights="qkv")
        heads = query.unflatten(-1, (8, 32)).transpose(1, 2)
        scores = gpu.matmul(heads, heads, transposed=True)
        assert torch.allclose(scores, heads @ heads.transpose(2, 3), rtol=1e-4, atol=1e-5)
        assert gpu.fused_layer(x).shape == x.shape
        assert torch.equal(
            gpu._send_request("MLP", {"tensors": [x], "layer": 1})["tensors"][0],
            gpu._send_request("MLP", {"tensors": [x], "layer": 1})["tensors"][0],
        )
        assert (key.shape, value.shape) == ((1, 4, 64), (1, 4, 64))
    rows = [line.split()[1] for line in (tmp_path / "own.log").read_text().splitlines() if line[:1].isdigit()]
    assert rows == ["BatchLinear"]


def test_names_of_the_logs_are_the_users(run, tmp_path) -> None:
    made = run(
        "tee_runner_optimized.py",
        "--log-file",
        "my_custom_log.log",
        "--methods",
        "Matmul",
        "--perf-log-dir",
        "runs",
    )
    assert made.returncode == 0, made.stderr
    log = (tmp_path / "my_custom_log.log").read_text()
    assert {line.split()[1] for line in log.splitlines() if re.match(r"\d+ ", line)} == {"Matmul"}
    assert {path.name for path in tmp_path.iterdir()} == {"my_custom_log.log", "runs"}


def test_statistics_are_printed_when_the_run_fails(run) -> None:
    made = run("tee_runner_optimized.py", "--tokens", "40000")
    assert made.returncode == 2
    assert "RPC Calls:        0\n" in made.stdout
    assert "40000 tokens are more than the model's 32768" in made.stderr


def test_more_micro_batches_than_the_server_takes_are_refused(run) -> None:
    made = run("tee_runner_optimized.py", "--batch", "3", "--pipeline", "3")
    assert made.returncode == 2
    assert "the server takes 2 calls at a time: start it with --slots 3" in made.stderr


def test_another_type_than_the_servers_is_refused(run) -> None:
    made = run("tee_runner_optimized.py", LLAMA_DTYPE="bfloat16")
    assert made.returncode == 2
    assert (
        "LLAMA_DTYPE is bfloat16 here, and the server computes in torch.float32: start it anew" in made.stderr
    )


def test_every_method_in_turn(run) -> None:
    made = run("test_simple.py")
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.endswith("14 of 14 calls passed\n")
    assert len(re.findall(r"^\[ ?\d+/14\] .* ok ", made.stdout, re.MULTILINE)) == 14


def test_a_failing_method_shows_the_servers_stack(tmp_path) -> None:
    endpoint, broken = f"ipc://{tmp_path}/gpu.ipc", tmp_path / "broken.py"
    broken.write_text(
        "import server_optimized, split_inference.server as methods\n"
        "methods.METHODS['MLP'] = lambda side, work: 1 / 0\n"
        "server_optimized.main()"
    )
    words = ("--ipc-path", endpoint, "--config", "tiny-mha")
    with programs.start(str(broken), *words, PYTHONPATH=f"{HERE}:{REPO}") as process:
        try:
            made = programs.run("test_simple.py", *words[:2], "--wait", "60", cwd=tmp_path)
        finally:
            process.terminate()
            process.communicate()
    assert made.returncode == 1
    assert "[12/14] MLP                  FAILED\nTraceback (most recent call last):" in made.stdout
    assert "ZeroDivisionError: division by zero" in made.stdout
    assert 'server.py", line' in made.stdout
    assert made.stdout.endswith("13 of 14 calls passed\n")


def test_a_server_of_another_model_and_type_that_records_too(tmp_path) -> None:
    endpoint, served = f"ipc://{tmp_path}/gpu.ipc", tmp_path / "served"
    words = ("--config", "qwen3-tiny", "--perf-log-dir", str(served))
    with server(endpoint, *words, LLAMA_DTYPE="bfloat16") as lines:
        assert lines[0] == "Device: cpu, Dtype: torch.bfloat16"
        made = programs.run(
            "tee_runner_optimized.py",
            "--ipc-path",
            endpoint,
            "--check",
            "--config",
            "qwen3-tiny",
            cwd=tmp_path,
        )
    assert made.returncode == 0, made.stderr
    assert made.stdout.endswith("Check: equal to the monolithic model, bit for bit\n")
    (written,) = served.glob("perf_records_*.jsonl")
    assert written.read_text().count('"Embedding"') == 1


@pytest.mark.parametrize(
    ("program", "words", "said"),
    [
        ("server_optimized.py", ["--config", "tyni"], "--config 'tyni' is not known; write one of: tiny"),
        ("tee_runner_optimized.py", ["--wait", "0.1"], "no server answered at"),
        ("test_simple.py", ["--wait", "0.1"], "no server answered at"),
    ],
)
def test_a_users_mistake_is_said_in_one_line(tmp_path, program, words, said) -> None:
    made = programs.run(program, "--ipc-path", f"ipc://{tmp_path}/nobody.ipc", *words, cwd=tmp_path)
    assert made.returncode == 2
    assert said in made.stderr
    assert "Traceback" not in made.stderr
