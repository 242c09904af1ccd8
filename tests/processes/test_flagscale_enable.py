"""`flagscale-perf enable`, then FlagScale's own run.py and runner with two ranks; `disable`, and nothing of
ours is left.

In a Python environment of its own that sees the packages of this one, so that this one stays as it is.
"""

import os
import subprocess
import sysconfig
import venv

import pytest

from tests.processes import flagscale as fs

pytestmark = pytest.mark.host

EXPERIMENT = """
defaults: [{{train: tiny}}, _self_]
experiment:
  exp_name: tiny
  exp_dir: {exp_dir}
  task: {{type: train, backend: megatron, entrypoint: flagscale/train/train_gpt.py}}
  runner: {{backend: torchrun, nnodes: 1, nproc_per_node: 2}}
  envs: {{CUDA_VISIBLE_DEVICES: "0,1", CUDA_DEVICE_MAX_CONNECTIONS: 1}}
action: run
hydra: {{run: {{dir: "${{experiment.exp_dir}}/hydra"}}}}
"""

TRAIN = """
system:
  tensor_model_parallel_size: 2
  transformer_impl: local
  no_persist_layer_norm: true
  no_gradient_accumulation_fusion: true
  no_masked_softmax_fusion: true
  no_bias_gelu_fusion: true
  no_bias_dropout_fusion: true
  logging: {log_interval: 1}
  checkpoint: {save_interval: 1000}
model:
  num_layers: 2
  hidden_size: 64
  num_attention_heads: 4
  seq_length: 64
  max_position_embeddings: 64
  micro_batch_size: 2
  global_batch_size: 4
  train_iters: 8
  eval_iters: 0
  optimizer: {lr: 1.0e-4}
data:
  mock_data: true
  tokenizer: {tokenizer_type: NullTokenizer, vocab_size: 8000}
"""


@pytest.fixture
def python(tmp_path):
    """The interpreter of a fresh environment with this one's packages, and a torchrun of its own."""
    home = tmp_path / "env"
    venv.create(home, with_pip=False)
    binary = home / "bin" / "python"
    purelib = subprocess.run(
        [binary, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    # `site.addsitedir` reads the .pth files there, too: that is how an editable install is found.
    with open(os.path.join(purelib, "a_parent.pth"), "w") as file:
        file.write(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    torchrun = home / "bin" / "torchrun"
    torchrun.write_text(f"#!{binary}\nfrom torch.distributed.run import main\nmain()\n")
    torchrun.chmod(0o755)
    return binary


def flagscale_perf(python, command):
    done = subprocess.run(
        [python, "-m", "flagscale_perf", command], capture_output=True, text=True, timeout=fs.DEADLINE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_py(python, tmp_path, name, *overrides):
    """FlagScale's own run.py; returns what the job printed, when it has ended."""
    conf = tmp_path / "conf"
    (conf / "train").mkdir(parents=True, exist_ok=True)
    exp_dir = tmp_path / name
    (conf / "train.yaml").write_text(EXPERIMENT.format(exp_dir=exp_dir))
    (conf / "train" / "tiny.yaml").write_text(TRAIN)
    path = os.pathsep.join((str(python.parent), os.environ["PATH"]))
    command = [
        python,
        fs.root() / "run.py",
        "--config-path",
        conf,
        "--config-name",
        "train",
        "action=run",
        *overrides,
    ]
    done = fs.run(list(map(str, command)), tmp_path, PATH=path, PYTHONPATH=str(fs.root()))
    assert done.returncode == 0, done.output
    output = exp_dir / "logs" / "host_0_localhost.output"
    pid = int((exp_dir / "logs" / "pids" / "host_0_localhost.pid").read_text())
    fs.wait_until(lambda: not os.path.exists(f"/proc/{pid}"), f"the job of {name}")
    return output.read_text(), exp_dir


def test_flagscales_own_runner_understands_the_flag_until_disabled(python, tmp_path):
    assert "off" in flagscale_perf(python, "doctor").split("activation", 1)[1].splitlines()[0]
    assert flagscale_perf(python, "enable").startswith("enabled: ")
    assert flagscale_perf(python, "enable").startswith("already enabled: ")
    doctor = flagscale_perf(python, "doctor")
    assert "FlagScale 0.8.0" in doctor
    assert "MISSING  " not in doctor[doctor.index("\nhost") :]

    perf = tmp_path / "perf"
    monitor = [
        "+train.system.enable_perf_monitor=true",
        "+train.system.perf_log_interval=2",
        f"+train.system.perf_log_dir={perf}",
    ]
    output, _ = run_py(python, tmp_path, "enabled", *monitor)
    assert "iteration        8/       8" in output, output[-3000:]
    fs.wait_until(lambda: bool(fs.records(perf, "end")), "the end of the run file")
    assert [step["iteration"] for step in fs.records(perf)] == list(range(1, 9))
    assert fs.records(perf, "header")[0]["facts"]["world_size"] == 2
    assert (perf / "perf_realtime.log").read_text().count("\n20") == 4

    assert flagscale_perf(python, "disable").startswith("disabled: ")
    assert flagscale_perf(python, "disable").startswith("already disabled")
    output, _ = run_py(python, tmp_path, "disabled", *monitor)
    # Without rehearsal FlagScale itself ends here, on a machine without a GPU before it looks at its
    # arguments.
    assert "Megatron requires CUDA" in output or "unrecognized arguments: --enable-perf-monitor" in output
    assert "rehears" not in output
    script = tmp_path / "train_gpt.py"
    script.write_text(
        "import sys; print([name for name in sys.modules if name.startswith('flagscale_perf')])"
    )
    left = subprocess.run(
        [python, script, "--enable-perf-monitor"], capture_output=True, text=True, check=True
    )
    assert left.stdout == "[]\n"
