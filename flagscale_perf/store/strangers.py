"""What a file or a directory is that was given for a run and is none, and what to do about it."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import zlib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import open_regular
from flagscale_perf.spine.session import REALTIME_FILE, session_shown_by
from flagscale_perf.store.runs import runs_below

GIVE = "give the directory of --perf-log-dir"
NO_RUN_FILE = "this is not a run file of flagscale_perf"
FOREIGN = (
    "FlagScale's own monitor writes such files, and no run file: record with flagscale_perf (`torchrun ... -m"
    " flagscale_perf.launch SCRIPT ... --enable-perf-monitor`)"
)
_LOOKED_AT_BYTES = 1 << 16
_PACKED = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ": ("xz", "unxz"),
    b"(\xb5/\xfd": ("zstd", "unzstd"),
    b"PK\x03\x04": ("zip, or a checkpoint of torch", "unzip"),
}
_WIDE = (b"\xff\xfe", b"\xfe\xff", b"{\0", b"\0{")
_MEGATRON = re.compile(rb"(?m)^.*\biteration +\d+/ *\d+ \||^-+ arguments -+$|elapsed time per iteration")
_CHECKPOINT = re.compile(r"iter_\d{7}|latest_checkpointed_iteration\.txt|.*\.distcp|.*_optim_rng\.pt")
_PACKED_RUN = re.compile(r"perf_records_.*\.jsonl\.(?:gz|bz2|xz|zst|zip)")


def about_file(path: Path, reason: str) -> str:
    """Why it is no run file, of which the first line was refused for this reason."""
    with contextlib.suppress(OSError), os.fdopen(open_regular(path), "rb") as file:
        reason = _about(file.read(_LOOKED_AT_BYTES), path.name, reason)
    return f"{path}:1: {reason}; {NO_RUN_FILE}"


def _trouble(begin: bytes) -> str:
    """Why not even the first byte can be unpacked; empty if it can."""
    try:
        return "" if gzip.GzipFile(fileobj=BytesIO(begin)).read1(1) else "it holds nothing"
    except (OSError, EOFError, zlib.error) as error:
        return str(error)


def _about(begin: bytes, name: str, reason: str) -> str:
    for mark, (form, command) in _PACKED.items():
        if begin.startswith(mark):
            trouble = _trouble(begin) if form == "gzip" else ""
            if trouble:
                return f"it is compressed (gzip), and nothing of it can be unpacked: {trouble}"
            return f"it is compressed ({form}): unpack it first ({command} {name})"
    if begin.startswith(_WIDE):
        return (
            "it is text in UTF-16, as PowerShell's > writes it: turn it into UTF-8 first (iconv -f UTF-16 -t"
            f" UTF-8 {name})"
        )
    first = begin.partition(b"\n")[0]
    if b'"kind":"header"' in first and not first.startswith(b"{"):
        shown = first.partition(b"{")[0][:40].decode(errors="replace")
        return f"before its header stands {shown!r}, as log collectors put it before each line: take it off"
    if _MEGATRON.search(begin):
        return f"it is the output of a training, as Megatron prints it: {GIVE}"
    if b"\0" in begin or sum(byte < 32 and byte not in b"\t\n\r\x1b" for byte in begin) > len(begin) // 100:
        return "it is neither JSON nor text"
    if not first.startswith(b"{"):
        return f"its first line is no JSON object, but {first[:40].decode(errors='replace')!r}"
    return reason if b'"kind"' in first else "it is JSON whose first line has no `kind`"


def no_run_in(directory: Path, names: Sequence[str]) -> PerfError:
    """What is wrong with a directory of these names that has no run file."""
    packed = [name for name in names if _PACKED_RUN.fullmatch(name)]
    views = sorted(name for name in names if name == REALTIME_FILE or session_shown_by(name))
    below = " or ".join(repr(str(path)) for path in runs_below(directory))
    if packed:
        what, cure = f", but {packed[0]}, which is compressed", "unpack it first"
    elif below:
        what, cure = "", f"give {below}"
    elif views:
        what, cure = f", but {views[0]}", FOREIGN
    elif any(map(_CHECKPOINT.fullmatch, names)):
        what, cure = ", but a checkpoint", GIVE
    elif any(name.startswith("events.out.tfevents") for name in names):
        what, cure = ", but TensorBoard's curves", GIVE
    else:
        what, cure = "" if names else ", which is empty", GIVE
    return PerfError(f"no perf_records_*.jsonl in {str(directory)!r}{what}; {cure}")
