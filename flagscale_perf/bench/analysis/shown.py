"""Each experiment's part of the report, its files and its pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flagscale_perf.analysis.blocks import Block, Note, Section
from flagscale_perf.analysis.verdicts import Verdict
from flagscale_perf.bench.analysis.source import Part


def _no_verdicts(part: Part) -> Sequence[Verdict]:
    return []


@dataclass(frozen=True)
class Shown:
    """How one experiment is presented.

    Attributes:
        name: of the experiment.
        file: beginning of its JSON file's name.
        sections: of the report.
        drawn: blocks of the picture.
        content: keys of its JSON besides those that all have.
        remarks: what was found, the worst first; "bad" for what should be changed, "warn" for what limits the
            figures.
        verdicts: by the requirement's thresholds, and by the machine's own ceilings.
    """

    name: str
    file: str
    sections: Callable[[Part], Sequence[Section]]
    drawn: Callable[[Part], Sequence[Block]]
    content: Callable[[Part], Mapping[str, Any]]
    remarks: Callable[[Part], Sequence[Note]]
    verdicts: Callable[[Part], Sequence[Verdict]] = _no_verdicts
