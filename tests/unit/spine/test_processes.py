"""What /proc says about processes."""

import os
import subprocess
import sys

from flagscale_perf.spine.processes import own_pids, process_stat


def test_the_state_of_a_process() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    stat, again = process_stat(child.pid), process_stat(child.pid)
    assert stat is not None
    assert (stat.parent, stat.group, stat.session, stat) == (os.getpid(), child.pid, child.pid, again)
    assert child.pid in own_pids()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process_stat(child.pid) is None, "a zombie"
    child.communicate()
    assert process_stat(child.pid) is None


def test_another_start_under_the_same_number_is_another_process() -> None:
    first, second = process_stat(os.getpid()), process_stat(1)
    assert first is not None
    assert second is not None
    assert first.start_ticks > second.start_ticks
