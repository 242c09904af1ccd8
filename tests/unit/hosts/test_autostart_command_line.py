"""Which command lines are training workers, and what they ask for."""

import pytest

from flagscale_perf.hosts.autostart import worker_argv

ON = "--enable-perf-monitor"
ASKED = {"FLAGSCALE_PERF_ENABLE_MONITOR": "1"}


@pytest.mark.parametrize(
    ("orig_argv", "environ", "expected"),
    [
        (["python", "-u", "train_gpt.py", ON, "--x"], {}, [ON, "--x"]),
        (["python", "-X", "dev", "train_gpt.py", ON + "=true"], {}, [ON + "=true"]),
        (["python", "train_gpt.py", "--x"], {"FLAGSCALE_PERF_ENABLE_MONITOR": "1"}, ["--x"]),
        (["python", "train_gpt.py", "--x"], {"FLAGSCALE_PERF_ENABLE_MONITOR": "false"}, None),
        (["python", "train_gpt.py", "--x"], {}, None),
        (["python", "-m", "torch.distributed.run", "train_gpt.py", ON], {}, None),
        (["python", "/env/bin/torchrun", "train_gpt.py", ON], {}, None),
        (["python", "/env/bin/accelerate", "launch", "train.py", ON], {}, None),
        (["python", "-m", "accelerate.commands.launch", "train.py", ON], {}, None),
        (["python", "-m", "flagscale_perf.launch", "train.py", ON], {}, None),
        (["python", "/env/lib/torch/distributed/run.py", "train.py", ON], {}, None),
        (["python", "-c", "from host import main; main()", ON], {}, [ON]),
        (["python", "-m", "host.train", ON], {}, [ON]),
        (["python", "-um", "host.train", ON, "--x"], {}, [ON, "--x"]),
        (["python", "-Wignore", "-mhost.train", ON], {}, [ON]),
        (["python", "/env/bin/train-host", ON], {}, [ON]),
        (["python", "bin/train", ON], {}, [ON]),
        (["python", "ray.py", ON], {}, [ON]),
        (["python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()"], ASKED, None),
        (["python", "-m", "host.train"], ASKED, []),
        (["python"], {"FLAGSCALE_PERF_ENABLE_MONITOR": "1"}, None),
    ],
)
def test_only_a_script_that_asks_for_the_monitor_is_a_worker(orig_argv, environ, expected):
    assert worker_argv(orig_argv, environ) == expected
