"""The file that runs where vLLM is."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from flagscale_perf.bench.serving import client
from tests.serving import fake_python


def test_it_answers_each_line_and_goes_on_after_a_mistake(tmp_path: Path) -> None:
    lines = [["--unknown"], ["--host", "127.0.0.1", "--port", "1"]]
    ended = subprocess.run(
        [fake_python(tmp_path), str(Path(client.__file__))], text=True, capture_output=True, check=True,
        input="".join(json.dumps({"bench": line}) + "\n" for line in lines), timeout=60,
    )  # fmt: skip
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert answers[:2] == [{}, {"error": "SystemExit: 2"}]
    assert answers[2]["error"].startswith("ConnectionRefusedError")
