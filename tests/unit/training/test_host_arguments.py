"""What of the host's arguments goes into a run file: all of them, as JSON, bounded, without secrets."""

from __future__ import annotations

import json
from argparse import Namespace
from enum import Enum
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.spine.jsonl import dump
from flagscale_perf.training.host_arguments import MAX_BYTES, recorded, recorded_environment


class Backend(Enum):
    FLASH = 1


def test_values_that_json_has_stay_as_they_are() -> None:
    plain = {
        "manual_gc": False,
        "num_workers": 2,
        "lr": 1e-4,
        "load": None,
        "data_path": ["a", "b"],
        "sizes": {"a": 1},
    }
    assert recorded(plain) == plain


def test_other_values_become_texts_or_the_name_of_their_type() -> None:
    given_ = {
        "path": Path("a/b"),
        "backend": Backend.FLASH,
        "shape": (1, 2),
        "space": Namespace(a=1),
        "big": 1 << 200,
    }
    assert recorded(given_) == {
        "path": "a/b",
        "backend": "FLASH",
        "shape": [1, 2],
        "space": "<Namespace>",
        "big": str(1 << 200),
    }


def test_secrets_are_masked_by_their_names_and_nothing_else_is() -> None:
    found = recorded(
        {
            "wandb_api_key": "abc",
            "hf_token": "abc",
            "db_password_file": "abc",
            "nested": {"secret": "abc", "a": 1},
            "proxy": "http://me:abc@host/x",
            "empty_token": "",
            "moe_token_dispatcher_type": "allgather",
            "tokenizer_type": "NullTokenizer",
            "max_tokens_to_oom": 12000,
        }
    )
    assert "abc" not in dump(found)
    assert found["proxy"] == "http://***@host/x"
    kept = ("empty_token", "moe_token_dispatcher_type", "tokenizer_type", "max_tokens_to_oom")
    assert [found[name] for name in kept] == ["", "allgather", "NullTokenizer", 12000]


def test_what_is_asked_for_and_private_names_are_left_out() -> None:
    assert recorded({"a": 1, "_b": 2, "perf_csv": True}, {"perf_csv"}) == {"a": 1}


def test_long_texts_are_cut_long_lists_end_and_the_largest_arguments_go_first() -> None:
    found = recorded({"text": "x" * 1000, "list": list(range(1000))})
    assert (len(found["text"]), found["text"][-3:], found["list"]) == (200, "...", list(range(64)))
    many = {f"name_{number}": ["y" * 150] * 40 for number in range(20)} | {"num_workers": 2}
    kept = recorded(many)
    assert kept["num_workers"] == 2 and 0 < len(kept) < len(many)
    assert len(dump(kept)) < MAX_BYTES + 4 * len(kept) + 2  # quotes, colons and commas


def test_of_the_environment_only_what_changes_the_speed() -> None:
    environ = {
        "NCCL_DEBUG": "INFO",
        "PYTORCH_CUDA_ALLOC_CONF": "x",
        "AWS_SECRET_ACCESS_KEY": "abc",
        "HOME": "h",
    }
    assert recorded_environment(environ) == {"NCCL_DEBUG": "INFO", "PYTORCH_CUDA_ALLOC_CONF": "x"}


@given(
    st.dictionaries(
        st.text(),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.text()
            | st.binary()
            | st.complex_numbers(),
            lambda inner: (
                st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner)
            ),
            max_leaves=10,  # a hundred by default, and a second for every six namespaces
        ),
        max_size=5,
    )
)
def test_any_namespace_becomes_json(arguments) -> None:
    assert json.loads(dump(recorded(arguments))) is not None
