"""FlagScale's own runner, with `flagscale-perf enable` in a Python environment of its own, which sees the
packages of this one, so that this one stays as it is.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from pathlib import Path

from tests.processes import flagscale as fs

EXPERIMENT = """
defaults: [{{train: tiny}}, _self_]
experiment:
  exp_name: tiny
  exp_dir: {exp_dir}
  task: {{type: train, backend: megatron, entrypoint: {entrypoint}}}
  runner: {{backend: torchrun, nnodes: 1, nproc_per_node: {ranks}}}
  envs: {{CUDA_VISIBLE_DEVICES: "0,1", CUDA_DEVICE_MAX_CONNECTIONS: 1}}
action: run
hydra: {{run: {{dir: "${{experiment.exp_dir}}/hydra"}}}}
"""

TRAIN = """
system:
  tensor_model_parallel_size: {ranks}
  transformer_impl: local
  no_persist_layer_norm: true
  no_gradient_accumulation_fusion: true
  no_masked_softmax_fusion: true
  no_bias_gelu_fusion: true
  no_bias_dropout_fusion: true
  logging: {{log_interval: 1}}
  checkpoint: {{save_interval: 1000}}
model:
  num_layers: 2
  hidden_size: 64
  num_attention_heads: 4
  seq_length: 64
  max_position_embeddings: 64
  micro_batch_size: 2
  global_batch_size: 4
  train_iters: {iterations}
  eval_iters: 0
  eval_interval: 1000
  optimizer: {{lr: 1.0e-4}}
data:
  mock_data: true
  tokenizer: {{tokenizer_type: NullTokenizer, vocab_size: 8000}}
"""


def python_of_its_own(home: Path) -> Path:
    """The interpreter of a fresh environment with this one's packages, and a torchrun of its own."""
    venv.create(home, with_pip=False)
    binary = home / "bin" / "python"
    purelib = subprocess.run(
        [binary, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    # `site.addsitedir` reads the .pth files there, too: that is how an editable install is found.
    parent = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    Path(purelib, "a_parent.pth").write_text(parent)
    torchrun = home / "bin" / "torchrun"
    torchrun.write_text(f"#!{binary}\nfrom torch.distributed.run import main\nmain()\n")
    torchrun.chmod(0o755)
    return binary


def flagscale_perf(python: Path, command: str) -> str:
    """What one of our commands prints there."""
    done = subprocess.run(
        [python, "-m", "flagscale_perf", command], capture_output=True, text=True, timeout=fs.DEADLINE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_configuration(conf: Path, exp_dir: Path, entrypoint: str, iterations: int, ranks: int = 2) -> None:
    """`train.yaml` and what it takes in: so many ranks, with tensor parallelism."""
    (conf / "train").mkdir(parents=True, exist_ok=True)
    (conf / "train.yaml").write_text(EXPERIMENT.format(exp_dir=exp_dir, entrypoint=entrypoint, ranks=ranks))
    (conf / "train" / "tiny.yaml").write_text(TRAIN.format(iterations=iterations, ranks=ranks))


def start_and_wait(python: Path, words: list[object], directory: Path, exp_dir: Path, path: str) -> str:
    """`python WORDS...`, which starts a job in the background.

    Returns what the job printed, when it has ended.

    Args:
        path: the PYTHONPATH.
    """
    binaries = os.pathsep.join((str(python.parent), os.environ["PATH"]))
    done = fs.run([str(python), *map(str, words)], directory, PATH=binaries, PYTHONPATH=path)
    assert done.returncode == 0, done.output
    logs = exp_dir / "logs"
    pid = int((logs / "pids" / "host_0_localhost.pid").read_text())
    fs.wait_until(lambda: not os.path.exists(f"/proc/{pid}"), f"the job in {exp_dir}")
    return (logs / "host_0_localhost.output").read_text()
