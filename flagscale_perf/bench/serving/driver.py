"""Servers of all arms, alive at once, and the one client that measures them by vLLM's own bench."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from flagscale_perf.bench.ports import HOST
from flagscale_perf.bench.serving.cases import Arm, Case
from flagscale_perf.bench.serving.model import Model, write_served
from flagscale_perf.bench.serving.results import Result, read_result
from flagscale_perf.bench.serving.server import Server, Start, last_error
from flagscale_perf.bench.serving.vllm_python import GPU, Devices, clean_environment, plugin_path, rank_cores
from flagscale_perf.spine.errors import PerfError

CLIENT = Path(__file__).with_name("client.py")
GIB = 1 << 30
GPU_BLOCK, CORE_BLOCK = 16, 128  # tokens of a block of vLLM's KV cache
MEMORY_SHARE = 0.9  # of a GPU, for all arms together


class Load(NamedTuple):
    """What the bench sends.

    Attributes:
        case: sizes.
        requests: in all; `in_flight`: at a time.
        warmups: that are sent before.
        seed: of the random tokens.
    """

    case: Case
    requests: int
    in_flight: int
    warmups: int
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
        extra: options of vLLM's server, as the user gave them.
        start_s: that a server may take until it answers.
        port: of the first server; None for free ones.
        profiled: variables of the environment that profile an arm, by its name.
        blocks: of each arm's KV cache, as the user gave them; 0 leaves them to vLLM, None is enough for all
            requests that are in flight.
    """

    python: str
    model: Model
    devices: Devices
    longest: int
    in_flight: int
    directory: Path
    is_eager: bool
    extra: Sequence[str] = ()
    start_s: float = 600.0
    port: int | None = None
    profiled: dict[str, dict[str, str]] = field(default_factory=dict)
    blocks: int | None = None

    @property
    def cache_blocks(self) -> int | None:
        """Blocks of the KV cache in every arm; None leaves them to vLLM, which has more on more devices."""
        if self.blocks is not None:
            return self.blocks or None
        if not self.model.has_plain_cache:
            return None
        block = GPU_BLOCK if self.devices.what == GPU else CORE_BLOCK
        return self.in_flight * -(-self.longest // block) + 1  # vLLM keeps one to itself

    def start(self, arm: Arm, arms: Sequence[Arm], served: Path, port: int | None) -> Start:
        """How an arm's server is started."""
        model = served if not self.model.has_weights else self.model.directory
        options = [
            "--model", str(model), "--served-model-name", "model", "--tokenizer", str(served),
            "--no-enable-prefix-caching", "--max-model-len", str(self.longest),
            "--max-num-seqs", str(self.in_flight), "--seed", "0",
            "--tensor-parallel-size", str(arm.tensor), "--pipeline-parallel-size", str(arm.pipeline),
        ]  # fmt: skip
        options += [] if self.model.has_weights else ["--load-format", "dummy"]
        options += ["--enforce-eager"] if self.is_eager else []
        blocks = self.cache_blocks
        options += [] if blocks is None else ["--num-gpu-blocks-override", str(blocks)]
        environment = clean_environment() | self._place(arm, arms, options)
        if arm.name in self.profiled:
            environment |= self.profiled[arm.name]
            found = filter(None, (str(plugin_path(self.directory / "plugin")), environment.get("PYTHONPATH")))
            environment["PYTHONPATH"] = ":".join(found)
        name = arm.name.replace(" ", "_").lower()
        return Start([*options, *self.extra], environment, self.directory / f"{name}.log", port)

    def _place(self, arm: Arm, arms: Sequence[Arm], options: list[str]) -> dict[str, str]:
        if self.devices.what == GPU:
            shared = len({one.key for one in arms})
            options += ["--gpu-memory-utilization", f"{MEMORY_SHARE / shared:.3f}"]
            return {}
        most = max(one.devices for one in arms)
        needed = self.model.cache_bytes(2 * self.in_flight * self.longest) or GIB
        return {
            "VLLM_CPU_OMP_THREADS_BIND": rank_cores(arm.devices, most, self.devices.names),
            "VLLM_CPU_KVCACHE_SPACE": str(max(1, -(-needed // GIB))),
        }


class Client:
    """The process that has vLLM imported: it starts the servers and runs the bench; see `client`."""

    def __init__(self, setup: Setup) -> None:
        """Starts it; `ready` waits until it has imported vLLM. Raises PerfError if the program cannot be
        run.
        """
        self._log = setup.directory / "client.log"
        self._directory = setup.directory
        self._made = 0
        try:
            with open(self._log, "wb") as log:
                self._process = subprocess.Popen(
                    [setup.python, str(CLIENT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                    env=clean_environment(), text=True, start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            raise PerfError(f"{setup.python}: cannot be run ({error.strerror})") from None

    def serve(self, options: list[str], start: Start) -> int:
        """Starts a server and returns its process id."""
        wanted = {"serve": options, "environment": dict(start.environment), "log": str(start.log)}
        return int(self._ask(wanted)["pid"])

    def ready(self) -> None:
        """Raises PerfError if the process ends instead."""
        self._answer()

    def run(self, server: Server, served: Path, load: Load) -> Result:
        """Runs `vllm bench serve` once. Raises PerfError if a request or the client fails."""
        self._made += 1
        path = self._directory / f"bench_{self._made:04}.json"
        case = load.case
        options = [
            "--backend", "vllm", "--host", HOST, "--port", str(server.port), "--model", "model",
            "--tokenizer", str(served), "--dataset-name", "random", "--random-input-len", str(case.seq),
            "--random-output-len", str(case.output), "--num-prompts", str(load.requests),
            "--max-concurrency", str(load.in_flight), "--num-warmups", str(load.warmups), "--ignore-eos",
            "--temperature", "0", "--percentile-metrics", "ttft,tpot,itl,e2el",
            "--metric-percentiles", "50,95,99", "--save-result", "--save-detailed",
            "--result-dir", str(path.parent), "--result-filename", path.name, "--disable-tqdm",
            "--seed", str(load.seed),
        ]  # fmt: skip
        answer = self._ask({"bench": options})
        if "error" in answer:
            raise PerfError(f"vLLM's bench failed: {answer['error']}")
        return read_result(path, load.requests, case.output)

    def _ask(self, wanted: dict[str, Any]) -> dict[str, Any]:
        try:
            self._pipe(self._process.stdin).write(json.dumps(wanted) + "\n")
            self._pipe(self._process.stdin).flush()
        except OSError:
            raise PerfError(f"vLLM's bench has ended: {last_error(self._log)} ({self._log})") from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self._pipe(self._process.stdout).readline()
        if not line:
            raise PerfError(f"vLLM's bench has ended: {last_error(self._log)} ({self._log})")
        return dict(json.loads(line))

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        if pipe is None:
            raise PerfError("vLLM's bench has no pipe")
        return pipe

    def stop(self) -> None:
        """Ends the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # what it has not read
                self._pipe(pipe).close()


class Driver:
    """Servers and client; a context manager that stops them in any case."""

    def __init__(self, setup: Setup, arms: Sequence[Arm]) -> None:
        """Starts nothing yet."""
        self._setup, self._arms = setup, arms
        self._servers: dict[tuple[int, int], Server] = {}
        self._client: Client | None = None
        self._served = setup.directory / "model"
        self.failed: dict[str, str] = {}

    def __enter__(self) -> Driver:
        """Starts all servers together. Raises PerfError if that of the single device does not come up; any
        other arm that does not is in `failed`, with the reason.
        """
        setup = self._setup
        setup.directory.mkdir(parents=True, exist_ok=True)
        write_served(setup.model, self._served)
        try:
            self._client = Client(setup)
            self._client.ready()
            port = setup.port
            for arm in self._arms:
                if arm.key not in self._servers:
                    self._servers[arm.key] = Server(
                        setup.start(arm, self._arms, self._served, port), self._client.serve
                    )
                    port = None if port is None else port + 1
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait(self) -> None:
        for arm in self._arms:
            if arm.name in self.failed:
                continue
            try:
                self._servers[arm.key].wait(self._setup.start_s)
            except PerfError as error:
                if arm.devices == 1:
                    raise
                self.failed[arm.name] = str(error)

    def server(self, arm: Arm) -> Server:
        """The server of an arm that has not failed."""
        return self._servers[arm.key]

    def run(self, arm: Arm, load: Load) -> Result:
        """Makes one measurement. Raises PerfError if it fails, with the server's own reason if that has
        ended.
        """
        if self._client is None:
            raise PerfError("nothing has been started")
        server = self._servers[arm.key]
        try:
            return self._client.run(server, self._served, load)
        except PerfError as error:
            if server.is_alive and server.ask("/health") is not None:
                raise
            raise PerfError(f"vLLM's server has failed: {server.reason()} ({server.log})") from error

    def stop_servers(self) -> None:
        """Stops the servers so that the files they write are complete."""
        while self._servers:
            self._servers.popitem()[1].stop()

    def __exit__(self, *_: object) -> None:
        self.stop_servers()
        client, self._client = self._client, None
        if client is not None:
            client.stop()
