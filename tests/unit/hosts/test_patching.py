"""Undoing a patch gives back exactly what was there before."""

from types import SimpleNamespace

import pytest

from flagscale_perf.hosts.patching import Patches


def test_undo_restores_and_removes_newest_first():
    target = SimpleNamespace(old=1)
    patches = Patches()
    patches.set(target, "old", 2)
    patches.set(target, "old", 3)
    patches.set(target, "new", 4)
    assert vars(target) == {"old": 3, "new": 4}
    patches.undo()
    assert vars(target) == {"old": 1}
    target.old = 9
    patches.undo()
    assert target.old == 9


def test_an_object_gets_its_class_back():
    class Host:
        pass

    class Ours(Host):
        pass

    target, patches = Host(), Patches()
    patches.set_class(target, Ours)
    assert type(target) is Ours
    patches.undo()
    assert type(target) is Host
    with pytest.raises(TypeError):
        patches.set_class(target, int)
    patches.undo()
    assert type(target) is Host


def test_an_inherited_attribute_is_inherited_again():
    class Base:
        value = "base"

    class Child(Base):
        pass

    patches = Patches()
    patches.set(Child, "value", "patched")
    assert Child.value == "patched"
    patches.undo()
    assert "value" not in vars(Child)
    assert Child.value == "base"
