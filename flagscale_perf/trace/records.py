"""Records of a queue's operations and of the functions that make them.

A process keeps these in its own ring, where `process` is 0; the writer of its machine gives each process a
number. Texts that repeat (functions, partitions, errors, storage units) are kept once, as a `NameRecord`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, NamedTuple

from flagscale_perf.spine.records import record
from flagscale_perf.spine.slots import Bytes

TRACE_ID_BYTES = 40
ONE = 1000  # of `weight_milli`: the record stands for itself alone


class Kind(IntEnum):
    """A client's operation, as `operation` of a record has it."""

    PUT = 0
    GET = 1
    UPDATE = 6  # as `Begun` has it: values merged into those of samples that are there


class Begun(IntEnum):
    """What has begun: a client's operation, by its `Kind`, a stage of a call, or a wait for samples."""

    PUT = 0
    GET = 1
    CALL = 2
    COMPUTE = 3
    CALL_PUT = 4
    WAIT = 5
    UPDATE = 6


@record("tq_start", slot=22)
class StartRecord(NamedTuple):
    """Something that has begun and not ended yet. The record of its end has the same `start_ns`; without one
    it is still open, or its process died in it. Not made where a sample of all is kept.

    Attributes:
        process: as of an operation.
        begun: a `Begun`.
        start_ns: monotonic mark of the operation, or of the call.
        at_ns: of what has begun; of a call's stages later than `start_ns`.
        function: name of it; 0 outside of any.
        partition: name of it; 0 where it is not known yet.
        trace_id: as of an operation.
    """

    process: int
    begun: int
    start_ns: int
    at_ns: int
    function: int
    partition: int
    trace_id: Annotated[str, Bytes(TRACE_ID_BYTES)]


KINDS = frozenset(map(int, Kind))  # a record with another one is damaged, or of a later version


@record("tq_operation", slot=16, start="start_ns", duration="total_ns")
class OperationRecord(NamedTuple):
    """One put, get or update of a client. Its stages do not overlap, except `slowest_unit_ns`, which lies in
    `unit_ns`; what they leave of `total_ns` is the client's other work. A stage is None where it was not
    measured, or does not belong to this kind.

    Attributes:
        process: number of the process in the session; 0 in its own ring.
        number: of the process, from 1; operations and calls have one series without gaps. They come in the
            order of their ends, though a call may have taken its number when what is in it ended.
        call: number of the `CallRecord` it was made in; 0 outside of any.
        operation: a `Kind`.
        start_ns: monotonic mark.
        total_ns: from there to the result.
        select_ns: put, update: laying the fields out for the storage units.
        serialize_ns: put, update: making messages of them.
        unit_ns: from the first request to a storage unit until the last reply, without what messages take to
            be made and read.
        slowest_unit: name of the unit that was waited for longest.
        slowest_unit_ns: how long.
        notify_ns: put, update: telling the controller what is there now.
        tags_ns: put: storing the samples' tags there.
        decode_ns: get: arrays of the replies.
        pack_ns: get: one batch of these.
        size_bytes: of the samples' values alone; None where those of a field are not known, or it failed.
        rows: samples.
        fields: of a sample.
        first_row, last_row: lowest and highest index in the partition. Where there are fewer rows than from
            one to the other, a `RowsRecord` has the rest.
        partition: name of that of its first sample. Where a batch has samples of several, the names of the
            others are not kept; their indexes are, and the queue gives each index to one sample at a time.
        error: name of the error's type; 0 where it succeeded.
        weight_milli: how many operations it stands for, in thousandths.
        step: of the training, where the batch says so.
        trace_id: of the batch; "" where it has none.
        field_set: number of the `FieldsRecord` that names the fields; None where they are not known.
    """

    process: int
    number: int
    call: int
    operation: int
    start_ns: int
    total_ns: int
    select_ns: int | None
    serialize_ns: int | None
    unit_ns: int | None
    slowest_unit: int | None
    slowest_unit_ns: int | None
    notify_ns: int | None
    tags_ns: int | None
    decode_ns: int | None
    pack_ns: int | None
    size_bytes: int | None
    rows: int
    fields: int
    first_row: int | None
    last_row: int | None
    partition: int
    error: int
    weight_milli: int
    step: int | None
    trace_id: Annotated[str, Bytes(TRACE_ID_BYTES)]
    field_set: int | None


