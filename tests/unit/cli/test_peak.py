"""`flagscale-perf peak`: the datasheet's figure and the measured one, apart."""

from __future__ import annotations

import re
import sys

from flagscale_perf.cli import main, peak


def test_a_name_is_looked_up_without_measuring(capsys):
    assert main(["peak", "--device", "NVIDIA H200"]) == 0
    assert capsys.readouterr().out == (
        "device     NVIDIA H200\n"
        "dtype      bf16\n"
        "datasheet  989.4 TFLOP/s (H200 SXM, dense bf16: "
        "NVIDIA's Hopper datasheet as cited by torchtitan, composer and Lightning (trust A))\n"
    )


def test_an_unknown_name_has_a_hint_and_the_nearest_ones(capsys):
    assert main(["peak", "--device", "H100"]) == 0
    unknown, near = capsys.readouterr().out.splitlines()[2:]
    assert unknown.startswith("datasheet  unknown (no peak is known for 'H100'; set --perf-peak-tflops")
    assert near == "near       NVIDIA H100 80GB HBM3, NVIDIA H100 PCIE, NVIDIA H100 NVL"
    assert main(["peak", "--device", "NVIDIA H200 NVL"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "near       NVIDIA H200"
    assert main(["peak", "--device", "Ascend 910B2"]) == 0  # it is known: that no figure can be trusted
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_where_no_name_is_near_all_are_listed(capsys):
    assert main(["peak", "--device", "something else"]) == 0
    first, *others = capsys.readouterr().out.splitlines()[3:]
    assert first.startswith("known      TESLA V100-SXM2-80GB, ")
    assert others[-1].endswith("MTT S5000")
    assert all(line.startswith(" " * 11) for line in others)
    assert max(map(len, (first, *others))) <= 100


def test_measured_on_the_cpu(capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setitem(peak.SIDES, "cpu", 64)
    monkeypatch.setattr(peak, "SECONDS", 0.01)
    assert main(["peak", "--dtype", "fp32"]) == 0
    device, dtype, datasheet, measured = capsys.readouterr().out.splitlines()
    assert (device, dtype) == ("device     CPU", "dtype      fp32")
    assert datasheet.startswith("datasheet  unknown (no peak is known for 'CPU'; ")
    reached = re.fullmatch(
        r"measured   (\S+) TFLOP/s \(best of (\d+) products of 64 x 64 matrices\)", measured
    )
    assert reached is not None
    assert float(reached[1]) > 0
    assert int(reached[2]) >= 1


def test_what_cannot_be_measured_is_said(capsys):
    assert main(["peak", "--dtype", "fp8"]) == 2
    assert "look fp8 up with --device NAME" in capsys.readouterr().err


def test_what_torch_cannot_do_is_a_mistake_of_the_user(capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setitem(peak.SIDES, "cpu", 3_000_000)
    assert main(["peak"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("--dtype bf16: ")
    assert said.endswith("; free the device's memory, or take another --dtype\n")


def test_a_torch_that_cannot_be_imported_is_said(run_python, tmp_path):
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so: no such file')")
    done = run_python("-m", "flagscale_perf", "peak")
    assert (done.returncode, done.stderr) == (
        2,
        (
            "measuring needs torch, which cannot be imported: libcudart.so: no such file\n"
            f"install it again: {sys.executable} -m pip install --force-reinstall torch, "
            "or look a device up with --device NAME\n"
        ),
    )
    doctor = run_python("-m", "flagscale_perf", "doctor")
    assert (
        "torch is installed but cannot be imported (libcudart.so: no such file): reading and" in doctor.stdout
    )
    assert doctor.stderr == ""
