"""Who belongs to one job: processes that share a key, each with a name of its own."""

from __future__ import annotations

import hashlib
import os
import re
from typing import NamedTuple

NAME_PATTERN = r"[A-Za-z0-9_-]{1,64}"
_NAME = re.compile(NAME_PATTERN)


class Member(NamedTuple):
    """One process of a job.

    Attributes:
        key: shared by all processes of the job and by no other process of this user; see `job_key`.
        name: no other process of the job has it; letters, digits, "_" and "-", 64 at most.
    """

    key: str
    name: str

    @property
    def ring_name(self) -> str:
        """Name of the shared memory of this process's ring."""
        return f"{ring_prefix(self.key)}{self.name}"


def job_key(*words: str) -> str:
    """The key of a job, of words that no other job of this user has."""
    job = "\0".join([*words, str(os.getuid())])
    return hashlib.sha256(os.fsencode(job)).hexdigest()[:16]


def ring_prefix(key: str) -> str:
    """How the names of all rings of one job begin."""
    return f"flagscale_perf.{key}."


def is_name(text: str) -> bool:
    """Whether a process of a job may be called this."""
    return _NAME.fullmatch(text) is not None
