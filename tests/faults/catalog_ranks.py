"""Faults of the other ranks and of the path on which they are heard."""

from __future__ import annotations

import sys

from tests.faults import injections_ranks as do
from tests.faults import surroundings as around
from tests.faults.fault import Fault
from tests.faults.job import LOOP, TWO_RANKS
from tests.faults.ranks import ONE_NODE, TWO_NODES

NODE, NODES = (ONE_NODE,), (TWO_NODES,)
HIDEPID = (sys.executable, "-m", "tests.faults.namespace")
HEARD = do.ranks_are(silent=[], known=[0, 1])
LOST = do.ranks_are(silent=[1], known=[0, 1])
NEVER = do.ranks_are(silent=[1], known=[0])

RANKS = (
    Fault(
        "no fault, a rank beside", "nothing; rank 1 is another process of the node", LOOP, NODE, then=HEARD
    ),
    Fault(
        "rank killed",
        "SIGKILL to rank 1",
        LOOP,
        NODE,
        at=100,
        act=do.kill_rank,
        says="rank 1 (node1, CPU, pid ",
        then=LOST,
        short=True,
    ),
    Fault(
        "rank killed, its child lives",
        "SIGKILL to rank 1, whose forked child holds its memory",
        LOOP,
        NODE,
        prepare=do.trouble("fork"),
        at=100,
        act=do.kill_rank,
        says="rank 1 (node1, CPU, pid ",
        then=LOST,
    ),
    Fault(
        "rank without memory",
        "RLIMIT_NOFILE of rank 1 is 3 when it makes its shared memory",
        LOOP,
        NODE,
        prepare=do.trouble("memory"),
        then=NEVER,
    ),
    Fault(
        "rank of another user",
        "rank 1 gives up its user before it begins",
        LOOP,
        NODE,
        prepare=do.trouble("user"),
        then=NEVER,
    ),
    Fault(
        "hidepid",
        "/proc is mounted with hidepid=2 in a PID namespace of its own, without CAP_SYS_PTRACE",
        LOOP,
        NODE,
        within=HIDEPID,
        around=around.own_namespace,
        then=HEARD,
    ),
    Fault(
        "hidepid, rank hidden",
        "the same, and rank 1 is not dumpable: /proc does not show it",
        LOOP,
        NODE,
        within=HIDEPID,
        around=around.own_namespace,
        prepare=do.trouble("hidden"),
        then=HEARD,
    ),
    Fault(
        "rank killed, FlagScale",
        "SIGKILL to rank 1",
        TWO_RANKS,
        at=3,
        act=do.kill_rank,
        code=1,
        # by the agent, or by what gloo raises, whatever is first
        says="is gone after iteration",
        reason="killed|exception .*",
    ),
    Fault(
        "rank stopped",
        "SIGSTOP to rank 1 for 5 s",
        TWO_RANKS,
        at=10,
        act=do.stop_rank(5.0),
        stops_s=5.0,
        then=HEARD,
    ),
    Fault("no fault, a rank elsewhere", "nothing; rank 1 is on a node of its own", LOOP, NODES, then=HEARD),
    Fault(
        "collector killed",
        "SIGKILL to the process that tells of rank 1's node",
        LOOP,
        NODES,
        at=100,
        act=do.kill_collector,
        then=HEARD,
    ),
    Fault(
        "collector stopped",
        "SIGSTOP to it until the training has ended",
        LOOP,
        NODES,
        at=100,
        act=do.stop_collector,
        then=LOST,
    ),
    Fault(
        "exchange removed",
        "rm -rf of the directory in which nodes tell of their ranks",
        LOOP,
        NODES,
        at=50,
        act=do.remove_exchange,
        then=HEARD,
    ),
    Fault(
        "exchange on a full disk",
        "a full tmpfs of its own where nodes tell of their ranks, until iteration 200",
        LOOP,
        NODES,
        at=50,
        act=do.full_exchange(200),
        then=HEARD,
    ),
    Fault(
        "exchange is a file",
        "a file in its place from the start",
        LOOP,
        NODES,
        prepare=do.exchange_is_a_file,
        says="cannot read other nodes' ranks",
        then=NEVER,
    ),
    Fault(
        "exchange is a file for a while",
        "a file in its place, until iteration 100",
        LOOP,
        NODES,
        prepare=do.exchange_is_a_file,
        at=1,
        act=do.remove_planted(100),
        says="other nodes' ranks are read again",
        then=HEARD,
    ),
    Fault(
        "exchange is a link",
        "a symbolic link to another directory in its place",
        LOOP,
        NODES,
        prepare=do.exchange_is_a_link,
        says="cannot read other nodes' ranks",
        then=do.elsewhere_is_untouched,
    ),
    Fault(
        "foreign files in the exchange",
        "a pipe in the place of a node's file, a hostile beacon",
        LOOP,
        NODES,
        at=50,
        act=do.foreign_files,
        says="node_0.json: no regular file",
        then=HEARD,
    ),
)
