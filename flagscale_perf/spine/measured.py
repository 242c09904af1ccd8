"""Whether the process that a run file is of still lives: its pid means something on its own machine, in its
own namespace.
"""

from __future__ import annotations

import os
import platform

from flagscale_perf.spine.clock import NS_PER_S, boot_id, process_start_ns
from flagscale_perf.spine.processes import pid_namespace, process_stat
from flagscale_perf.spine.records import RunHeader

_TICK_NS = NS_PER_S // 10  # to which it is known when a process started, and more


def trainer_lives(header: RunHeader, is_locked: bool | None) -> bool | None:
    """Whether the measured process is there; None where its pid means nothing here or it cannot be seen.

    Earlier versions recorded no namespace. Then a lock that nobody holds under this very kernel says that
    nobody writes, and a pid that is not there agrees.
    """
    boot, namespace = boot_id(), pid_namespace()
    if header.pid is None or None in (boot, namespace, header.boot_id) or header.host != platform.node():
        return None
    if header.boot_id != boot:
        return False
    if header.pid_namespace != namespace and (header.pid_namespace is not None or is_locked is None):
        return None
    try:
        os.kill(header.pid, 0)
        is_mine = True
    except ProcessLookupError:
        return False
    except PermissionError:
        is_mine = False
    try:
        if process_stat(header.pid) is None:  # not yet waited for; another user's may only be hidden
            return False if is_mine else None
    except (OSError, ValueError):
        return None
    start_ns = process_start_ns(header.pid)
    return None if start_ns is None else start_ns < header.start_mono_ns + _TICK_NS
