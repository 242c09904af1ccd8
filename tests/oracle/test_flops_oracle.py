"""The formulas are what real models of transformers multiply: every component, every phase, tolerance 0.
`make oracle` counts those of Megatron-Core (tests/oracle/__main__.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.oracle import quick
from tests.oracle.comparison import computed, counted
from tests.oracle.configurations import Args
from tests.oracle.hybrid_configurations import HYBRIDS
from tests.oracle.tower_configurations import DECODERS, TOWERS

Counts = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def of_transformers() -> Counts:
    return counted(quick.TRANSFORMERS, [])


@pytest.mark.parametrize("name", quick.TRANSFORMERS)
def test_transformers(name: str, of_transformers: Counts) -> None:
    assert of_transformers[name] == computed(quick.TRANSFORMERS[name])


def test_every_component_of_every_model_is_among_them() -> None:
    everything = DECODERS | TOWERS | HYBRIDS
    assert _multiplied(quick.TRANSFORMERS.values()) == _multiplied(everything.values())


def _multiplied(configurations: Iterable[Args]) -> set[tuple[str, str]]:
    """(component, phase) of what any of them multiplies."""
    return {
        (component, phase)
        for args in configurations
        for component, phases in computed(args)["components"].items()
        for phase, flops in phases.items()
        if flops
    }
