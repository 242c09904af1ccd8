from types import SimpleNamespace

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
