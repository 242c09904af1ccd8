"""Records of the processes of a job that hand their rings to one writer.

In its own ring a process is number 0; the writer gives each a number. What repeats as text is kept once, as
a `NameRecord`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from flagscale_perf.spine.records import record
from flagscale_perf.spine.slots import Bytes

NAME_BYTES = 200


@record("name", slot=19)
class NameRecord(NamedTuple):
    """The text that a number of this process stands for, recorded before the number is first used.

    Attributes:
        process: number of the process in the session; 0 in its own ring.
        number: from 1.
        text: may be cut.
    """

    process: int
    number: int
    text: Annotated[str, Bytes(NAME_BYTES)]


@record("process")
@dataclass(frozen=True)
class ProcessRecord:
    """A process that the writer has found; comes before its first record, and again when it has ended.

    Attributes:
        number: in the session, from 1.
        pid: of it.
        title: what it is: a Ray actor's class, a rank, or a program's name.
        start_ns: monotonic mark of its joining the job.
        end: why nothing more comes of it; None while it may.
        dropped: records that its ring had no room for.
        lost: records that its numbers say were made and that did not come; None where unknown, as the process
            was gone before it was found.
    """

    number: int
    pid: int
    title: str
    start_ns: int
    end: str | None
    dropped: int
    lost: int | None
