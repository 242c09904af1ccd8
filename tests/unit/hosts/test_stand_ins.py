"""What is lent to modules of the host while they are imported: only where it is missing, and only to those
that could not be imported without it.
"""

import importlib
import sys
import typing
from types import ModuleType

import pytest

from flagscale_perf.hosts.install import Installation
from flagscale_perf.hosts.patching import Patches
from flagscale_perf.hosts.stand_ins import StandIns

KERNELS = """
import triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.autotune(configs=[triton.Config({"BLOCK": 8}, num_warps=4)], key=["size"])
@triton.heuristics({"EVEN": lambda args: True})
@triton.jit
def copy_kernel(source, stride: tl.int64, BLOCK: tl.constexpr):
    return tl.load(source)

@triton.jit(do_not_specialize=["stride"])
def other_kernel(source): pass

MAX = tl.constexpr(triton.next_power_of_2(5))
"""
FILES = {
    "a_kernel": KERNELS,
    "importer": "from megatron.core import a_kernel, looks",
    "in_a_function": "def load():\n    import triton\n    return triton\nload()",
    "looks": "from importlib import util\nfrom megatron.core import tries\nfound = util.find_spec('triton')",
    "tries": "try:\n    import triton\nexcept ImportError:\n    triton = None",
    "tries_all": "try:\n    from megatron.core import a_kernel\nexcept Exception:\n    a_kernel = None",
    "suppresses": "import contextlib\nwith contextlib.suppress(ImportError):\n    import triton",
    "later": "def launch():\n    import triton",
    "lends_on": "import triton\nfrom megatron.core import a_kernel, tries",
    "typed": "from typing import override\nclass Model:\n    @override\n    def build(self): return 'built'",
}


@pytest.fixture
def core(tmp_path, monkeypatch):
    """Imports a module of a Megatron-Core that has these files."""
    monkeypatch.delattr(typing, "override", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("megatron", "triton")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [WithoutTriton(finder) for finder in sys.meta_path])
    folder = tmp_path / "megatron" / "core"
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / f"{name}.py").write_text(text)
    (tmp_path / "outside.py").write_text("import triton")
    monkeypatch.syspath_prepend(str(tmp_path))
    patches = Patches()
    StandIns().install(patches)
    yield lambda name: importlib.import_module(f"megatron.core.{name}")
    patches.undo()
    assert not has_triton() and not hasattr(typing, "override")
    for name in [name for name in sys.modules if name.partition(".")[0] in ("megatron", "outside")]:
        del sys.modules[name]


class WithoutTriton:
    """A finder of this environment, which may have it."""

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] == "triton" else self.finder.find_spec(name, path, target)


def has_triton():
    return any(name.partition(".")[0] == "triton" for name in sys.modules)


def test_any_module_that_asks_unconditionally_can_be_imported_and_no_kernel_be_launched(core):
    module = core("a_kernel")
    assert not has_triton()
    for kernel in (module.copy_kernel, module.other_kernel):
        with pytest.raises(RuntimeError, match="_kernel is a Triton kernel: it needs a GPU and triton"):
            kernel[1, 1](None)
    assert core("in_a_function").load is not None


def test_importers_and_modules_that_look_see_that_it_is_not_installed(core):
    module = core("importer")
    assert module.a_kernel.copy_kernel is not None
    assert module.looks.found is None and module.looks.tries.triton is None


def test_an_importer_that_catches_the_error_gets_it(core):
    assert core("tries_all").a_kernel is None
    assert not hasattr(core("suppresses"), "triton")
    assert core("lends_on").tries.triton is None


@pytest.mark.parametrize("name", ["later", "outside"])
def test_nothing_is_lent_after_the_import_or_to_other_packages(core, name):
    with pytest.raises(ModuleNotFoundError, match="triton"):
        core(name).launch() if name == "later" else importlib.import_module(name)


def test_a_mark_for_type_checkers_changes_nothing(core):
    assert core("typed").Model().build() == "built"


def test_what_is_there_stays(monkeypatch):
    triton, mark, patches = ModuleType("triton"), lambda method: method, Patches()
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setattr(typing, "override", mark, raising=False)
    before = list(sys.meta_path)
    StandIns().install(patches)
    assert (sys.modules["triton"], typing.override, sys.meta_path) == (triton, mark, before)


@pytest.mark.parametrize("mode", ["always", "never"])
def test_only_a_rehearsal_lends(mode, tmp_path, monkeypatch):
    monkeypatch.delattr(typing, "override", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "megatron"]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "megatron").mkdir()
    (tmp_path / "megatron" / "typed.py").write_text(FILES["typed"])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("flagscale_perf.hosts.rehearsal.install", lambda patches: None)
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    installation = Installation([], {"FLAGSCALE_PERF_REHEARSE_ON_CPU": mode}).install()
    try:
        if mode == "always":
            assert importlib.import_module("megatron.typed").Model().build() == "built"
        else:
            with pytest.raises(ImportError, match="override"):
                importlib.import_module("megatron.typed")
    finally:
        installation.undo()
        for name in ("megatron", "megatron.typed"):
            sys.modules.pop(name, None)
    assert not hasattr(typing, "override")