@record("tq_call", slot=17, start="start_ns", duration="total_ns")
class CallRecord(NamedTuple):
    """One call of a function that takes its data from the queue and puts its results there: get, compute,
    put, one after another; what they leave of `total_ns` is the tracer's own.

    Attributes:
        process, number: as of an operation.
        parent: number of the call it was made in; 0 outside of any.
        start_ns: monotonic mark.
        total_ns: from there to its return, or to its error.
        get_ns: from the start until the function's own work began.
        compute_ns: that work; None where it never began.
        put_ns: from its end to the return; None where it failed before.
        rows: samples of its batch.
        operations: of the client in it.
        operations_get_ns, operations_put_ns: sums of these.
        get_bytes, put_bytes: sums of theirs; None where one is not known.
        function: name of it.
        error, weight_milli, step, trace_id: as of an operation.
    """

    process: int
    number: int
    parent: int
    start_ns: int
    total_ns: int
    get_ns: int
    compute_ns: int | None
    put_ns: int | None
    rows: int | None
    operations: int
    operations_get_ns: int
    operations_put_ns: int
    get_bytes: int | None
    put_bytes: int | None
    function: int
    error: int
    weight_milli: int
    step: int | None
    trace_id: Annotated[str, Bytes(TRACE_ID_BYTES)]


@record("tq_rows", slot=18)
class RowsRecord(NamedTuple):
    """The samples of an operation, if they are not all of those from its first to its last. An operation may
    have several, one after another; they come before it.

    Attributes:
        process, number: of the operation.
        is_cut: 1 in the last, where there are more ranges than are kept.
        ranges: first index and count of each range, one after another.
    """

    process: int
    number: int
    is_cut: int
    ranges: tuple[int, ...]


@record("tq_units", slot=23)
class UnitsRecord(NamedTuple):
    """How long an operation waited for each storage unit, if it made several requests; comes before it.

    Attributes:
        process, number: of the operation.
        waits: of each request, name of its unit and how long in nanoseconds, one after another; of many the
            first ones. A unit that comes again was asked again, as it had not answered.
    """

    process: int
    number: int
    waits: tuple[int, ...]


@record("tq_unsized", slot=32)
class UnsizedRecord(NamedTuple):
    """An operation's known bytes, where those of some fields are unknown; precedes its record.

    Attributes:
        process, number: of the operation, whose `size_bytes` is None.
        known_bytes: bytes of the values of its other fields.
        fields: names of the fields whose bytes are unknown; of many the first ones.
    """

    process: int
    number: int
    known_bytes: int
    fields: tuple[int, ...]


@record("tq_versions", slot=36)
class VersionsRecord(NamedTuple):
    """Which weights made the samples of a put, where their tags say so; precedes its record.

    Attributes:
        process, number: of the put.
        oldest, newest: versions, as steps of the training.
    """

    process: int
    number: int
    oldest: int
    newest: int


@record("tq_wait", slot=33, start="start_ns", duration="total_ns")
class WaitRecord(NamedTuple):
    """A consumer asked the controller which samples it may get next. Has no number; sampling never leaves one
    out.

    Attributes:
        process, call, start_ns, total_ns, partition, error: as of an operation.
        task: name of the consumer, as it called itself; 0 where it did not.
        wanted: samples it asked for; None where it did not say.
        rows: samples it was told; 0 where there were too few.
        trace_id: of its call; outside of any one of its own.
    """

    process: int
    call: int
    start_ns: int
    total_ns: int
    partition: int
    error: int
    task: int
    wanted: int | None
    rows: int
    trace_id: Annotated[str, Bytes(TRACE_ID_BYTES)]


@record("tq_keys", slot=34, start="at_ns")
class KeysRecord(NamedTuple):
    """Samples have been given keys, or new values under the same ones. One request may have several records.

    Attributes:
        process, partition: as of an operation.
        at_ns: monotonic mark.
        keys: index and number of its key (`batches.key_number`) of each sample, one after another.
    """

    process: int
    partition: int
    at_ns: int
    keys: tuple[int, ...]


@record("tq_fields", slot=21)
class FieldsRecord(NamedTuple):
    """The fields of a put or get, recorded once for each set of fields, before the first operation that has
    it. A large set has several records, whose fields add up.

    Attributes:
        process, number: of the set; numbers of names and sets are one series.
        fields: numbers of their names.
    """

    process: int
    number: int
    fields: tuple[int, ...]


@record("tq_clear", slot=20, start="start_ns", duration="total_ns")
class ClearRecord(NamedTuple):
    """Samples of one partition that a client took out of the queue, which then reuses their indexes: what is
    put at these after `start_ns` is a new sample. One clear may have several records in a row that differ
    only in `is_cut` and `ranges`. Sampling never leaves any out, and they have no number.

    Attributes:
        process, call, start_ns, total_ns, partition: as of an operation.
        error: as of an operation; some of the samples may be gone all the same.
        is_partition: 1 where all samples of the partition were cleared, those that are not named included.
        is_cut: 1 in the last, where there are more ranges than are kept.
        ranges: as of a `RowsRecord`; empty where it is only known that they were all of the partition's.
    """

    process: int
    call: int
    start_ns: int
    total_ns: int
    partition: int
    error: int
    is_partition: int
    is_cut: int
    ranges: tuple[int, ...]
