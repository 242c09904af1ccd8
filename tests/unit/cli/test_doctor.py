"""What `doctor` says of this package itself; of hosts: tests/processes/test_flagscale_enable.py."""

from __future__ import annotations

from argparse import Namespace

import pytest

from flagscale_perf.cli import doctor
from flagscale_perf.spine import hot


@pytest.mark.parametrize(
    ("extension", "line"),
    [
        (hot, "built: the monitor's part of a step runs in C"),
        (
            None,
            "not in use: the monitor takes up to half as much again of each step; install again with a C "
            "compiler and Python's headers, and without FLAGSCALE_PERF_PLAIN_PYTHON",
        ),
    ],
)
def test_whether_the_extension_is_there_and_what_its_absence_costs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], extension: object, line: str
) -> None:
    monkeypatch.setattr(hot, "extension", extension)
    for name in ("find_hosts", "_device_lines"):
        monkeypatch.setattr(doctor, name, list)
    assert doctor.DoctorCommand().run(Namespace()) == 1
    assert f"extension   {line}\n" in capsys.readouterr().out
