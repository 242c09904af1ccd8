"""Predicted beside measured: a split model runs over every path in turn, and what the diagnosis says of one
path's calls is held against what the others took in the same round.

python benchmarks/bench_rpc_predictions.py --output benchmarks/results/rpc_predictions_2_cores_x86_64.txt
"""

from __future__ import annotations

import sys
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from subprocess import DEVNULL, Popen
from tempfile import TemporaryDirectory
from typing import get_args

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples/tee_gpu"))

from diagnosis.calibration import Calibration, calibrate
from diagnosis.observed import Observed, loads_of
from diagnosis.verdict import Interval, saving
from split_inference.client import GPUClient, GPUClientOptions
from split_inference.forward import ProtectedModel
from split_inference.model import CONFIGS
from split_inference.options import positive
from split_inference.statistics import Statistics
from tensor_rpc.options import Payload

from benchmarks.provenance import head
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.spine.clock import NS_PER_S

SERVER = Path(__file__).resolve().parents[1] / "examples/tee_gpu/server_optimized.py"
PAYLOADS: Sequence[Payload] = [each for each in get_args(Payload) if each != "auto"]
WAIT_S = 600.0  # for the server, which makes the model
HEAD = (
    "from", "to", "carrying took, ms", "saving said, ms", "true, ms", "held", "missed", "not said",
)  # fmt: skip
NOTE = """\
A round runs the model once over each path and then makes its calls anew on each of them (calibration).
Carrying is what calls took without the methods themselves; the true saving is what it took on one path less
what it took on the other. "said": the ends of the interval; all times are medians over the rounds. Held:
rounds in which the interval had the truth. Not said: those in which the measurements did not explain the
present path to 25 %."""


@dataclass
class Change:
    """From one path to another, by rounds.

    Attributes:
        carrying_s: on the present path; true_s: saved by the other one.
        said: what the diagnosis says of it; None where it says nothing.
    """

    carrying_s: list[float] = field(default_factory=list)
    true_s: list[float] = field(default_factory=list)
    said: list[Interval | None] = field(default_factory=list)

    def add(self, here: Calibration, now: Observed, then: Observed) -> None:
        """One more round. One in which a server's time is not believed does not count."""
        path = here.path(then.payload, "IPC")
        if path is None or now.carrying_s is None or then.carrying_s is None:
            return
        self.carrying_s.append(now.carrying_s)
        self.true_s.append(now.carrying_s - then.carrying_s)
        self.said.append(saving(here, now, path))

    def row(self, now: str, then: str) -> Sequence[str]:
        """As a line of the table."""
        known = [(each, true) for each, true in zip(self.said, self.true_s, strict=True) if each is not None]
        held = sum(each.least <= true <= each.most for each, true in known)
        ends = [_ms(end) for end in zip(*(each for each, _ in known), strict=True)]
        return (
            now, then, _ms(self.carrying_s), " to ".join(ends) or "-", _ms(self.true_s), str(held),
            str(len(known) - held), str(len(self.said) - len(known)),
        )  # fmt: skip


def _ms(seconds: Sequence[float]) -> str:
    return f"{1e3 * median(seconds):.0f}" if seconds else "-"


class Kept(Statistics):
    """Statistics that keep the records, too."""

    def clear(self) -> None:
        """Forgets the calls so far."""
        super().clear()
        self.records: list[CallRecord] = []

    def add(self, record: CallRecord) -> None:
        """One more call."""
        super().add(record)
        self.records.append(record)

    def observed(self, payload: str) -> Observed:
        """These calls, as the diagnosis takes a program's."""
        loads = loads_of((one.sent_bytes, one.received_bytes) for one in self.records)
        rpc_s = sum(one.total_ns for one in self.records) / NS_PER_S
        worked = [one.server_ns for one in self.records if one.server_ns is not None]
        server_s = sum(worked) / NS_PER_S if len(worked) == len(self.records) else None
        return Observed(loads, "this program", rpc_s, server_s, "IPC", payload)


def main() -> int:
    """Measures and prints; 0 whatever was measured."""
    made = ArgumentParser(description=__doc__, formatter_class=ArgumentDefaultsHelpFormatter)
    made.add_argument("--config", default="small", choices=CONFIGS, help="a model with random weights")
    made.add_argument("--tokens", type=positive, default=512, help="of the prompt")
    made.add_argument("--rounds", type=positive, default=7)
    made.add_argument("--output", type=Path, help="write there, too")
    args = made.parse_args()
    torch.set_num_threads(1)
    origin = head("examples/tee_gpu/diagnosis", "examples/tee_gpu/tensor_rpc")
    found = measure(args)
    of = f"{args.config}, float32, a prompt of {args.tokens} tokens, {args.rounds} rounds, one thread a side"
    text = f"{origin}\n{of}\n\n{table(found)}\n\n{NOTE}\n"
    print(text, end="")
    if args.output:
        args.output.write_text(text, encoding="utf-8")
    return 0


def measure(args: Namespace) -> Mapping[tuple[Payload, Payload], Change]:
    """By present path and other path. A round that is not counted warms up."""
    found = {(now, then): Change() for now in PAYLOADS for then in PAYLOADS if now != then}
    with ExitStack() as stack:
        endpoint = f"ipc://{stack.enter_context(TemporaryDirectory())}/gpu.ipc"
        words = ["--ipc-path", endpoint, "--config", args.config, "--dtype", "float32"]
        words += ["--max-tokens", str(args.tokens)]
        server = stack.enter_context(Popen([sys.executable, str(SERVER), *words], stdout=DEVNULL))
        stack.callback(server.terminate)
        clients = {}
        for payload in PAYLOADS:
            options = GPUClientOptions(payload, wait_s=WAIT_S, record=False)
            client = GPUClient(endpoint, None, options, say=lambda text: None)
            clients[payload] = stack.enter_context(client)
            client.statistics = Kept()
        models = {payload: ProtectedModel(client) for payload, client in clients.items()}
        for number in range(args.rounds + 1):
            seen = {payload: run(clients[payload], models[payload], args.tokens) for payload in PAYLOADS}
            here = calibrate(seen["msgpack"].loads, rounds=1)
            for (now, then), change in found.items() if number else ():
                change.add(here, seen[now], seen[then])
    return found


def run(client: GPUClient, model: ProtectedModel, tokens: int) -> Observed:
    """A prefill, and what its calls took."""
    kept = client.statistics
    assert isinstance(kept, Kept)
    kept.clear()
    model.logits(torch.arange(tokens)[None] % model.sizes.vocab)
    return kept.observed(client.hello.payload)


def table(found: Mapping[tuple[Payload, Payload], Change]) -> str:
    """The changes as a Markdown table."""
    rows = [HEAD, ("---", "---", *["---:"] * (len(HEAD) - 2))]
    rows += [tuple(change.row(*paths)) for paths, change in found.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
