"""Keys and names of a job's processes."""

import pytest

from flagscale_perf.spine.peers.member import Member, is_name, job_key


def test_a_ring_is_called_after_job_and_process() -> None:
    assert Member("0123456789abcdef", "worker-3").ring_name == "flagscale_perf.0123456789abcdef.worker-3"


def test_the_key_tells_jobs_apart() -> None:
    keys = [job_key("a", "b"), job_key("ab", ""), job_key("a"), job_key("\udcff"), job_key("?")]
    assert len(set(keys)) == 5
    assert job_key("a", "b") == keys[0]
    assert {len(key) for key in keys} == {16}


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("0", True), ("worker-3", True), ("a_b", True), ("", False), ("a b", False), ("../a", False),
     ("a" * 65, False),
     ("a.b", False), ("1\n", False)],
)  # fmt: skip
def test_names_are_safe_in_paths(text: str, is_one: bool) -> None:
    assert is_name(text) is is_one
