"""The four worker groups: who generates, who scores, who holds the first model, and who learns.

Each method takes the batch that its argument names out of the queue and puts what it returns there: verl's
`register` does both.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch
from model import dense, generate, log_probs_of, make_model, reward_of
from tensordict import TensorDict
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import (
    Dispatch,
    collect_all_to_all,
    make_nd_compute_dataproto_dispatch_fn,
    register,
)

BY_RANK = make_nd_compute_dataproto_dispatch_fn("all")  # each worker gets its share of a batch
KL_WEIGHT, CLIP, LEARNING_RATE = 0.02, 0.2, 3e-3


class _Worker(Worker):
    """One of a group whose workers all do the same.

    Args:
        pause_s: what each call waits before it begins: a slow stage.
    """

    def __init__(self, pause_s: float = 0.0) -> None:
        super().__init__()
        self._register_dispatch_collect_info("all", dp_rank=self.rank, is_collect=True)
        self.pause_s = pause_s
        self.worked_ns: list[int] = []

    @contextlib.contextmanager
    def work(self) -> Iterator[None]:
        """Around what a call does between the queue's get and put."""
        start_ns = time.monotonic_ns()
        time.sleep(self.pause_s)
        yield
        self.worked_ns.append(time.monotonic_ns() - start_ns)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def worked(self) -> list[int]:
        """How long the work of each call took, in ns."""
        return self.worked_ns


class RolloutWorker(_Worker):
    """Generates responses with the newest weights it was given."""

    def __init__(self, pause_s: float = 0.0, layers: int = 2) -> None:
        super().__init__(pause_s)
        self.model = make_model(layers)
        torch.manual_seed(1 + self.rank)

    @register(dispatch_mode=BY_RANK)
    def generate_sequences(self, batch: TensorDict) -> TensorDict:
        """Prompts to responses and their log-probabilities."""
        with self.work():
            prompts = dense(batch["prompts"])
            responses = generate(self.model, prompts)
            with torch.no_grad():
                log_probs = log_probs_of(self.model, prompts, responses)
            return TensorDict({"responses": responses, "old_log_probs": log_probs}, batch_size=len(prompts))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_weights(self, weights: dict[str, torch.Tensor]) -> None:
        """Generates with these from now on."""
        self.model.load_state_dict(weights)


class RewardWorker(_Worker):
    """Scores responses by a rule."""

    @register(dispatch_mode=BY_RANK)
    def compute_score(self, batch: TensorDict) -> TensorDict:
        """Responses to rewards."""
        with self.work():
            rewards = reward_of(dense(batch["responses"]))
            return TensorDict({"rewards": rewards.unsqueeze(1)}, batch_size=len(rewards))


class ReferenceWorker(_Worker):
    """The model as it was in the beginning."""

    def __init__(self, pause_s: float = 0.0, layers: int = 2) -> None:
        super().__init__(pause_s)
        self.model = make_model(layers)

    @register(dispatch_mode=BY_RANK)
    def compute_ref_log_prob(self, batch: TensorDict) -> TensorDict:
        """Responses to their log-probabilities."""
        with self.work():
            with torch.no_grad():
                found = log_probs_of(self.model, dense(batch["prompts"]), dense(batch["responses"]))
            return TensorDict({"ref_log_probs": found}, batch_size=len(found))


def loss_of(now: torch.Tensor, batch: TensorDict) -> torch.Tensor:
    """GRPO's, with `now` as the log-probabilities of the responses: the clipped gain, and a weight on being
    far from the first model.
    """
    advantages = dense(batch["advantages"])
    ratio = (now - dense(batch["old_log_probs"])).exp()
    gain = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
    apart = dense(batch["ref_log_probs"]) - now
    return (KL_WEIGHT * (apart.exp() - apart - 1) - gain).mean()


class ActorWorker(_Worker):
    """Learns."""

    def __init__(self, pause_s: float = 0.0) -> None:
        super().__init__(pause_s)
        self.model = make_model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)

    @register(dispatch_mode=BY_RANK | {"collect_fn": collect_all_to_all})
    def update_actor(self, batch: TensorDict) -> float:
        """One step of the optimizer. Puts nothing back, and returns the loss."""
        with self.work():
            now = log_probs_of(self.model, dense(batch["prompts"]), dense(batch["responses"]))
            loss = loss_of(now, batch)
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            return float(loss)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def weights(self) -> dict[str, torch.Tensor]:
        """What it has learnt."""
        return {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
