"""Servers of all arms, alive at once, and the one client that measures them by vLLM's own bench."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from flagscale_perf.bench.ports import HOST
from flagscale_perf.bench.serving.cases import Arm, Case
from flagscale_perf.bench.serving.model import Model, write_served
from flagscale_perf.bench.serving.results import Result, read_result
from flagscale_perf.bench.serving.server import Server, Start, last_error
from flagscale_perf.bench.serving.vllm_python import GPU, Devices, clean_environment, rank_cores
from flagscale_perf.spine.errors import PerfError

CLIENT = Path(__file__).with_name("client.py")
GIB = 1 << 30
MEMORY_SHARE = 0.9  # of a GPU, for all arms together


class Load(NamedTuple):
    """What the bench sends.

    Attributes:
        case: sizes.
        requests: in all; `in_flight`: at a time.
        seed: of the random tokens.
    """

    case: Case
    requests: int
    in_flight: int
    seed: int


@dataclass(frozen=True)
class Setup:
    """What all arms share.

    Attributes:
        python: that has vLLM.
        model: what is served.
        devices: of this machine.
        longest: tokens of a request, at most; `in_flight`: requests at a time, at most.
        directory: of what vLLM and its bench write.
        is_eager: whether nothing is compiled.
        start_s: that a server may take until it answers.
        port: of the first server; None for free ones.
    """

    python: str
    model: Model
    devices: Devices
    longest: int
    in_flight: int
    directory: Path
    is_eager: bool
    start_s: float = 600.0
    port: int | None = None

    @property
    def served(self) -> Path:
        """The directory with configuration and tokenizer."""
        return self.directory / "model"

    def start(self, arm: Arm, arms: Sequence[Arm], port: int | None) -> Start:
        """How an arm's server is started."""
        options = [
            "--model",
            str(self.model.directory if self.model.has_weights else self.served),
            "--served-model-name",
            "model",
            "--tokenizer",
            str(self.served),
            "--no-enable-prefix-caching",
            "--max-model-len",
            str(self.longest),
            "--max-num-seqs",
            str(self.in_flight),
            "--seed",
            "0",
            "--tensor-parallel-size",
            str(arm.tensor),
            "--pipeline-parallel-size",
            str(arm.pipeline),
            *([] if self.model.has_weights else ["--load-format", "dummy"]),
            *(["--enforce-eager"] if self.is_eager else []),
        ]
        environment = clean_environment()
        if self.devices.what == GPU:
            options += ["--gpu-memory-utilization", f"{MEMORY_SHARE / len(arms):.3f}"]
        else:
            needed = self.model.cache_bytes(2 * self.in_flight * self.longest) or GIB
            most = max(one.devices for one in arms)
            environment |= {
                "VLLM_CPU_OMP_THREADS_BIND": rank_cores(arm.devices, most, self.devices.names),
                "VLLM_CPU_KVCACHE_SPACE": str(max(1, -(-needed // GIB))),
            }
        return Start(self.python, options, environment, self.directory / f"{arm.file}.log", port)


class Client:
    """The process that has vLLM imported and runs its bench; see `client`."""

    def __init__(self, setup: Setup) -> None:
        """Starts it; `ready` waits until it has imported vLLM. Raises PerfError if the program cannot be
        run.
        """
        self._log = setup.directory / "client.log"
        self._setup = setup
        self._made = 0
        try:
            with open(self._log, "wb") as log:
                self._process = subprocess.Popen(
                    [setup.python, str(CLIENT)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=clean_environment(),
                    text=True,
                    bufsize=1,
                    start_new_session=True,
                )
        except OSError as error:
            raise PerfError(f"{setup.python}: cannot be run ({error.strerror})") from None
        assert self._process.stdin is not None and self._process.stdout is not None
        self._asked, self._answers = self._process.stdin, self._process.stdout

    def ready(self) -> None:
        """Raises PerfError if the process ends instead."""
        if not (line := self._answers.readline()):
            raise PerfError(f"vLLM's bench has ended: {last_error(self._log)} ({self._log})")
        if why := json.loads(line).get("error"):
            raise PerfError(f"vLLM's bench failed: {why}")

    def watch(self, pid: int) -> None:
        """The server of this process id ends with this process's parent."""
        self._ask(pid)

    def run(self, port: int, load: Load) -> Result:
        """Runs `vllm bench serve` once. Raises PerfError if a request or the client fails."""
        self._made += 1
        path, case = self._setup.directory / f"bench_{self._made:04}.json", load.case
        options = [
            "--backend",
            "vllm",
            "--host",
            HOST,
            "--port",
            str(port),
            "--model",
            "model",
            "--tokenizer",
            str(self._setup.served),
            "--dataset-name",
            "random",
            "--random-input-len",
            str(case.seq),
            "--random-output-len",
            str(case.output),
            "--num-prompts",
            str(load.requests),
            "--max-concurrency",
            str(load.in_flight),
            "--ignore-eos",
            "--temperature",
            "0",
            "--percentile-metrics",
            "ttft,tpot,itl,e2el",
            "--metric-percentiles",
            "50,95,99",
            "--save-result",
            "--save-detailed",
            "--result-dir",
            str(path.parent),
            "--result-filename",
            path.name,
            "--disable-tqdm",
            "--seed",
            str(load.seed),
            "--num-warmups",
            "0",
        ]
        self._ask(options)
        self.ready()
        return read_result(path, load.requests, case.output)

    def _ask(self, what: object) -> None:
        with contextlib.suppress(BrokenPipeError):  # `ready` says why
            print(json.dumps(what), file=self._asked)

    def stop(self) -> None:
        """Ends the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._asked, self._answers):
            with contextlib.suppress(BrokenPipeError):  # what it has not read
                pipe.close()


class Driver:
    """Servers and client; a context manager that stops them in any case.

    Attributes:
        failed: why, by the names of the arms that did not come up or were given up.
    """

    def __init__(self, setup: Setup, arms: Sequence[Arm]) -> None:
        """Starts nothing yet."""
        self._setup, self._arms = setup, arms
        self._ends = contextlib.ExitStack()
        self._servers: dict[str, Server] = {}
        self.failed: dict[str, str] = {}

    def __enter__(self) -> Driver:
        """Starts all servers together. Raises PerfError if that of the single device does not come up; any
        other arm that does not is in `failed`, with the reason.
        """
        setup = self._setup
        write_served(setup.model, setup.served)
        with self._ends:
            self._client = Client(setup)
            self._ends.callback(self._client.stop)
            for place, arm in enumerate(self._arms):
                port = None if setup.port is None else setup.port + place
                server = self._servers[arm.name] = Server(setup.start(arm, self._arms, port))
                self._ends.callback(server.stop)
                self._client.watch(server.pid)
            self._client.ready()
            for arm in self._arms:
                self._wait(arm)
            self._ends = self._ends.pop_all()
        return self

    def _wait(self, arm: Arm) -> None:
        try:
            self._servers[arm.name].wait(self._setup.start_s)
        except PerfError as error:
            if arm.devices == 1:
                raise
            self.failed[arm.name] = str(error)

    def server(self, arm: Arm) -> Server:
        """The server of an arm."""
        return self._servers[arm.name]

    def run(self, arm: Arm, load: Load) -> Result:
        """Makes one measurement. Raises PerfError if it fails, with the server's own reason if that has
        ended.
        """
        server = self._servers[arm.name]
        try:
            return self._client.run(server.port, load)
        except PerfError as error:
            if server.ask("/health") is not None:
                raise
            raise PerfError(f"vLLM's server has failed: {server.reason()} ({server.log})") from error

    def __exit__(self, *_: object) -> None:
        self._ends.close()
