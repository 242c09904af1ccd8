"""Hypothesis strategies: records of every kind, as a run makes them and as anybody may write them into a
file.
"""

from __future__ import annotations

from typing import Any, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from flagscale_perf.spine.jsonl import MAX_DEPTH, MAX_INT
from flagscale_perf.spine.records import KINDS, SCHEMA_VERSION, TYPES, Record, RunHeader
from flagscale_perf.store.decoder import MOMENTS
from flagscale_perf.training.rank_records import (
    MAX_RANKS_PER_ENTRY,
    PHASE_BASE,
    CutsRecord,
    RanksRecord,
    StragglerRecord,
)
from flagscale_perf.training.records import Outcome, StepRecord
from flagscale_perf.training.window import end_mono_ns
from flagscale_perf.training.work import UNKNOWN, WORK
from tests.fakes import (
    MS,
    make_event,
    make_facts,
    make_header,
    make_phases,
    make_reading,
    make_skipped_data,
    make_step,
)

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)  # every control character, too
NS = st.integers(1 - 2**63, 2**63 - 1)
COUNT = st.integers(1 - MAX_INT, MAX_INT - 1)
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
SCALAR = st.none() | st.booleans() | COUNT | FLOAT | ANY_TEXT


def json_values(depth: int = MAX_DEPTH - 1) -> st.SearchStrategy[Any]:
    """Whatever a line may hold in a mapping, at most so deep."""
    if depth <= 0:
        return SCALAR
    deeper = st.deferred(lambda: json_values(depth - 1))
    return SCALAR | st.lists(deeper, max_size=2) | st.dictionaries(ANY_TEXT, deeper, max_size=2)


def _values(name: str, hint: Any) -> st.SearchStrategy[Any]:
    if type(None) in get_args(hint):
        return st.none() | st.one_of(
            [_values(name, part) for part in get_args(hint) if part is not type(None)]
        )
    if get_origin(hint) is list:
        return st.lists(_values(name, get_args(hint)[0]), max_size=3)
    if get_origin(hint) is tuple:
        return st.lists(NS, max_size=3)  # as they are read back
    if get_origin(hint) is dict:
        return st.dictionaries(ANY_TEXT, _values(name, get_args(hint)[1]), max_size=3)
    return {
        int: COUNT if name.endswith("_flops") else NS,
        float: FLOAT,
        bool: st.booleans(),
        str: ANY_TEXT,
        Any: json_values(3),
    }[hint]


def _any_of(record_type: type[Record]) -> st.SearchStrategy[Any]:
    fields = {name: _values(name, hint) for name, hint in get_type_hints(record_type).items()}
    never_negative = (*MOMENTS, f"_{TYPES[record_type].duration}")
    for name in fields:
        if f"_{name}".endswith(never_negative):
            fields[name] = fields[name].map(lambda time: time and abs(time))
    if record_type is RunHeader:
        fields["schema_version"] = st.integers(-5, SCHEMA_VERSION)
    elif record_type is RanksRecord:
        fields["ranks_per_entry"] = st.integers(1, MAX_RANKS_PER_ENTRY)
        return st.integers(0, 3).flatmap(
            lambda size: st.builds(
                RanksRecord,
                **fields
                | {name: _column(name, size) for name in _COLUMNS}
                | {"host": st.none() | st.dictionaries(ANY_TEXT, _column("host", size), max_size=3)},
            )
        )
    elif record_type is CutsRecord:
        sizes = st.tuples(*(st.integers(0, 3) for _ in range(3)))
        return sizes.flatmap(lambda size: st.builds(CutsRecord, **fields | _cuts(*size)))
    elif record_type is StragglerRecord:
        fields["ranks"] = st.lists(NS, min_size=1, max_size=3)
    return st.builds(record_type, **fields)


_COLUMNS = ("iteration_ns", "work_ns", "wait_ns", "data_ns", "memory_peak_bytes")  # one element an entry


def _column(name: str, size: int) -> st.SearchStrategy[list[int | None]]:
    return st.lists(st.none() | _values(name, int), min_size=size, max_size=size)


def _cuts(rows: int, cuts: int, columns: int) -> dict[str, st.SearchStrategy[Any]]:
    columns = columns if cuts else 0
    lists = {
        "waits": (st.integers(0, PHASE_BASE - 1), cuts),
        "columns": (st.integers(0, max(1, cuts * PHASE_BASE) - 1), columns),
        "sizes": (st.just(1), rows),
        "ranks": (NS, rows),
        "own_ns": (_values("own_ns", int), rows * columns),
        "wait_ns": (_values("wait_ns", int), rows * cuts),
    }
    work = st.lists(st.integers(UNKNOWN, 2**63 - 1), min_size=rows * len(WORK), max_size=rows * len(WORK))
    found = {name: st.lists(of, min_size=size, max_size=size) for name, (of, size) in lists.items()}
    return found | {"work": st.none() | work}


any_record: st.SearchStrategy[Record] = st.one_of([_any_of(record_type) for record_type in KINDS.values()])

_PAUSE_NS = st.sampled_from([0, 0, 0, 1, 10**9]) | st.integers(0, 10**10)
_STEP = st.tuples(
    st.sampled_from(["trained", "trained", "update skipped", "data skipped"]),
    st.integers(1, 10**10),  # iteration_ns
    _PAUSE_NS,  # eval_ns
    _PAUSE_NS,  # checkpoint_ns
    st.sampled_from(["", "phases", "phases of another step", "no phases", "failure", "reading"]),  # before it
    st.none() | st.integers(0, 10**10),  # data_loading_ns
)


@st.composite
def runs(draw: st.DrawFn, max_steps: int = 15) -> list[Record]:
    """What one session of a run records, header first: steps one after the other, phases, readings and events
    between them.
    """
    records: list[Record] = [make_header(facts=make_facts(pipeline_parallel=2, pipeline_schedule="1f1b"))]
    at_ns, iteration, has_begun = draw(st.integers(0, 10**10)), draw(st.integers(0, 50)), False
    for kind, iteration_ns, eval_ns, checkpoint_ns, company, loading_ns in draw(
        st.lists(_STEP, max_size=max_steps)
    ):
        times = {
            "start_ns": at_ns,
            "iteration_ns": iteration_ns,
            "eval_ns": eval_ns,
            "checkpoint_ns": checkpoint_ns,
        }
        step = _step(kind, iteration, times)
        if step.outcome != Outcome.DATA_SKIPPED and not has_begun:
            step, has_begun = step._replace(warmup=1), True
        records += [*_company(company, step, loading_ns), step]
        iteration, at_ns = step.iteration, end_mono_ns(step)
    return records


def _step(kind: str, after: int, fields: dict[str, int]) -> StepRecord:
    if kind == "data skipped":
        return make_skipped_data(after + 3, 3, **fields)
    outcome = Outcome.TRAINED if kind == "trained" else Outcome.UPDATE_SKIPPED
    return make_step(after + 1, outcome=int(outcome), **fields)


def _company(kind: str, step: StepRecord, loading_ns: int | None) -> list[Record]:
    """What comes before a step."""
    if kind == "failure":
        return [make_event("failure", at_ns=step.start_ns, iteration=step.iteration)]
    if kind == "reading":
        return [make_reading(step.start_ns)]
    if not kind:
        return []
    iteration = step.iteration - (kind == "phases of another step")
    return [make_phases(iteration, data_loading_ns=loading_ns, other_ns=None if kind == "no phases" else MS)]
