"""Servers of all arms, alive at once, and the one client that measures them by vLLM's own bench."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flagscale_perf.bench.experiment import say
from flagscale_perf.bench.names import MEMORY, PREEMPTIONS
from flagscale_perf.bench.ports import HOST
from flagscale_perf.bench.serving.cases import Arm, Load
from flagscale_perf.bench.serving.measure import GB, Result, Value
from flagscale_perf.bench.serving.model import model_options, vllm_words, write_served
from flagscale_perf.bench.serving.options import Chosen
from flagscale_perf.bench.serving.server import Server, Start, last_error
from flagscale_perf.bench.serving.vllm_python import clean_environment, rank_cores
from flagscale_perf.spine.errors import PerfError

VLLM = "vllm"
CLIENT = Path(__file__).with_name("client.py")
GIB = 1 << 30
MEMORY_SHARE = 0.9  # of a GPU, for all arms together


def read_result(path: Path, requests: int, output: int) -> Result:
    """Raises PerfError for an invalid file, a failed request, or a request with another number of tokens than
    asked for: its times would mean something else.
    """
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        latencies, firsts, itls = found["latencies"], found["ttfts"], found["itls"]
        lengths, done, errors = found["output_lens"], found["completed"], list(found["errors"])
        duration_s, prompts = float(found["duration"]), int(found["total_input_tokens"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PerfError(f"{path}: vLLM's bench wrote no result that is known here ({error!r})") from None
    if done != requests:
        first = next(filter(None, errors), None)
        why = "" if first is None else f": {first.strip().splitlines()[-1]}"
        raise PerfError(f"{requests - done} of {requests} requests failed{why}")
    if set(lengths) != {output}:
        raise PerfError(f"requests made {sorted(set(lengths))} tokens where {output} were asked for")
    told = [
        (first, last)
        for first, last, pieces in zip(firsts, latencies, itls, strict=True)
        if 2 * len(pieces) >= output - 1
    ]
    return Result(
        ttft=[float(first) for first, _ in told],
        tpot=[(last - first) / (output - 1) for first, last in told if output > 1],
        in_few_pieces=requests - len(told),
        latency=[float(last) for last in latencies],
        duration_s=duration_s,
        prompt_tokens=prompts,
        output_tokens=sum(lengths),
    )


def start_of(chosen: Chosen, in_flight: int, arm: Arm) -> Start:
    """How an arm's server is started, that takes so many requests at a time."""
    options = model_options(chosen.model, chosen.served) | {
        "served-model-name": "model",
        "no-enable-prefix-caching": True,
        "max-model-len": chosen.longest,
        "max-num-seqs": in_flight,
        "seed": 0,
        "tensor-parallel-size": arm.tensor,
        "pipeline-parallel-size": arm.pipeline,
        "enforce-eager": chosen.is_eager,
    }
    environment = clean_environment()
    if chosen.devices.are_gpus:
        options["gpu-memory-utilization"] = f"{MEMORY_SHARE / len(chosen.arms):.3f}"
    else:
        needed = chosen.model.cache_bytes(2 * in_flight * chosen.longest) or GIB
        environment |= {
            "VLLM_CPU_OMP_THREADS_BIND": rank_cores(arm.devices, chosen.widest, chosen.devices.names),
            "VLLM_CPU_KVCACHE_SPACE": str(max(1, -(-needed // GIB))),
        }
    log = chosen.directory / f"{arm.file}.log"
    return Start(chosen.python or "", vllm_words(options), environment, log)


class Client:
    """The process that has vLLM imported and runs its bench; see `client`."""

    def __init__(self, chosen: Chosen) -> None:
        """Starts it; `ready` waits until it has imported vLLM. Raises PerfError if the program cannot be
        run.
        """
        self._log = chosen.directory / "client.log"
        self._chosen = chosen
        self._made = 0
        try:
            with open(self._log, "wb") as log:
                self._process = subprocess.Popen(
                    [chosen.python or "", str(CLIENT)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=clean_environment(),
                    text=True,
                    bufsize=1,
                    start_new_session=True,
                )
        except OSError as error:
            raise PerfError(f"{chosen.python}: cannot be run ({error.strerror})") from None
        assert self._process.stdin is not None and self._process.stdout is not None
        self._asked, self._answers = self._process.stdin, self._process.stdout

    def ready(self) -> None:
        """Raises PerfError if the process ends instead."""
        if not (line := self._answers.readline()):
            raise PerfError(f"vLLM's bench has ended: {last_error(self._log)} ({self._log})")
        if why := json.loads(line).get("error"):
            raise PerfError(f"vLLM's bench failed: {why}")

    def run(self, port: int, load: Load) -> Result:
        """Runs `vllm bench serve` once. Raises PerfError if a request or the client fails."""
        self._made += 1
        path, case = self._chosen.directory / f"bench_{self._made:04}.json", load.case
        options = {
            "backend": "vllm",
            "host": HOST,
            "port": port,
            "model": "model",
            "tokenizer": self._chosen.served,
            "dataset-name": "random",
            "random-input-len": case.seq,
            "random-output-len": case.output,
            "num-prompts": load.requests,
            "max-concurrency": load.in_flight,
            "ignore-eos": True,
            "temperature": 0,
            "percentile-metrics": "ttft,tpot,itl,e2el",
            "metric-percentiles": "50,95,99",
            "save-result": True,
            "save-detailed": True,
            "result-dir": path.parent,
            "result-filename": path.name,
            "disable-tqdm": True,
            "seed": load.seed,
            "num-warmups": 0,
        }
        self.ask(vllm_words(options))
        self.ready()
        return read_result(path, load.requests, case.output)

    def ask(self, what: list[str] | int) -> None:
        """Has it run its bench with these options, or end the server of this process id at its own end."""
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
    """An engine: servers and client of the arms; a context manager that stops them in any case.

    Attributes:
        name: of the engine.
        failed: why, by the names of the arms that did not come up or were given up.
    """

    name = VLLM

    def __init__(self, chosen: Chosen, in_flight: int) -> None:
        """Starts nothing yet. `in_flight`: requests that a server takes at a time."""
        self._chosen, self._in_flight = chosen, in_flight
        self._ends = contextlib.ExitStack()
        self._servers: dict[str, Server] = {}
        self.failed: dict[str, str] = {}

    def __enter__(self) -> Driver:
        """Starts all servers together. Raises PerfError if that of the single device does not come up; any
        other arm that does not is in `failed`, with the reason.
        """
        chosen = self._chosen
        say(f"starting vLLM for {', '.join(arm.name for arm in chosen.arms)} ...")
        write_served(chosen.model, chosen.served)
        with self._ends:
            self._client = Client(chosen)
            self._ends.callback(self._client.stop)
            for arm in chosen.arms:
                server = self._servers[arm.name] = Server(start_of(chosen, self._in_flight, arm))
                self._ends.callback(server.stop)
                self._client.ask(server.pid)
            self._client.ready()
            for arm in chosen.arms:
                self._wait(arm)
            self._ends = self._ends.pop_all()
        return self

    def _wait(self, arm: Arm) -> None:
        try:
            self._servers[arm.name].wait(self._chosen.start_s)
        except PerfError as error:
            if arm.devices == 1:
                raise
            self.failed[arm.name] = str(error)

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

    def values(self, arm: Arm) -> Iterator[Value]:
        """Memory of an arm's server, and whether its cache was large enough."""
        server = self._servers[arm.name]
        yield MEMORY, "GB", server.memory_bytes() / GB, "resident in all processes of the server"
        yield PREEMPTIONS, "", server.preemptions(), "vLLM's metrics"

    def __exit__(self, *_: object) -> None:
        self._ends.close()
