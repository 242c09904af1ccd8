"""`vllm serve` as it is, with the plug-in beside it, and what a client of it does."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.vllm.generate import PROMPT_TOKENS

READY_S, ANSWER_S, END_S = 900, 600, 120


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """One that runs.

    Attributes:
        model: what it calls its model.
    """

    def __init__(self, model: Path, words: list[str], environment: Mapping[str, str], cwd: Path) -> None:
        """Starts it. `words`: options beside those that a model without weights and tokens needs."""
        self._port, self.model = free_port(), str(model)
        self._log = cwd / "serve.log"
        needed = ["--load-format", "dummy", "--skip-tokenizer-init", "--dtype", "bfloat16"]
        sizes = ["--max-model-len", "128", "--max-num-seqs", "4", "--port", str(self._port)]
        command = [str(Path(sys.executable).with_name("vllm")), "serve", self.model, *needed, *sizes, *words]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=cwd,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._dice = random.Random(0)

    def wait_until_ready(self) -> None:
        """Answers."""
        end_s = time.monotonic() + READY_S
        while time.monotonic() < end_s and self._process.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self._port}/health", timeout=5).close()
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        raise AssertionError(f"the server does not answer:\n{self.said[-4000:]}")

    @property
    def said(self) -> str:
        """All of its processes."""
        return self._log.read_text(errors="replace")

    def post(self, path: str, **body: Any) -> str:
        """Sends it, and waits for the answer."""
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=ANSWER_S) as answer:
            return str(answer.read().decode())

    def complete(self, requests: int, tokens: int) -> None:
        """One request after another, each with another prompt, so that none is in the cache."""
        for _ in range(requests):
            self._answer(self._dice, tokens)

    def tokens(self, number: int, tokens: int) -> list[int]:
        """So many, which answer the prompt of that number."""
        (choice,) = json.loads(self._answer(random.Random(number), tokens))["choices"]
        return list(choice["token_ids"])

    def _answer(self, dice: random.Random, tokens: int) -> str:
        return self.post(
            "/v1/completions",
            model=self.model,
            prompt=[dice.randrange(3, 1000) for _ in range(PROMPT_TOKENS)],
            max_tokens=tokens,
            temperature=0,
            ignore_eos=True,
            detokenize=False,
            return_token_ids=True,
        )

    def end(self) -> None:
        """Asks it to, as an operator does; what is left of its processes then is killed."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
