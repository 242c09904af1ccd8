"""What a worker of Ray runs first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from flagscale_perf.hosts.transfer_queue import install


def test_the_hook_does_nothing_where_the_package_is_not_installed(tmp_path: Path) -> None:
    code = Path(install.__file__).read_text()
    body = code[code.index("    def trace_this_worker") : code.index("    return trace_this_worker")]
    program = "import sys\nsys.modules['flagscale_perf'] = None\nif True:\n" + body + "\ntrace_this_worker()"
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
