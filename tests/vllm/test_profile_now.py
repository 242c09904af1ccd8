"""A real `vllm serve` that is profiled when somebody asks: it goes on answering, and with the same tokens."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flagscale_perf.profile.asked import REQUEST_FILE, request_in
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.store.run_file import RunFile
from tests.vllm.conftest import REPO, Serve
from tests.vllm.served import ANSWER_S, Server
from tests.vllm.test_generate import Profiled

TOKENS = 12  # of an answer, the first of which is the prefill's
# One at a time: what else is in a step changes how the products round. The others wait.
ALONE = ["--max-num-seqs", "1", "--no-enable-prefix-caching", "--no-async-scheduling"]
# Without it vLLM kills its workers in the moment in which it is asked to stop.
IN_ORDER = ["--shutdown-timeout", "60"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profile")


@pytest.fixture(scope="module")
def server(serve: Serve, directory: Path) -> Iterator[Server]:
    words = ["--tensor-parallel-size", "2", "--enforce-eager", *ALONE, *IN_ORDER]
    yield from serve(words, {"FLAGSCALE_PERF_PROFILE_DIR": str(directory)})


@pytest.fixture(scope="module")
def usual(server: Server) -> list[list[int]]:
    """What each of some prompts is answered by a server of which nothing is profiled."""
    return [server.tokens(number, TOKENS) for number in range(3)]


class Clients:
    """Two, each of which asks again as soon as it is answered.

    Attributes:
        answers: so far, with the prompt's number.
    """

    def __init__(self, server: Server, prompts: int) -> None:
        self.answers: list[tuple[int, list[int]]] = []
        self._server, self._prompts = server, prompts
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(first,)) for first in (0, 1)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int) -> None:
        while not self._is_over.is_set():
            self.answers.append((number, self._server.tokens(number, TOKENS)))
            number = (number + 1) % self._prompts


def ask(directory: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "flagscale_perf", "profile", "now", str(directory), *words],
        cwd=REPO,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_until(condition: Callable[[], object], what: str) -> None:
    end_s = time.monotonic() + ANSWER_S
    while not condition():
        assert time.monotonic() < end_s, f"waited in vain for {what}"
        time.sleep(0.02)


def newest(directory: Path) -> Path:
    return max(directory.glob("perf_records_*.jsonl"))


def counts(found: Profiled, process: int) -> Counter[str]:
    """Its steps of each phase."""
    return Counter(phase for phase, _ in found.steps[process])


def test_requests_in_flight_are_answered_as_ever_and_a_second_profile_is_refused(
    server: Server, directory: Path, usual: list[list[int]]
) -> None:
    with Clients(server, len(usual)) as clients:
        first = ask(directory, "--requests", "6")
        wait_until(lambda: request_in(directory), "the request")
        second = ask(directory, "--seconds", "1")
        said = second.communicate(timeout=ANSWER_S)[1]
        assert (second.returncode, first.poll()) == (2, None)
        assert "asked for before and is not written yet" in said
        printed, complaint = first.communicate(timeout=ANSWER_S)
        answered = len(clients.answers)
        wait_until(lambda: len(clients.answers) > answered + 4, "answers behind the profile")
    assert first.returncode == 0, complaint
    assert printed == f"profiled; then see: flagscale-perf profile report {directory}\n"
    assert [tokens for _, tokens in clients.answers] == [usual[number] for number, _ in clients.answers]
    assert not (directory / REQUEST_FILE).exists()
    found = Profiled.read(directory)
    assert sorted(rank.rank for rank in found.ranks.values()) == [0, 1]
    for process in found.ranks:
        assert 5 <= counts(found, process)["prefill"] <= 7  # the first was under way, the last was not over
        assert {phase for phase, _ in found.steps[process]} == {"prefill", "decode"}
        found.check_books(process)
    assert "flagscale_perf profile" not in server.said


def test_so_many_steps(server: Server, directory: Path, usual: list[list[int]]) -> None:
    with Clients(server, len(usual)) as clients:
        asked = ask(directory, "--steps", "3")
        assert asked.wait(ANSWER_S) == 0
    assert [tokens for _, tokens in clients.answers] == [usual[number] for number, _ in clients.answers]
    found = Profiled.of(newest(directory))
    profiled = [sum(step.is_profiled for _, step in steps) for steps in found.steps.values()]
    assert profiled == [3, 3]


def test_a_server_that_is_stopped_has_written_every_step(server: Server, directory: Path) -> None:
    before = set(directory.glob("perf_records_*.jsonl"))
    asked = ask(directory, "--seconds", "60")
    wait_until(lambda: request_in(directory), "the request")
    request = request_in(directory)
    assert request is not None
    wait_until(lambda: time.time() > request.begin_unix_s + 1, "the moment that it names")
    for number in range(3):
        server.tokens(number, TOKENS)
    server.end()
    assert asked.wait(ANSWER_S) == 0
    (path,) = set(directory.glob("perf_records_*.jsonl")) - before
    found = Profiled.of(path)
    assert [counts(found, process) for process in found.ranks] == [
        Counter(prefill=3, decode=3 * (TOKENS - 1))
    ] * 2
    for process in found.ranks:
        found.check_books(process)
    assert [record.reason for record in RunFile(path) if isinstance(record, RunEnd)] == ["completed"]
    assert not (directory / REQUEST_FILE).exists()
    refused = ask(directory, "--seconds", "1")
    assert "no server of vLLM looks into" in refused.communicate(timeout=ANSWER_S)[1]
