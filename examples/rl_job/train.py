"""A small RL job with everything that a large one has: GRPO over Ray, verl's worker groups and TransferQueue,
an actor in Megatron-Core, and a reward model behind ZeroMQ. Three faults can be planted; at the end it says,
by clocks of its own, what a step waited for, and what they cost.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import logging
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
OF_QUEUE = str(HERE.parent / "transfer_queue")
# Of Ray's workers, too: they import what this imports.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), OF_QUEUE, os.environ.get("PYTHONPATH")]))
sys.path.insert(1, OF_QUEUE)
os.environ.setdefault("TQ_NUM_THREADS", "2")  # more than there are CPUs make it slower
os.environ.setdefault("RAY_DEDUP_LOGS", "0")
os.environ.setdefault("TRANSFER_QUEUE_ENABLE", "1")
warnings.filterwarnings("ignore", category=FutureWarning)

import ray  # noqa: E402
import torch  # noqa: E402
import transfer_queue  # noqa: E402
import workers  # noqa: E402
from actor import PARTITION, ActorWorker, Setup, Trained  # noqa: E402
from model import PROMPT_TOKENS, VOCABULARY  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from reward import RewardWorker  # noqa: E402
from slow_unit import slowed  # noqa: E402
from tensordict import TensorDict  # noqa: E402
from transfer_queue import KVBatchMeta  # noqa: E402
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup  # noqa: E402

from flagscale_perf import tracing  # noqa: E402

CPUS = 16  # that Ray believes in: one for each process, whatever the machine has
LAYERS, MICRO_BATCH, RANKS = 4, 8, 2
NS_PER_MS = 1e6


@dataclasses.dataclass(frozen=True)
class Groups:
    """verl's worker groups."""

    rollout: RayWorkerGroup
    reward: RayWorkerGroup
    reference: RayWorkerGroup
    actor: RayWorkerGroup


