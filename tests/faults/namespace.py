"""A command in PID and mount namespaces of its own, where /proc hides processes that may not be inspected.

    python -m tests.faults.namespace COMMAND...

/proc is mounted with hidepid=2, and the command has no CAP_SYS_PTRACE: it sees the processes of its user,
except those that are not dumpable. Ends with the command's exit code, after every process of the namespace.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

CLONE_NEWNS, CLONE_NEWPID = 0x20000, 0x20000000
PR_SET_DUMPABLE, PR_CAPBSET_DROP = 4, 24
CAP_SYS_PTRACE = 19
HIDING = "hidepid=2,gid=65534"  # members of the group see everything, and root is in group 0
LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    _call(LIBC.unshare(CLONE_NEWNS | CLONE_NEWPID))
    first = (
        os.fork()
    )  # process 1 of the namespace: when it ends, the kernel kills the others and allows no more
    if first == 0:
        os._exit(_first_process(sys.argv[1:]))
    return os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])


def _first_process(command: list[str]) -> int:
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "proc", "-o", HIDING, "proc", "/proc"], check=True)
    started = subprocess.Popen(
        command, preexec_fn=lambda: _call(LIBC.prctl(PR_CAPBSET_DROP, CAP_SYS_PTRACE, 0, 0, 0))
    )
    code = 1
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return code
        if pid == started.pid:
            code = started.returncode = os.waitstatus_to_exitcode(status)


def hide_this_process() -> None:
    """Makes it not dumpable: others of this user do not see it in such a /proc any more."""
    _call(LIBC.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))


def _call(result: int) -> None:
    if result:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


if __name__ == "__main__":
    sys.exit(main())
