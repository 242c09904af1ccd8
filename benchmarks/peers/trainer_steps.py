"""A user's script without a line for any monitor: the Trainer of Hugging Face or of Lightning, with a model
that has next to nothing to do, so that a step is what the Trainer makes of it. Under a monitor, it switches
that on and off every few steps, and writes what each step took.

    trainer_steps.py HOST MONITOR ROUNDS OUTPUT [calls]

One process, so that both arms meet the same machine; their order is drawn anew in every round. A step is from
the end of the one before to its own end, by the time of its own thread, of its whole process, and by the
clock; the first steps of an arm do not count. `calls`: instead, how many of the monitor's Python functions
its thread has called.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig

SEQUENCE, VOCABULARY, BATCH = 8, 50, 1
CLOCKS = {"thread": time.thread_time_ns, "process": time.process_time_ns, "wall": time.perf_counter_ns}
WARMUP, SETTLE, TIMED = 20, 2, 10  # steps before the first round, and of an arm in a round
OFF = "off"


class Ours:
    """The monitor, as its launcher has put it in; off, nothing but its wrappers is left."""

    arms, package = (OFF, "on", "on with phases"), "flagscale_perf"

    def __init__(self) -> None:
        from flagscale_perf import hooks

        (self._hooks,) = (each for each in hooks._live if each.active)
        self._timeline = self._hooks._monitor.timeline

    def set(self, arm: str) -> None:
        """What is on from now on."""
        self._hooks.active = arm != OFF
        self._hooks._monitor.timeline = self._timeline if "phases" in arm else None


class TraceML:
    """TraceML, as `traceml run` has put it in; off by its own switch, nothing but its patches is left."""

    arms, package = (OFF, "on"), "traceml_ai"

    def set(self, arm: str) -> None:
        """What is on from now on."""
        os.environ["TRACEML_DISABLED"] = "1" if arm == OFF else "0"


MONITORS: dict[str, Any] = {"flagscale_perf": Ours, "TraceML": TraceML}


class Calls:
    """Counts what this thread calls of a package."""

    def __init__(self, package: str) -> None:
        spec = importlib.util.find_spec(package)
        assert spec is not None and spec.origin is not None
        self._within, self._count = os.path.dirname(spec.origin) + os.sep, 0

    def read(self) -> list[int]:
        """How many so far; counts from the first reading on."""
        sys.setprofile(self._seen)
        return [self._count]

    def _seen(self, frame: Any, event: str, _: Any) -> None:
        self._count += event == "call" and frame.f_code.co_filename.startswith(self._within)


def times() -> list[int]:
    """By each clock."""
    return [clock() for clock in CLOCKS.values()]


class Switch:
    """Notes each step, and sets another arm between two of them."""

    def __init__(self, monitor: str, rounds: int, is_counting: bool) -> None:
        self._kind, self._rounds = MONITORS[monitor], rounds
        self._read = Calls(self._kind.package).read if is_counting else times
        self._monitor: Any = None
        self._before: list[int] | None = None
        self.steps = WARMUP + rounds * len(self._kind.arms) * (SETTLE + TIMED) + 1
        self._schedule = self._arms()
        self._arm: str | None = None
        self.taken: list[tuple[str, list[int]]] = []

    def _arms(self) -> Iterator[str | None]:
        """For each step the arm it is timed for; None where it is not."""
        yield from [None] * WARMUP
        self._monitor = self._kind()
        order = list(self._kind.arms)
        for _ in range(self._rounds):
            random.shuffle(order)
            for arm in order:
                self._monitor.set(arm)
                yield from [None] * SETTLE
                yield from [arm] * TIMED

    def begins(self) -> None:
        """A step is about to begin; the monitor has not heard of it."""
        self._arm = next(self._schedule, None)

    def ended(self) -> None:
        """It is over."""
        now = self._read()
        if self._before is not None and self._arm is not None:
            self.taken.append((self._arm, [b - a for a, b in zip(self._before, now, strict=True)]))
        self._before = now


class Idle(torch.nn.Module):
    """Says that it is a Llama, and multiplies nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.config = LlamaConfig(vocab_size=VOCABULARY)
        self.head = torch.nn.Linear(1, 1)

    def get_output_embeddings(self) -> torch.nn.Module:
        """As a language model of transformers."""
        return self.head

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """A loss."""
        return {"loss": self.head(torch.ones(1)).sum()}


class Numbers(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Random tokens."""

    def __init__(self, length: int) -> None:
        self._tokens = torch.randint(0, VOCABULARY, (length, SEQUENCE))

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._tokens[index], "labels": self._tokens[index]}


def of_transformers(model: Any, switch: Switch) -> None:
    """Trains with Hugging Face's Trainer."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Noting(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            switch.begins()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            switch.ended()

    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=BATCH,
        max_steps=switch.steps,
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        optim="sgd",
        use_cpu=True,
        disable_tqdm=True,
    )
    data = Numbers(BATCH * switch.steps)
    Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Noting()]).train()


def of_lightning(model: Any, switch: Switch) -> None:
    """Trains with Lightning's."""
    import lightning.pytorch as lightning

    class Noting(lightning.Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            switch.begins()

        def on_train_batch_end(self, *_: Any) -> None:
            switch.ended()

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss: torch.Tensor = self.model(**batch)["loss"]
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=switch.steps,
        callbacks=[Noting()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = Numbers(BATCH * switch.steps)
    trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=BATCH))


def main() -> None:
    """Trains, and writes the arm and the nanoseconds by each clock, or the calls, of every timed step."""
    host, monitor, rounds, output, *calls = sys.argv[1:]
    torch.manual_seed(1)
    torch.set_num_threads(1)
    switch = Switch(monitor, int(rounds), bool(calls))
    {"transformers": of_transformers, "lightning": of_lightning}[host](Idle(), switch)
    Path(output).write_text(json.dumps(switch.taken), encoding="utf-8")


if __name__ == "__main__":
    main()
