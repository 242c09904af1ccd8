"""Attributes each event to a module and a part of the step."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from flagscale_perf.profile.events import NOTHING, Bools, Events, Ints, Nesting
from flagscale_perf.profile.operations import named
from flagscale_perf.profile.ranges import MODULE, STEP

NODE = "autograd::engine::evaluate_function: "  # begins the event of a node of the backward pass
_ACCUMULATE = "AccumulateGrad"
_OPTIMIZER = "Optimizer."  # begins the range that torch has around each optimizer's step
_THREAD = 44  # bits of a sequence number, below those of its thread
_BACKWARD, _USER = 1, 7  # of torch's RecordScope
# The ranges of `__torch_dispatch__`, of a mode such as FlopCounterMode or of a tensor's class: Python between
# an operator and itself, which is called a second time from there.
DISPATCHES = frozenset({"PythonDispatchMode", "PythonSubclass"})


class Part(IntEnum):
    """A part of the step."""

    OTHER = 0
    FORWARD = 1
    BACKWARD = 2
    RECOMPUTE = 3
    OPTIMIZER = 4

    @property
    def label(self) -> str:
        """The name used in records."""
        return self.name.lower()


class Attribution:
    """The module and part of the step of each event.

    Attributes:
        nesting: how the events nest.
        paths: of modules; 0 is "", outside of any.
        module: index into `paths`.
        part: a `Part`.
        is_module, is_step, is_node, is_backward, is_user: what sort of event it is: the range of a module or
            of the step, a node of the backward pass, what such a node runs, a range of the program's own
            (`DISPATCHES` among them).
        call: the innermost collective's call around it, or itself if it is one; -1: none.
        unmatched: nodes with a sequence number that no forward operator has.
    """

    def __init__(self, events: Events) -> None:
        """Attributes by nesting. A node of the backward pass gets the module of the last forward operator
        with its sequence number: earlier ones only saw the number that was to come next.
        """
        self.nesting = nesting = Nesting.of(events)
        self.paths, by_name = _paths(events.names)
        is_module = events.marked(by_name > 0) & ~events.is_async
        is_node = events.marked([name.startswith(NODE) for name in events.names])
        is_dispatch = events.marked([name in DISPATCHES for name in events.names])
        is_collective = events.marked([named(name) is not None for name in events.names])
        own = np.where(is_module, by_name[events.name], NOTHING)
        nodes = np.flatnonzero(is_node)
        makers = _makers(events, nodes)
        self.module = _modules(events, nesting, own, nodes, makers)
        self.part = _parts(events, nesting, is_module, is_node, makers)
        self.is_module, self.is_node = is_module, is_node
        self.is_step: Bools = events.marked([name == STEP for name in events.names])
        self.is_backward: Bools = events.scope == _BACKWARD
        self.is_user: Bools = (events.scope == _USER) & ~events.is_async | is_dispatch
        self.call = nesting.inherited(np.where(is_collective, np.arange(len(events)), NOTHING))
        self.unmatched = int(((makers < 0) & (events.sequence[nodes] >= 0)).sum())

    def label(self, index: int) -> str:
        """Name of the part that an event belongs to."""
        return Part(int(self.part[index])).label


def _paths(names: Sequence[str]) -> tuple[list[str], Ints]:
    """All module paths, "" first, and for each name the index of its path; 0 if it is not a module."""
    paths = [""]
    by_name = np.zeros(len(names), np.int64)
    for index, name in enumerate(names):
        if name.startswith(MODULE):
            by_name[index] = len(paths)
            paths.append(name.removeprefix(MODULE))
    return paths, by_name


def _modules(events: Events, nesting: Nesting, own: Ints, nodes: Ints, makers: Ints) -> Ints:
    """The module of each event, and of each node's forward operator. A node that recomputes has nodes within
    it, whose modules follow from its own.
    """
    module = np.maximum(nesting.inherited(own), 0)
    while True:
        matched = np.where(makers < 0, NOTHING, module[makers])  # outside of any module is 0
        own[nodes] = _accumulated(events, nodes, matched)
        before, module = module, np.maximum(nesting.inherited(own), 0)
        if (module == before).all():
            return module


def _makers(events: Events, nodes: Ints) -> Ints:
    """The index of each node's forward operator; -1 if there is none. An operator that makes several nodes,
    such as an in-place one on a view, has the number of the first.
    """
    made = np.flatnonzero((events.sequence >= 0) & (events.forward_thread == 0) & ~events.is_async)
    keys = _key(events.thread[made], events.sequence[made])
    order = np.argsort(keys, kind="stable")
    keys, made = keys[order], made[order]
    wanted = _key(events.forward_thread[nodes], events.sequence[nodes])
    place = np.searchsorted(keys, wanted, side="right") - 1
    found = np.full(len(nodes), NOTHING, np.int64)
    if len(keys):
        same = keys[place] >> _THREAD == events.forward_thread[nodes]
        fits = (place >= 0) & same & (events.sequence[nodes] >= 0)
        found[fits] = made[place[fits]]
    return found


def _key(thread: Ints, sequence: Ints) -> Ints:
    key: Ints = (thread << _THREAD) + sequence
    return key


def _accumulated(events: Events, nodes: Ints, matched: Ints) -> Ints:
    """Nodes that add to a gradient have no number: each belongs to the node run just before on its thread."""
    module = matched.copy()
    is_sum = events.marked([name.startswith(NODE) and name.endswith(_ACCUMULATE) for name in events.names])
    for thread in np.unique(events.thread[nodes]):
        here = np.flatnonzero(events.thread[nodes] == thread)
        own = np.where(is_sum[nodes[here]], NOTHING, np.arange(len(here)))
        before = np.maximum.accumulate(own) if len(own) else own
        fits = (own < 0) & (before >= 0)
        module[here[fits]] = matched[here[before[fits]]]
    return np.maximum(module, 0)


def _parts(events: Events, nesting: Nesting, is_module: Bools, is_node: Bools, makers: Ints) -> Ints:
    """The innermost range decides. A module, or an operator with a sequence number, that runs within a node
    is recomputation.
    """
    in_node = nesting.within(is_node)
    own = np.where(is_node, int(Part.BACKWARD), NOTHING)
    own[in_node & _is_numbered(events, makers) & ~is_node] = Part.RECOMPUTE
    own[is_module] = np.where(in_node[is_module], int(Part.RECOMPUTE), int(Part.FORWARD))
    optimizers = events.marked([name.startswith(_OPTIMIZER) for name in events.names])
    own[optimizers & ~events.is_async] = Part.OPTIMIZER
    found: Ints = np.maximum(nesting.inherited(own), 0)
    return found


def _is_numbered(events: Events, makers: Ints) -> Bools:
    """Whether an operator has a sequence number, that is, whether autograd is on, which it is not in a
    backward pass. A function written in Python always has the next number, but a node only if autograd is on.
    """
    found: Bools = (events.sequence >= 0) & (events.forward_thread == 0)
    is_python = events.marked(["::" not in name for name in events.names])
    has_node = np.zeros(len(found), bool)
    has_node[makers[makers >= 0]] = True
    return found & (has_node | ~is_python)
