"""The preloaded library does what the fault suite takes it to do."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.shim import Shim, build

PROGRAM = """
import errno, json, os, socket, sys, time
from pathlib import Path
def tried(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno]
    return ""
below, beside = Path("perf"), Path("perf2")
print(json.dumps({
    "below": tried(lambda: below.mkdir()), "beside": tried(lambda: beside.mkdir()),
    "host": tried(socket.gethostname), "shift_h": round((time.time() - float(sys.argv[1])) / 3600),
    "monotonic": time.monotonic() > 0,
}))
"""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, {"below": "", "beside": "", "host": "", "shift_h": 0}),
        ({"error": 28}, {"below": "ENOSPC", "beside": "", "host": "", "shift_h": 0}),
        ({"hostname": 1, "shift_s": -7200}, {"below": "", "beside": "", "host": "EPERM", "shift_h": -2}),
    ],
    ids=["nothing", "full disk", "system"],
)
def test_what_is_asked_for_fails_and_nothing_else(
    given: dict[str, int], told: dict[str, object], tmp_path: Path
) -> None:
    shim = Shim(build(tmp_path), tmp_path / "control", Path("perf"))
    shim.set(**given)
    command = [sys.executable, "-c", PROGRAM, str(time.time())]
    done = subprocess.run(
        command, cwd=tmp_path, env=shim.environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == told | {"monotonic": True}
    assert (shim.get("calls"), shim.get("on_training")) == (1, 0)
    shim.close()


def test_file_calls_of_a_training_are_seen_by_its_first_thread_only(tmp_path: Path) -> None:
    (tmp_path / "training.py").write_text(
        "import os, threading\n"
        "def calls():\n"
        "    os.makedirs('perf', exist_ok=True)\n"
        "    os.stat('perf'), os.listdir('perf'), os.stat('perf2' if os.path.exists('perf2') else '.')\n"
        "calls()\n"
        "other = threading.Thread(target=calls)\n"
        "other.start(), other.join()\n"
        "os.waitpid(os.fork() or (calls(), os._exit(0)), 0)\n"
    )
    shim = Shim(build(tmp_path), tmp_path / "control", Path("perf"))
    for module, seen in (("training", 3), ("somebody.else", 0)):
        shim.set(on_training=0)
        environment = shim.environment | {"FAULT_TRAINING": module, "PYTHONPATH": str(tmp_path)}
        subprocess.run(
            [sys.executable, "-m", "training"], cwd=tmp_path, env=environment, check=True, timeout=60
        )
        assert shim.get("on_training") == seen
    shim.close()
