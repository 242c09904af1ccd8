"""The file that runs where vLLM is."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from flagscale_perf.bench.serving import client
from tests.serving import fake_python


def test_it_answers_each_line_and_ends_the_server_when_nobody_asks_any_more(tmp_path: Path) -> None:
    """As when the experiment is killed, and its end of the pipe is closed by the system."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as server:
        lines = [["--unknown"], ["--host", "127.0.0.1", "--port", "1"]]
        ended = subprocess.run(
            [fake_python(tmp_path), str(Path(client.__file__)), str(server.pid)],
            text=True,
            capture_output=True,
            check=True,
            input="".join(json.dumps(line) + "\n" for line in lines),
            timeout=60,
        )
        assert server.wait(60) == -signal.SIGTERM
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert answers[:2] == [{}, {"error": "SystemExit: 2"}]
    assert answers[2]["error"].startswith("ConnectionRefusedError") and len(answers) == 3
