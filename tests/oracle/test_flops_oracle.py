"""The formulas are what real models of Megatron-Core and transformers multiply: every component, every phase,
tolerance 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.oracle import quick
from tests.oracle.comparison import NEWER_CORE, bundled_core, computed, counted
from tests.oracle.configurations import ENCODERS, NAMED, NEWER, Args
from tests.oracle.hybrid_configurations import HYBRIDS
from tests.oracle.tower_configurations import DECODERS, TOWERS

Counts = dict[str, dict[str, Any]]
needs_newer_core = pytest.mark.skipif(
    not NEWER_CORE.is_dir(),
    reason=(
        f"output gate and latent experts need the newer Megatron-Core in {NEWER_CORE} (make venv puts it "
        "there)"
    ),
)


@pytest.fixture(scope="module")
def of_megatron() -> Counts:
    return counted(quick.MEGATRON, bundled_core())


@pytest.fixture(scope="module")
def of_newer_megatron() -> Counts:
    return counted(quick.NEWER_MEGATRON, [NEWER_CORE])


@pytest.fixture(scope="module")
def of_transformers() -> Counts:
    return counted(quick.TRANSFORMERS, [])


@pytest.mark.oracle
@pytest.mark.parametrize("name", quick.MEGATRON)
def test_megatron_core_that_flagscale_brings(name: str, of_megatron: Counts) -> None:
    assert of_megatron[name] == computed(quick.MEGATRON[name])


@needs_newer_core
@pytest.mark.oracle
@pytest.mark.parametrize("name", quick.NEWER_MEGATRON)
def test_newer_megatron_core(name: str, of_newer_megatron: Counts) -> None:
    assert of_newer_megatron[name] == computed(quick.NEWER_MEGATRON[name])


@pytest.mark.parametrize("name", quick.TRANSFORMERS)
def test_transformers(name: str, of_transformers: Counts) -> None:
    assert of_transformers[name] == computed(quick.TRANSFORMERS[name])


def test_every_component_of_every_model_is_among_them() -> None:
    everything = NAMED | ENCODERS | NEWER | DECODERS | TOWERS | HYBRIDS
    chosen = quick.MEGATRON | quick.NEWER_MEGATRON | quick.TRANSFORMERS
    assert _multiplied(chosen.values()) == _multiplied(everything.values())


def _multiplied(configurations: Iterable[Args]) -> set[tuple[str, str]]:
    """(component, phase) of what any of them multiplies."""
    return {
        (component, phase)
        for args in configurations
        for component, phases in computed(args)["components"].items()
        for phase, flops in phases.items()
        if flops
    }
