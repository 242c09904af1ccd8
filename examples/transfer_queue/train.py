"""GRPO in small: prompts, responses, rewards, the reference's log-probabilities and advantages go through a
real TransferQueue between verl's worker groups, on the CPU.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
import warnings
from dataclasses import dataclass

os.environ.setdefault("TQ_NUM_THREADS", "2")  # more than there are CPUs make it slower
os.environ.setdefault("RAY_DEDUP_LOGS", "0")
os.environ.setdefault("TRANSFER_QUEUE_ENABLE", "1")
warnings.filterwarnings("ignore", category=FutureWarning)

import ray  # noqa: E402
import torch  # noqa: E402
import transfer_queue  # noqa: E402
import workers  # noqa: E402
from model import PROMPT_TOKENS, VOCABULARY  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from slow_unit import slowed  # noqa: E402
from tensordict import TensorDict  # noqa: E402
from transfer_queue import KVBatchMeta  # noqa: E402
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup  # noqa: E402

PARTITION = "train_0"
CPUS = 16  # that Ray believes in: one for each process, whatever the machine has
STAGES = {
    "rollout": workers.RolloutWorker,
    "reward": workers.RewardWorker,
    "reference": workers.ReferenceWorker,
    "train": workers.ActorWorker,
}


@dataclass(frozen=True)
class Groups:
    """verl's worker groups."""

    rollout: RayWorkerGroup
    reward: RayWorkerGroup
    reference: RayWorkerGroup
    train: RayWorkerGroup


def options() -> argparse.Namespace:
    """What was typed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--prompts", type=int, default=8, help="of a step")
    parser.add_argument("--group", type=int, default=4, help="responses to each prompt")
    parser.add_argument(
        "--delay", type=int, default=0, metavar="STEPS", help="train on batches that are so old"
    )
    parser.add_argument("--units", type=int, default=2, help="storage units")
    parser.add_argument("--slow-stage", choices=STAGES, help="its calls wait before they begin")
    parser.add_argument("--stage-ms", type=float, default=300.0, help="for so long (%(default)s)")
    parser.add_argument(
        "--slow-unit", type=int, metavar="NUMBER", help="the process of this unit, from 0, is stopped often"
    )
    parser.add_argument("--unit-ms", type=float, default=40.0, help="each time for so long (%(default)s)")
    return parser.parse_args()


def start(args: argparse.Namespace) -> Groups:
    """Ray, the queue and the groups: two workers generate, one does each of the rest."""
    ray.init(address="local", num_cpus=CPUS, include_dashboard=False, logging_level=logging.ERROR)
    config = {"backend": {"SimpleStorage": {"num_data_storage_units": args.units}}}
    transfer_queue.init(OmegaConf.create(config))
    return Groups(
        **{name: group(name, 2 if name == "rollout" else 1, args.slow_stage == name and args.stage_ms / 1000)
           for name in STAGES}
    )  # fmt: skip


def group(name: str, size: int, pause_s: float) -> RayWorkerGroup:
    """So many workers of a stage."""
    made = RayClassWithInitArgs(ray.remote(STAGES[name]), pause_s=float(pause_s))
    pool = RayResourcePool([size], use_gpu=False, max_colocate_count=1)
    return RayWorkerGroup(pool, made, name_prefix=name)


def put_prompts(step: int, args: argparse.Namespace, random: torch.Generator) -> KVBatchMeta:
    """New prompts, each as often as it gets responses."""
    prompts = torch.randint(1, VOCABULARY, (args.prompts, PROMPT_TOKENS), generator=random)
    prompts = prompts.repeat_interleave(args.group, dim=0)
    keys = [f"{step}_{row // args.group}_{row % args.group}" for row in range(len(prompts))]
    tags = [{"global_steps": step} for _ in keys]
    fields = TensorDict({"prompts": prompts}, batch_size=len(prompts))
    return transfer_queue.kv_batch_put(keys, PARTITION, fields, tags)


@dataclass(frozen=True)
class Batch:
    """Samples with all that a training step needs."""

    keys: list[str]
    reward: float


def make_batch(step: int, args: argparse.Namespace, groups: Groups, random: torch.Generator) -> Batch:
    """A batch, its parts put by one group after another."""
    keys = put_prompts(step, args, random).keys

    def of(*fields: str) -> KVBatchMeta:
        return batch_of(keys, step, *fields)

    groups.rollout.generate_sequences(of("prompts"))
    groups.reward.compute_score(of("responses"))
    groups.reference.compute_ref_log_prob(of("prompts", "responses"))
    rewards = torch.stack(list(transfer_queue.kv_batch_get(keys, PARTITION, ["rewards"])["rewards"].unbind()))
    by_prompt = rewards.view(args.prompts, args.group)
    spread = by_prompt.std(dim=1, keepdim=True) + 1e-4
    advantages = ((by_prompt - by_prompt.mean(dim=1, keepdim=True)) / spread).view(-1, 1)
    transfer_queue.kv_batch_put(keys, PARTITION, TensorDict({"advantages": advantages}, len(rewards)))
    return Batch(keys, float(rewards.mean()))


def batch_of(keys: list[str], step: int, *fields: str) -> KVBatchMeta:
    """These fields of these samples, for this step of the training."""
    return KVBatchMeta(
        keys=keys, tags=[{} for _ in keys], partition_id=PARTITION, fields=list(fields),
        extra_info={"global_steps": step},
    )  # fmt: skip


def train(args: argparse.Namespace, groups: Groups) -> None:
    """The loop: a step makes a batch, as long as there are more to be made, and trains on the oldest one that
    is due.
    """
    random = torch.Generator().manual_seed(0)
    waiting: list[Batch] = []
    for step in range(1, args.steps + args.delay + 1):
        start_s = time.perf_counter()
        if step <= args.steps:
            waiting.append(make_batch(step, args, groups, random))
        if step > args.delay:
            due = waiting.pop(0)
            fields = ("prompts", "responses", "old_log_probs", "ref_log_probs", "advantages")
            (loss,) = groups.train.update_actor(batch_of(due.keys, step, *fields))
            groups.rollout.load_weights(groups.train.weights()[0])
            transfer_queue.kv_clear(due.keys, PARTITION)
            taken_s = time.perf_counter() - start_s
            print(f"step {step}: reward {due.reward:.3f}, loss {loss:+.4f}, {taken_s:.2f} s", flush=True)


def main() -> None:
    """Trains."""
    args = options()
    groups = start(args)
    with slowed(args.slow_unit, args.unit_ms / 1000):
        train(args, groups)
    transfer_queue.close()
    ray.shutdown()


if __name__ == "__main__":
    main()
