"""Keys are explained by the docstrings of the classes that have them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from flagscale_perf.analysis.described import meanings, unit_of
from flagscale_perf.cli.schema import every_key
from flagscale_perf.spine.records import KINDS


@dataclass
class Base:
    """A base.

    Attributes:
        first, second_ns: both of them, in a sentence
            of two lines.
    """

    first: int
    second_ns: int


@dataclass
class Inner(Base):
    """More.

    Attributes:
        third: its own.
    """

    third: str | None


def test_a_docstring_explains_attributes_and_those_inherited() -> None:
    both = "both of them, in a sentence of two lines."
    assert meanings(Inner) == {"first": both, "second_ns": both, "third": "its own."}
    assert meanings(int) == {}


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("wait_ns", "ns"),
        ("sent_bytes", "bytes"),
        ("bytes_per_s", "1/s"),
        ("rank", ""),
        ("cost_share", "share"),
    ],
)
def test_a_name_ends_in_its_unit(name: str, unit: str) -> None:
    assert unit_of(name) == unit


def test_every_kind_and_key_is_explained() -> None:
    keys = list(every_key())
    assert set(KINDS) <= {key.of for key in keys}
    assert [f"{key.of}.{key.name}" for key in keys if not key.meaning or not key.type] == []
