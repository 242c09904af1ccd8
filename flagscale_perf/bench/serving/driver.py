"""A server of one arm at a time, and the client that measures it by vLLM's own bench."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flagscale_perf.bench.experiment import say
from flagscale_perf.bench.names import MEMORY, PREEMPTIONS
from flagscale_perf.bench.ports import HOST
from flagscale_perf.bench.serving.cases import Arm, Load
from flagscale_perf.bench.serving.measure import GB, Result, Value
from flagscale_perf.bench.serving.model import model_options, vllm_words, write_served
from flagscale_perf.bench.serving.options import Chosen
from flagscale_perf.bench.serving.server import Server, Start, last_error, started
from flagscale_perf.bench.serving.vllm_python import clean_environment, rank_cores
from flagscale_perf.spine.errors import PerfError

CLIENT = Path(__file__).with_name("client.py")
GIB = 1 << 30


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
    if not chosen.devices.are_gpus:
        needed = chosen.model.cache_bytes(2 * in_flight * chosen.longest) or GIB
        environment |= {
            "VLLM_CPU_OMP_THREADS_BIND": rank_cores(arm.devices, chosen.widest, chosen.devices.names),
            "VLLM_CPU_KVCACHE_SPACE": str(max(1, -(-needed // GIB))),
        }
    log = chosen.directory / f"{arm.file}.log"
    return Start(chosen.python, vllm_words(options), environment, log)


class Client:
    """The process that has vLLM imported and runs its bench; see `client`."""

    def __init__(self, python: str, log: Path, server: Server) -> None:
        """Starts it; `ready` waits until it has imported vLLM."""
        self._log = log
        start = Start(python, (), clean_environment(), log)
        self._process = started(start, [str(CLIENT), str(server.pid)], talks=True)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._asked, self._answers = self._process.stdin, self._process.stdout

    def ready(self) -> None:
        """Raises PerfError if the process ends instead, or says what has failed."""
        if not (line := self._answers.readline()):
            raise PerfError(f"vLLM's bench has ended: {last_error(self._log)} ({self._log})")
        if why := json.loads(line).get("error"):
            raise PerfError(f"vLLM's bench failed: {why}")

    def run(self, options: Mapping[str, object]) -> None:
        """Runs `vllm bench serve` once. Raises PerfError if it fails."""
        with contextlib.suppress(BrokenPipeError):  # `ready` says why
            self._asked.write(json.dumps(vllm_words(options)).encode() + b"\n")
            self._asked.flush()
        self.ready()

    def stop(self) -> None:
        """Ends the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._asked, self._answers):
            with contextlib.suppress(BrokenPipeError):  # what it has not read
                pipe.close()


class Driver:
    """vLLM as an engine: a server of one arm at a time, and the client beside it."""

    def __init__(self, chosen: Chosen, in_flight: int) -> None:
        """Starts nothing yet. `in_flight`: requests that a server takes at a time."""
        self._chosen, self._in_flight, self._made = chosen, in_flight, 0
        self._server: Server
        self._client: Client
        write_served(chosen.model, chosen.served)

    @contextlib.contextmanager
    def serve(self, arm: Arm) -> Iterator[None]:
        """Server and client run in the block. Raises PerfError if they do not come up."""
        say(f"starting vLLM for {arm.name} ...")
        start = start_of(self._chosen, self._in_flight, arm)
        with contextlib.ExitStack() as ends:
            self._server = Server(start)
            ends.callback(self._server.stop)
            self._client = Client(start.python, self._chosen.directory / "client.log", self._server)
            ends.callback(self._client.stop)
            self._client.ready()
            self._server.wait(self._chosen.start_s)
            yield

    def run(self, load: Load) -> Result:
        """Makes one measurement. Raises PerfError if it fails, with the server's own reason if that has
        ended.
        """
        self._made += 1
        path, case = self._chosen.directory / f"bench_{self._made:04}.json", load.case
        options = {
            "backend": "vllm",
            "host": HOST,
            "port": self._server.port,
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
        try:
            self._client.run(options)
            return read_result(path, load.requests, case.output)
        except PerfError as error:
            if self._server.ask("/health") is not None:
                raise
            why = f"vLLM's server has failed: {self._server.reason()} ({self._server.log})"
            raise PerfError(why) from error

    def values(self) -> Iterator[Value]:
        """Memory of the server, and whether its cache was large enough."""
        yield MEMORY, "GB", self._server.memory_bytes() / GB, "resident in all processes of the server"
        yield PREEMPTIONS, "", self._server.preemptions(), "vLLM's metrics"
