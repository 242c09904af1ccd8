"""The two ends of an RL loop's queue: what generates samples and what trains on them, how fast each is, and
which of the two waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flagscale_perf.spine.averages import mean_counted
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.trace.analysis.lineage import Lineage
from flagscale_perf.trace.analysis.sums import Waits
from flagscale_perf.trace.analysis.transfers import Transfers, Work, title_of
from flagscale_perf.trace.records import Kind

MIN_SPANS = 3  # ours: of a process with fewer calls, or gets, no rate is known
NOT_IN_CALLS, ASKED = "not in a call", "asks for samples that are not there"


@dataclass(frozen=True)
class Side:
    """One of the two.

    Attributes:
        name: of its function; where it has none, of its processes.
        processes: that do it.
        samples_per_s: from the end of each process's first call (get, put) to the end of its last one; None
            for too few of them.
        waits_share: part of that time, a mean of its processes; None where it is not known.
        waits_source: what counts as waiting.
    """

    name: str
    processes: int
    samples_per_s: float | None
    waits_share: float | None
    waits_source: str


@dataclass(frozen=True)
class Sides:
    """Both, with the age of the samples, in steps of the trainer: how many of them ended since the first put
    of a sample; and by how many its step is ahead of the oldest weights that made it, where tags say so.
    """

    generator: Side
    trainer: Side
    mean_age: float | None
    oldest: int | None
    mean_behind: float | None = None
    most_behind: int | None = None

    @property
    def waits_more(self) -> str | None:
        """Which of the two waits for more of its time; None where that is not known of both."""
        generator, trainer = self.generator.waits_share, self.trainer.waits_share
        if generator is None or trainer is None or generator == trainer:
            return None
        return "generator" if generator > trainer else "trainer"

    def as_dict(self) -> dict[str, Any]:
        """Its content as JSON-ready data."""
        return {
            "generator": vars(self.generator),
            "trainer": vars(self.trainer),
            "waits_more": self.waits_more,
            "age_steps": {"mean": self.mean_age, "max": self.oldest},
            "weights_behind_steps": {"mean": self.mean_behind, "max": self.most_behind},
        }


class _Span(NamedTuple):
    end_ns: int
    rows: int


def sides_of(transfers: Transfers, lineage: Lineage, waits: Mapping[tuple[str, str], Waits]) -> Sides | None:
    """None where no samples go from one to the other. A sample of all calls tells neither rates nor waits."""
    generator = generator_of(transfers, lineage)
    if generator is None or lineage.last.name in ("", generator):
        return None
    is_whole = all(transfer.weight == 1 for transfer in transfers.transfers)
    made, used = (
        _spans(transfers, name, kind) if is_whole else {}
        for name, kind in ((generator, Kind.PUT), (lineage.last.name, Kind.GET))
    )
    rows = sum(span.rows for spans in used.values() for span in spans)
    once = min(1.0, lineage.last.taken / rows) if rows else 1.0  # ranks of one model get the same samples
    ages = lineage.last.age
    return Sides(
        _side(generator, made, transfers, {}),
        _side(lineage.last.name, used, transfers, waits, once),
        lineage.last.mean_age,
        max(ages) if ages else None,
        mean_counted(lineage.last.behind),
        max(lineage.last.behind, default=None),
    )


def generator_of(transfers: Transfers, lineage: Lineage) -> str | None:
    """The function that makes most samples or, where a driver puts what they begin with, the first that gets
    this and puts more; otherwise the processes that make them.
    """
    works: dict[str, int] = {}
    for work in transfers.works.values():
        works[work.function] = works.get(work.function, 0) + (work.compute_ns or 0)
    born = lineage.born
    if not born:
        return None
    most = max(born, key=lambda name: born[name])
    if most in works:
        return most
    found = {
        target
        for source, target in lineage.flows
        if source in born and target in works and target != lineage.last.name
        if any(source == target for source, _ in lineage.flows)
    }
    first = [one for one in found if not any((other, one) in lineage.flows for other in found - {one})]
    return max(first or found, key=lambda name: works[name], default=title_of(most))


def _spans(transfers: Transfers, name: str, kind: Kind) -> dict[str, list[_Span]]:
    """By process: the calls of a function; of processes without functions, their puts or gets."""
    found: dict[str, list[_Span]] = {}
    for work in transfers.works.values():
        if work.function == name:
            found.setdefault(work.process, []).append(_Span(work.end_ns, work.rows or 0))
    if not found:
        for one in transfers.transfers:
            if one.kind is kind and transfers.consumer_of(one) == name:
                found.setdefault(one.process, []).append(_Span(one.end_ns, one.rows))
    for spans in found.values():
        spans.sort(key=lambda span: span.end_ns)
    return found


def _side(
    name: str,
    spans: Mapping[str, Sequence[_Span]],
    transfers: Transfers,
    waits: Mapping[tuple[str, str], Waits],
    once: float = 1.0,
) -> Side:
    rates, shares, source = [], [], ""
    works: dict[str, list[Work]] = {}
    for work in transfers.works.values():
        works.setdefault(work.process, []).append(work)
    for process, each in spans.items():
        begin_ns, end_ns = each[0].end_ns, each[-1].end_ns
        if len(each) < MIN_SPANS or end_ns <= begin_ns:
            continue
        whole_ns = end_ns - begin_ns
        rates.append(once * sum(span.rows for span in each[1:]) * NS_PER_S / whole_ns)
        asked = [one.waited_ns for (label, _), one in waits.items() if label == process and one.answered > 1]
        if asked:
            shares.append(min(1.0, sum(asked) / whole_ns))
            source = ASKED
        elif process in works:
            shares.append(1 - _busy_ns(works[process], begin_ns, end_ns) / whole_ns)
            source = source or NOT_IN_CALLS
    return Side(
        name,
        len(spans),
        sum(rates) if rates else None,
        sum(shares) / len(shares) if shares else None,
        source,
    )


def _busy_ns(works: Sequence[Work], begin_ns: int, end_ns: int) -> int:
    """How much of a stretch the calls of a process cover, whatever they are of; they may overlap."""
    busy_ns, until_ns = 0, begin_ns
    for work in sorted(works, key=lambda each: each.start_ns):
        start_ns, stop_ns = max(until_ns, work.start_ns), min(end_ns, work.end_ns)
        if stop_ns > start_ns:
            busy_ns += stop_ns - start_ns
            until_ns = stop_ns
    return busy_ns
