"""What is lent to a module of the host while it is imported: to that one only, and where it is missing."""

import importlib.util
import runpy
import sys
import typing
from types import ModuleType, SimpleNamespace

import pytest

from flagscale_perf.hosts.install import Installation
from flagscale_perf.hosts.stand_ins import KERNELS, MODELS, StandIns

KERNEL_FILE = """
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 8}, num_warps=4)], key=["size"])
@triton.jit
def copy_kernel(source, stride: tl.int64, BLOCK: tl.constexpr):
    return tl.load(source)
"""
MODELS_FILE = """
from typing import override

class Model:
    @override
    def build(self):
        return "built"
"""
FILES = {**dict.fromkeys(KERNELS, KERNEL_FILE), MODELS: MODELS_FILE}


@pytest.fixture
def lacking(monkeypatch):
    """No Triton and no `typing.override`, whatever this environment has."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "triton" else find_spec(name)
    )
    for name in ("triton", "triton.language"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr(typing, "override", raising=False)


@pytest.fixture
def imported(tmp_path):
    """Imports a module as the import hook has it imported; returns what is in it."""

    def make(stand_ins, name):
        file = tmp_path / f"{name}.py"
        file.write_text(FILES[name])
        stand_ins.lend(name)
        made = runpy.run_path(str(file))
        stand_ins.take_back(ModuleType(name))
        return SimpleNamespace(**made)

    return make


def is_lent():
    return "triton" in sys.modules or "triton.language" in sys.modules or hasattr(typing, "override")


@pytest.mark.parametrize("name", KERNELS)
def test_a_module_of_kernels_can_be_imported_and_none_be_launched(name, lacking, imported):
    module = imported(StandIns(), name)
    assert not is_lent()
    with pytest.raises(RuntimeError, match="copy_kernel is a Triton kernel: it needs a GPU and triton"):
        module.copy_kernel[1, 1](None)


def test_a_mark_for_type_checkers_changes_nothing(lacking, imported):
    assert imported(StandIns(), MODELS).Model().build() == "built"
    assert not is_lent()


def test_one_lent_within_another_goes_back_when_the_outer_one_does(lacking, imported):
    outer, inner = KERNELS[:2]
    stand_ins = StandIns()
    stand_ins.lend(outer)
    imported(stand_ins, inner)
    assert "triton" in sys.modules
    stand_ins.take_back(ModuleType(outer))
    assert not is_lent()


def test_other_modules_are_lent_nothing(lacking):
    StandIns().lend("megatron.core.ssm.ops.mamba2.ssd_combined")
    assert not is_lent()


def test_what_is_there_stays(monkeypatch):
    triton, mark = ModuleType("triton"), lambda method: method
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setattr(typing, "override", mark, raising=False)
    stand_ins = StandIns()
    for name in FILES:
        stand_ins.lend(name)
        stand_ins.take_back(ModuleType(name))
    assert sys.modules["triton"] is triton and typing.override is mark


@pytest.mark.parametrize("rehearsing", [True, False])
def test_only_a_rehearsal_lends(rehearsing, lacking, tmp_path, monkeypatch):
    folder = tmp_path / "megatron" / "training" / "models"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(MODELS_FILE)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "megatron"]:
        monkeypatch.delitem(sys.modules, name)
    installation = Installation([], {"FLAGSCALE_PERF_REHEARSE_ON_CPU": "never"}).install()
    installation.rehearsing = rehearsing
    try:
        if rehearsing:
            assert importlib.import_module(MODELS).Model().build() == "built"
        else:
            with pytest.raises(ImportError, match="override"):
                importlib.import_module(MODELS)
    finally:
        installation.undo()
        for name in ("megatron", "megatron.training", MODELS):
            sys.modules.pop(name, None)
    assert not is_lent()