def options() -> argparse.Namespace:
    """What was typed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="of all that is recorded, in it and right below")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--prompts", type=int, default=8, help="of a step")
    parser.add_argument("--group", type=int, default=4, help="responses to each prompt")
    parser.add_argument("--profile-steps", default="5-8", help="steps to profile (%(default)s)")
    parser.add_argument(
        "--slow-unit", type=int, metavar="NUMBER", help="this storage unit, from 0, is stopped often"
    )
    parser.add_argument("--unit-ms", type=float, default=50.0, help="each time for so long (%(default)s)")
    parser.add_argument(
        "--slow-reward", type=float, default=0.0, metavar="MS", help="each score takes so much longer"
    )
    parser.add_argument(
        "--slow-module", type=int, choices=range(LAYERS), metavar="LAYER",
        help="the MLP of this layer of the actor, from 0, sleeps in its forward pass",
    )  # fmt: skip
    parser.add_argument("--module-ms", type=float, default=50.0, help="each time for so long (%(default)s)")
    args = parser.parse_args()
    if args.prompts * args.group % (MICRO_BATCH * RANKS):
        parser.error(f"{args.prompts} x {args.group} samples are no multiple of {MICRO_BATCH * RANKS}")
    return args


@contextlib.contextmanager
def reward_server(endpoint: str, directory: Path, slow_ms: float) -> Iterator[None]:
    """The server of rewards is there; it stops when it is asked to, and in any case at the end."""
    words = [sys.executable, HERE / "reward_server.py", endpoint, directory, "--slow-ms", str(slow_ms)]
    server = subprocess.Popen(words)
    try:
        yield
        server.wait(30)
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()


@contextlib.contextmanager
def cluster(directory: Path) -> Iterator[None]:
    """A Ray of its own, which keeps its files in this directory."""
    # With this package's launcher in front, Megatron-Core runs in workers without a GPU, too.
    runs = f"{sys.executable} -m flagscale_perf.launch"
    ray.init(
        address="local", num_cpus=CPUS, include_dashboard=False, logging_level=logging.ERROR,
        _temp_dir=str(directory), runtime_env={"py_executable": runs},
    )  # fmt: skip
    try:
        transfer_queue.init(OmegaConf.create({"controller": {"polling_mode": True}}))
        yield
        transfer_queue.close()
    finally:
        ray.shutdown()


def start(args: argparse.Namespace, endpoint: str) -> Groups:
    """The groups: two workers generate, two learn, one does each of the rest."""
    setup = Setup(
        args.steps, args.prompts * args.group, MICRO_BATCH, LAYERS, args.slow_module, args.module_ms / 1000
    )
    monitor = {
        "FLAGSCALE_PERF_ENABLE_MONITOR": "1",
        "FLAGSCALE_PERF_LOG_DIR": str(args.directory),
        "FLAGSCALE_PERF_LOG_INTERVAL": "5",
        "FLAGSCALE_PERF_BREAKDOWN": "1",
        "FLAGSCALE_PERF_PROFILE_STEPS": args.profile_steps,
    }
    return Groups(
        rollout=group("rollout", 2, workers.RolloutWorker, layers=LAYERS),
        reward=group(
            "reward",
            1,
            RewardWorker,
            endpoint=endpoint,
            directory=str(args.directory / "calls"),
            group=args.group,
        ),
        reference=group("reference", 1, workers.ReferenceWorker, layers=LAYERS),
        actor=group("actor", RANKS, ActorWorker, monitor, setup=setup),
    )


def group(
    name: str, size: int, kind: type, variables: dict[str, str] | None = None, **words: object
) -> RayWorkerGroup:
    """So many workers of a kind."""
    pool = RayResourcePool([size], use_gpu=False, max_colocate_count=1)
    made = RayClassWithInitArgs(ray.remote(kind), **words)
    return RayWorkerGroup(pool, made, name_prefix=name, worker_env=variables or {})


class Clock:
    """What one step does, one after the other, in ns; it begins now, by the monotonic clock."""

    def __init__(self) -> None:
        self.begin_ns = time.monotonic_ns()
        self.taken_ns: dict[str, int] = {}

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Around a part of it."""
        start_ns = time.monotonic_ns()
        yield
        self.taken_ns[name] = self.taken_ns.get(name, 0) + time.monotonic_ns() - start_ns


