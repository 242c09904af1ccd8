"""The changes that would gain a training the most, of those that its captured steps can tell of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from flagscale_perf.analysis.replays import Cause, Change, Offer, PathTimes, offered
from flagscale_perf.analysis.rules import Change as Advised
from flagscale_perf.training.analysis.asked import Asked
from flagscale_perf.training.analysis.findings.own_names import accumulates, in_own_names
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.phases import PHASES

MOST, _LATE = 10, 3  # changes; late ranks among them
# Megatron's options, by what is changed.
FLAGS = {
    "m": "--global-batch-size",
    "pp": "--pipeline-model-parallel-size",
    "v": "--num-virtual-stages-per-pipeline-rank",
    "schedule": "--num-virtual-stages-per-pipeline-rank",
    "layers": "--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers",
    "mbs": "--micro-batch-size",
    "tp": "--tensor-model-parallel-size",
    "cp": "--context-parallel-size",
    "ep": "--expert-model-parallel-size",
    "recompute": "--recompute-granularity",
    "overlap": "--overlap-grad-reduce, --overlap-p2p-communication",
    "seq": "--seq-length",
    "fp8": "--fp8-format",
    "data_loading": "--num-workers",
    "exposed_grad_comm": "--overlap-grad-reduce",
    "exposed_param_comm": "--overlap-param-gather",
    "checkpoint": "--async-save",
    "evaluation": "--eval-interval",
}
_OF_VALUE = ("pp", "v", "mbs", "tp", "cp", "ep", "seq")  # whose option takes the value as it is


def option_of(change: Change, facts: RunFacts) -> str:
    """The host's own option for that change, with its value where that is known; "" where there is none."""
    flags = [each for each in FLAGS.get(change.name, "").split(", ") if each]
    rows = (facts.micro_batch_size or 0) * (facts.data_parallel or 0)
    value = change.value if change.name in _OF_VALUE else None
    if change.name == "m" and accumulates(facts):
        flags, value = ["--gradient-accumulation-steps"], change.value
    elif change.name == "m" and rows:
        value = str(int(change.value) * rows)
    if value is not None:
        advised = Advised([f"{flag} {value}" for flag in flags], "", settings=dict.fromkeys(flags, value))
    else:
        advised = Advised(flags, "")
    own = in_own_names(advised, facts)
    return ", ".join(own.flags if own else [])


def best(asked: Asked, facts: RunFacts) -> list[Offer]:
    """The ten that gain the most, the best first; none that would gain nothing."""
    found = []
    for words in candidates(asked.path, facts):
        prediction = asked.predict(words)
        if prediction is not None:
            options = [option for one in asked.changes(words) if (option := option_of(one, facts))]
            found.append(offered(prediction, ", ".join(dict.fromkeys(options))))
    gaining = [offer for offer in found if offer.gain > 0]
    return sorted(gaining, key=lambda offer: (offer.is_gain, offer.gain), reverse=True)[:MOST]


def candidates(path: PathTimes, facts: RunFacts) -> Iterator[str]:
    """What is tried."""
    late = Counter[tuple[int, int]]()
    for (rank, phase, cause), ns in path.causes_ns.items():
        if cause is Cause.LONGER and rank is not None:
            late[rank, phase] += ns
    for (rank, phase), _ in late.most_common(_LATE):
        yield f"rank={rank} {PHASES[phase]}=peers"
    yield from ("work=equal", "data_loading=0", "exposed_grad_comm=0 exposed_param_comm=0")
    yield from ("p2p*=0.5", "checkpoint=async", "evaluation*=0.5")
    stages, replicas = facts.pipeline_parallel or 1, facts.data_parallel or 1
    rows = (facts.micro_batch_size or 0) * replicas
    batches = (facts.global_batch_size or 0) // rows if rows else 0
    if stages == 1:
        return
    yield "v=2"
    yield f"v=2 m={2 * batches}"
    yield f"m={2 * batches}"
    if stages % 2 == 0:
        yield f"pp={stages // 2} dp={2 * replicas}"
    yield from _splits(path, facts)


def _splits(path: PathTimes, facts: RunFacts) -> Iterator[str]:
    """A layer less for the stage that computes the longest, for each of the others one more; of layers that
    are divided evenly.
    """
    stages, layers = facts.pipeline_parallel or 1, (facts.arguments or {}).get("num_layers")
    if type(layers) is not int or layers % stages or layers == stages:
        return
    work = Counter[int]()
    for (rank, phase), ns in path.own_ns.items():
        if rank is not None and PHASES[phase] in ("forward", "backward"):
            work[path.stages[rank]] += ns
    slowest = max(work, key=lambda stage: work[stage])
    for stage in sorted(work, key=lambda stage: work[stage])[:_LATE]:
        if stage != slowest:
            split = [layers // stages + (each == stage) - (each == slowest) for each in range(stages)]
            yield f"layers={','.join(map(str, split))}"
