"""A batch's trace id, step, bytes, rows and fields are read in every shape in which they come."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from flagscale_perf.trace.batches import (
    extent_of,
    fields_of,
    known_bytes,
    payload_bytes,
    ranges_of,
    step_of,
    trace_id_of,
    versions_of,
)

ROWS = [torch.zeros(n + 1) for n in range(4)]  # 10 numbers
JAGGED = torch.nested.as_nested_tensor(ROWS, layout=torch.jagged)
STRIDED = torch.nested.as_nested_tensor(ROWS, layout=torch.strided)


class Wrapped:
    """As a TensorDict wraps what is no tensor."""

    def __init__(self, data: object) -> None:
        self.data = data

    def tolist(self) -> object:
        return self.data


def batch(**info: object) -> SimpleNamespace:
    return SimpleNamespace(extra_info=info, custom_meta=[{}])


@pytest.mark.parametrize(
    ("given", "id_"),
    [
        ("a1b2c3d4", "a1b2c3d4"),
        (["one", "one"], "one"),
        (["one", "two"], "one"),
        ([], ""),
        (Wrapped("wrapped"), "wrapped"),
        (Wrapped(["listed"]), "listed"),
        (b"\xffbytes", "\\xffbytes"),
        (7, "7"),
        (None, ""),
        ({}, ""),
        ("x | func=y\n\x1b[31m", "x | func=y\n\x1b[31m"),
        (torch.tensor([1]), ""),
    ],
)
def test_a_trace_id_is_read_in_every_shape_that_it_comes_in(given, id_) -> None:
    assert trace_id_of(batch(trace_id=given)) == id_


def test_without_one_of_its_own_a_batch_has_the_id_of_its_first_tag() -> None:
    by_rows = SimpleNamespace(extra_info={}, custom_meta=[{"trace_id": "tag"}, {}])
    by_keys = SimpleNamespace(extra_info=None, tags=[{"trace_id": "tag"}])
    nothing = SimpleNamespace(extra_info=None, tags=[])
    assert [trace_id_of(each) for each in (by_rows, by_keys, nothing)] == ["tag", "tag", ""]


@pytest.mark.parametrize(
    ("given", "step"), [(7, 7), ([8, 8], 8), (Wrapped(9), 9), ("7", None), (True, None), (None, None)]
)
def test_a_batch_may_say_its_step(given, step) -> None:
    assert step_of(batch(global_steps=given)) == step
    assert step_of(batch()) is None


def test_bytes_are_those_of_the_values_alone() -> None:
    assert payload_bytes({"dense": torch.zeros(4, 8), "narrow": torch.zeros(4, dtype=torch.int8)}) == 132
    assert payload_bytes({"jagged": JAGGED}) == 40
    assert payload_bytes({"strided": STRIDED}) == 40
    assert payload_bytes({}) == 0


def test_bytes_of_objects_are_counted_where_they_are_known() -> None:
    assert payload_bytes({"text": Wrapped(["abc", "é", b"xy", torch.zeros(2)])}) == 3 + 2 + 2 + 8
    assert payload_bytes({"one": Wrapped("abc")}) == 3
    chat = [{"role": "user", "turns": [1, 2.5, None]}, ("ab", {"é"})]
    assert payload_bytes({"chat": Wrapped(chat), "plain": chat}) == 2 * (4 + 4 + 5 + 16 + 2 + 2)
    deep: list[object] = []
    deep.append(deep)
    for unknown in (object(), [{"of": object()}], deep):
        assert payload_bytes({"dense": torch.zeros(4), "unknown": Wrapped(unknown)}) is None
    fields = {"dense": torch.zeros(4), "image": Wrapped(object()), "text": Wrapped("abc"), "deep": deep}
    assert known_bytes(fields) == (16 + 3, ["image", "deep"])


@pytest.mark.parametrize(
    ("rows", "ranges"),
    [
        ([5], (5, 1)),
        ([0, 1, 2], (0, 3)),
        ([2, 0, 1], (0, 3)),
        ([0, 2, 4, 5], (0, 1, 2, 1, 4, 2)),
        ([1, 1, 2], (1, 2)),
        ([], ()),
    ],
)
def test_rows_are_ranges(rows, ranges) -> None:
    assert ranges_of(rows) == ranges


@pytest.mark.parametrize(
    ("rows", "extent"),
    [
        ([3, 4, 5], (3, 5, ())),
        ((3, 4), (3, 4, ())),
        ([3], (3, 3, ())),
        ([5, 3, 4], (3, 5, ())),
        ([3, 9, 5], (3, 9, (3, 1, 5, 1, 9, 1))),
        ([0, 2, 1, 4], (0, 4, (0, 3, 4, 1))),
        ([0, 0, 1], (0, 1, (0, 2))),
    ],
)
def test_rows_that_are_not_all_from_first_to_last_have_their_ranges(rows, extent) -> None:
    assert extent_of(rows) == extent


def test_fields_are_those_of_a_tensordict_however_it_holds_them() -> None:
    dense = torch.zeros(2)
    assert fields_of(SimpleNamespace(_tensordict={"x": dense})) == {"x": dense}
    assert fields_of(SimpleNamespace(items=lambda: [("x", dense)])) == {"x": dense}


@pytest.mark.parametrize(
    ("tags", "versions"),
    [
        (
            [{"min_global_steps": 3, "max_global_steps": 5}, {"min_global_steps": 4, "max_global_steps": 4}],
            (3, 5),
        ),
        ([{"min_global_steps": None, "max_global_steps": None}], None),
        ([{"min_global_steps": 7}, {}], (7, 7)),
        ([{"status": "success"}], None),
        ([], None),
    ],
)
def test_versions_of_weights_are_read_from_tags(
    tags: list[dict[str, object]], versions: tuple[int, int] | None
) -> None:
    assert versions_of(SimpleNamespace(custom_meta=tags)) == versions