class Loop:
    """The job's loop, and its own book."""

    def __init__(self, args: argparse.Namespace, groups: Groups) -> None:
        self._args, self._groups = args, groups
        self._random = torch.Generator().manual_seed(0)
        self._clocks: list[Clock] = []
        self._trained: list[list[Trained]] = []

    def run(self) -> None:
        """Every step: the actor waits for samples in the queue, which the other groups make meanwhile."""
        groups = self._groups
        for each in (groups.reward, groups.reference):
            each.worked()  # it has started
        groups.rollout.load_weights(groups.actor.weights())
        for step in range(1, self._args.steps + 1):
            clock = Clock()
            with clock.of("step"):
                tracing.step(step)  # monitor: of what is put and got here
                training = groups.actor.train_step(step)
                keys, reward = self._make_batch(step, clock)
                with clock.of("train"):
                    trained: list[Trained] = ray.get(training)
                with clock.of("weights"):
                    groups.rollout.load_weights(groups.actor.weights())
                with clock.of("queue"):
                    transfer_queue.kv_clear(keys, PARTITION)
            self._clocks.append(clock)
            self._trained.append(trained)
            taken_s, loss = clock.taken_ns["step"] / 1e9, statistics.fmean(each.loss for each in trained)
            print(f"step {step}: reward {reward:.3f}, loss {loss:+.4f}, {taken_s:.2f} s", flush=True)

    def _make_batch(self, step: int, clock: Clock) -> tuple[list[str], float]:
        """The keys of new samples that are ready to be trained on, and their mean reward."""
        args, groups = self._args, self._groups
        prompts = torch.randint(1, VOCABULARY, (args.prompts, PROMPT_TOKENS), generator=self._random)
        prompts = prompts.repeat_interleave(args.group, dim=0)
        keys = [f"{step}_{row}" for row in range(len(prompts))]
        tags = [{"global_steps": step} for _ in keys]

        def of(*fields: str) -> KVBatchMeta:
            return KVBatchMeta(
                keys=keys, tags=[{} for _ in keys], partition_id=PARTITION, fields=list(fields),
                extra_info={"global_steps": step},
            )  # fmt: skip

        with clock.of("queue"):
            transfer_queue.kv_batch_put(keys, PARTITION, TensorDict({"prompts": prompts}, len(keys)), tags)
        with clock.of("rollout"):
            groups.rollout.generate_sequences(of("prompts"))
        with clock.of("reward"):
            groups.reward.compute_score(of("responses"))
        with clock.of("reference"):
            groups.reference.compute_ref_log_prob(of("prompts", "responses"))
        with clock.of("queue"):
            found = transfer_queue.kv_batch_get(keys, PARTITION, ["rewards"])["rewards"]
            rewards = torch.stack(list(found.unbind())).view(args.prompts, args.group)
            apart = rewards - rewards.mean(dim=1, keepdim=True)
            advantages = (apart / (rewards.std(dim=1, keepdim=True) + 1e-4)).view(-1, 1)
            transfer_queue.kv_batch_put(keys, PARTITION, TensorDict({"advantages": advantages}, len(keys)))
        return keys, float(rewards.mean())

    def rows(self, slept_ns: list[int]) -> list[dict[str, int]]:
        """The parts of each step in ns, and what the faults cost it; `slept_ns`: by the server of rewards."""
        stages = ("rollout", "reward", "reference")
        worked = {name: getattr(self._groups, name).worked() for name in stages}
        rows = []
        for at, (clock, trained) in enumerate(zip(self._clocks, self._trained, strict=True)):
            taken = clock.taken_ns
            work = {f"{name}_work": max(each[at] for each in worked[name]) for name in stages}
            parts = taken | work | {
                "queue": taken["queue"] + sum(taken[name] - work[f"{name}_work"] for name in stages),
                "actor_waits": max(each.waited_ns for each in trained),
                "slow_reward": slept_ns[at],
                "slow_module": max(each.slept_ns for each in trained),
            }  # fmt: skip
            named = {f"{name}_ns": value for name, value in parts.items()}
            rows.append({"step": at + 1, "begin_ns": clock.begin_ns, **named})
        return rows


def summed(rows: list[dict[str, int]], has_slow_unit: bool) -> dict[str, object]:
    """Medians of the steps but the first, which connects; and what the faults cost one."""
    names = [name for name in rows[0] if name.endswith("_ns") and name != "begin_ns"]
    medians = {name: statistics.median(row[name] for row in rows[1:]) / NS_PER_MS for name in names}
    parts_ms = {f"{name.removesuffix('_ns')}_ms": round(value, 3) for name, value in medians.items()}
    planted = {name: parts_ms.pop(name) for name in ("slow_reward_ms", "slow_module_ms")}
    planted["slow_unit_at_most_ms"] = parts_ms["queue_ms"] if has_slow_unit else 0.0
    return {"steps": len(rows), "median_of_a_step": parts_ms, "planted": planted}


def main() -> None:
    """Trains."""
    args = options()
    args.directory = args.directory.resolve()
    args.directory.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    temporary = Path(tempfile.mkdtemp(prefix="job-", dir="/tmp"))  # a short path: sockets are in it
    endpoint = f"ipc://{temporary}/reward.ipc"
    try:
        with reward_server(endpoint, args.directory / "served", args.slow_reward), cluster(temporary):
            groups = start(args, endpoint)
            loop = Loop(args, groups)
            with slowed(args.slow_unit, args.unit_ms / 1000):
                loop.run()
            groups.actor.finish()
            (slept_ns,) = groups.reward.finish()
            rows = loop.rows(slept_ns)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    (args.directory / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    book = summed(rows, args.slow_unit is not None)
    (args.directory / "book.json").write_text(json.dumps(book, indent=1) + "\n")
    print(json.dumps(book), flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
