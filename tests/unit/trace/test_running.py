"""A call says the id and the step that its batch does not say."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from flagscale_perf.trace.running import Call, identity_of, new_id


def batch(**info: Any) -> SimpleNamespace:
    return SimpleNamespace(extra_info=info, custom_meta=[])


def test_what_a_batch_does_not_say_its_call_does() -> None:
    outer = Call("rollout", batch(trace_id="a1", global_steps=3), None, start_ns=0)
    inner = Call("score", batch(trace_id="b2"), outer, start_ns=0)
    assert inner.identity == ("b2", 3)
    assert identity_of(batch(global_steps=4), inner) == ("b2", 4)
    assert identity_of(None, outer) == ("a1", 3)


def test_without_either_there_is_no_id_and_no_step() -> None:
    assert identity_of(batch(), None) == ("", None)


def test_ids_differ_in_a_process_and_between_one_and_its_fork() -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, new_id().encode())
        os._exit(0)
    ours = {new_id() for _ in range(100)}
    os.waitpid(child, 0)
    theirs = os.read(read, 100).decode()
    os.close(read)
    os.close(write)
    assert len(ours | {theirs}) == 101
    assert {theirs[:12]} != {each[:12] for each in ours}
