"""The formulas against what real Megatron-Core models multiply: every component, every phase, tolerance 0."""

from __future__ import annotations

import pytest

from tests.oracle.comparison import NEWER_CORE, bundled_core, differences
from tests.oracle.configurations import (
    ENCODERS,
    FULL_SIZE,
    NAMED,
    NEWER,
    random_configurations,
    random_frozen_and_recomputed,
)
from tests.oracle.tower_configurations import DECODERS, TOWERS

SEED = 20240


def test_every_family_and_option():
    assert differences(NAMED | ENCODERS, bundled_core()) == {}


def test_decoders_of_transformers():
    assert differences(DECODERS, []) == {}


def test_towers_encoders_and_their_frozen_parts():
    assert differences(TOWERS, []) == {}


def test_full_size_models():
    assert differences(FULL_SIZE, bundled_core()) == {}


def test_random_models():
    drawn = random_configurations(100, SEED) | random_frozen_and_recomputed(30, SEED)
    assert differences(drawn, bundled_core()) == {}


@pytest.mark.skipif(
    not NEWER_CORE.is_dir(),
    reason=(
        f"output gate and latent experts need the newer Megatron-Core in {NEWER_CORE} (make venv puts it "
        "there)"
    ),
)
def test_options_of_newer_megatron_core():
    assert differences(NEWER | NAMED, [NEWER_CORE]) == {}
