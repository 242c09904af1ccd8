"""Facts of a header, read back whatever they hold."""

from __future__ import annotations

from dataclasses import asdict, replace

from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.training.facts import RunFacts
from tests.fakes import make_facts
from tests.strategies import json_values

NOTHING_KNOWN = RunFacts(
    package_version="",
    host="",
    script="",
    hostname="",
    pid=0,
    world_size=0,
    restart_count=0,
    tensor_parallel=None,
    pipeline_parallel=None,
    data_parallel=None,
    context_parallel=None,
    expert_parallel=None,
    pipeline_schedule=None,
    device="",
    rehearsal=False,
    dtype=None,
    peak_flop_per_s=None,
    peak_source="",
    flops_convention="",
    model_family=None,
    model=None,
    seq_length=None,
    micro_batch_size=None,
    global_batch_size=None,
    train_iters=None,
    resume_iteration=0,
    tensorboard_dir=None,
    missing=[],
)


def test_facts_come_back_as_they_were_written() -> None:
    facts = make_facts(device_uuid="1", process_start_ns=-7, missing=["HFU (why)"], model={"layers": 2})
    assert RunFacts.of(asdict(facts)) == facts


def test_a_file_of_an_earlier_version_lacks_the_later_facts() -> None:
    facts = make_facts(device_uuid="1", device_memory_bytes=5)
    earlier = {key: value for key, value in asdict(facts).items() if not key.startswith("device_")}
    assert RunFacts.of(earlier) == replace(facts, device_uuid=None, device_memory_bytes=None)


def test_facts_nobody_wrote_are_not_known() -> None:
    assert RunFacts.of({"another": 1}) == NOTHING_KNOWN


def test_a_value_of_another_type_counts_as_missing() -> None:
    wrong = {
        "host": 5,
        "world_size": True,
        "train_iters": "9",
        "peak_flop_per_s": [],
        "missing": "x",
        "rehearsal": 1,
    }
    assert RunFacts.of(wrong) == NOTHING_KNOWN
    assert RunFacts.of({"peak_flop_per_s": 312 * 10**12, "missing": ["a", 1]}) == replace(
        NOTHING_KNOWN, peak_flop_per_s=312 * 10**12, missing=["a", "1"]
    )


@given(st.dictionaries(st.sampled_from(sorted(asdict(NOTHING_KNOWN))), json_values(2)))
def test_no_facts_are_refused(facts) -> None:
    RunFacts.of(facts)
