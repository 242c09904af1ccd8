"""Hybrid, linear and sparse attention against what transformers' models multiply, tolerance 0."""

from __future__ import annotations

from tests.oracle.comparison import differences
from tests.oracle.hybrid_configurations import HYBRIDS, random_hybrids


def test_every_family_in_both_forms_of_its_core() -> None:
    assert differences(HYBRIDS, []) == {}


def test_random_models() -> None:
    assert differences(random_hybrids(24, 20240), []) == {}
