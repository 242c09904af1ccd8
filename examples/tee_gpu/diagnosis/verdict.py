"""A report on where the time of calls goes, and what another transport would change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from diagnosis.calibration import MIB, Calibration, PathCost
from diagnosis.listeners import EndpointState, Listener
from diagnosis.observed import Load, Observed
from flagscale_perf.analysis.blocks import Block, Cell, Note, Pairs, Quantity, Report, Section, Table
from flagscale_perf.spine.clock import NS_PER_S

MATTERS = 0.1  # a path that saves a smaller share of the whole is not worth changing to
UNEXPLAINED = 0.25  # of what carrying took; beyond it the measurements predict nothing
# What programs took by a path, of what measuring it right after told: benchmarks/bench_rpc_predictions.py.
LEAST_TAKEN, MOST_TAKEN = 0.5, 1.75
_MOSTLY = 0.5
_NOTHING = 0.02
_US = 1000


@dataclass(frozen=True)
class Places:
    """Which endpoint the client would use, and who listens where.

    Attributes:
        state: of the client's endpoint.
        told_by: how the client knows it: "--endpoint", "LLAMA_IPC_PATH", "default".
        servers: ZeroMQ programs of this user, and where they listen.
        environment: the variables that decide, "" for one that is not set.
        logged: transport that the head of the log names; None without a log.
    """

    state: EndpointState
    told_by: str
    servers: Sequence[tuple[str, Listener]] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    logged: str | None = None


class Interval(NamedTuple):
    """Seconds, at least and at most."""

    least: float
    most: float


@dataclass(frozen=True)
class Diagnosis:
    """The whole diagnosis, of what was measured with the observed program's own calls."""

    here: Calibration
    observed: Observed | None = None
    places: Places | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        seen = self.observed
        known = seen if seen is not None and explained(self.here, seen) is not False else None
        return {
            "machine": self.here.machine,
            "predicted_s": {
                path.name: list(predicted(path, known.whole.calls)) for path in self.here.paths if known
            },
            "conclusions": [text for text, _ in self.conclusions()],
        }

    def conclusions(self) -> list[tuple[str, str]]:
        """Sentences with their tone, the verdict first."""
        found = [] if self.observed is None else _conclude(self.here, self.observed)
        return found + ([] if self.places is None else _wrong_places(self.places))

    def report(self) -> Report:
        """What every format shows of the diagnosis."""
        head = [
            Pairs([("machine", self.here.machine), ("measured", f"{self.here.rounds} interleaved rounds")])
        ]
        sections = [Section("verdict", "Verdict", "Verdict", [Note(*each) for each in self.conclusions()])]
        if self.places is not None:
            sections.append(Section("endpoint", "Endpoint", "Endpoint", _places_blocks(self.places)))
        sections.append(
            Section("paths", "Transports", "Transports, as measured here", [_paths_table(self.here)])
        )
        if self.observed is not None:
            blocks = _traffic_blocks(self.here, self.observed)
            sections.append(Section("traffic", "Traffic", "This traffic on each of them", blocks))
        return Report("Transport diagnosis", head, [each for each in sections if each.blocks], self)


def predicted(path: PathCost, calls: int) -> Interval:
    """What carrying so many calls takes on a path, as far as measuring it tells. The measurement copies
    arrays into shared memory, and a program may write them there in the first place.
    """
    least_ns = calls * path.round_trip_ns if path.payload == "shared" else path.calls_ns
    return Interval(LEAST_TAKEN * least_ns / NS_PER_S, MOST_TAKEN * path.calls_ns / NS_PER_S)


def explained(here: Calibration, seen: Observed) -> bool | None:
    """Whether the measurements made here explain what carrying the calls took on the present path; None where
    that is not known. Where they do not, they cannot say what another path would take.
    """
    used, carrying_s = _used(here, seen), seen.carrying_s
    if used is None or carrying_s is None:
        return None
    return abs(used.calls_ns / NS_PER_S - carrying_s) <= UNEXPLAINED * carrying_s


def saving(here: Calibration, seen: Observed, path: PathCost) -> Interval | None:
    """What a path would save of these calls' time; None where the present one is not explained. Up to a
    quarter of what carrying them took need not be the path's, and may stay.
    """
    used = _used(here, seen)
    if used is None or explained(here, seen) is False:
        return None
    now, new = (predicted(each, seen.whole.calls) for each in (used, path))
    if seen.carrying_s is not None:
        now = Interval((1 - UNEXPLAINED) * seen.carrying_s, seen.carrying_s)
    elif seen.rpc_s is not None:
        now = Interval(min(now.least, seen.rpc_s), min(now.most, seen.rpc_s))
    return Interval(now.least - new.most, now.most - new.least)


def _used(here: Calibration, seen: Observed) -> PathCost | None:
    return here.path(seen.payload, seen.transport or "IPC")


# ---- the verdict -------------------------------------------------------------------------------


def _conclude(here: Calibration, seen: Observed) -> list[tuple[str, str]]:
    used = _used(here, seen)
    if used is None:
        text = f"There is no measurement of {seen.payload} over {seen.transport or 'IPC'} to compare with."
        return [(text, "warn")]
    best = min(here.paths, key=lambda path: path.calls_ns)
    return [
        _not_the_transport(used, best, seen, saving(here, seen, best)) or _reason(here, used, best, seen),
        *_latency(here, used, seen),
    ]


def _not_the_transport(
    used: PathCost, best: PathCost, seen: Observed, saved: Interval | None
) -> tuple[str, str] | None:
    carrying_s, whole_s = seen.carrying_s, seen.rpc_s
    most = None if saved is None else max(0.0, saved.most)
    if whole_s is not None and carrying_s is not None and carrying_s < MATTERS * whole_s:
        why = (
            f"all that carrying these calls took are {_s(carrying_s)} of {_s(whole_s)} "
            f"({100 * carrying_s / whole_s:.1f} %)."
        )
    elif most is None:
        return None
    elif best is used:
        why = f"{used.name} is the cheapest way measured here."
    elif whole_s is not None and most < MATTERS * whole_s:
        why = f"{best.name} would save {_s(most)} of {_s(whole_s)} at most ({100 * most / whole_s:.1f} %)."
    else:
        return None
    return f"The transport is not your problem: {why}", "good"


def _reason(here: Calibration, used: PathCost, best: PathCost, seen: Observed) -> tuple[str, str]:
    whole, told_s = seen.whole, used.calls_ns / NS_PER_S
    saved = saving(here, seen, best)
    if saved is None:
        return (
            f"What another path would save is not known: by what was measured here, {used.name} takes "
            f"{_s(told_s)} for these calls, and carrying them took {_s(seen.carrying_s or 0.0)}. See what "
            "else ran on the machine, and how long the processes waited for a CPU.",
            "warn",
        )
    of_whole = "" if seen.rpc_s is None else f" of {_s(seen.rpc_s)}"
    unchecked = "" if seen.carrying_s is not None else ", if they take what was measured here"
    between = f"{_s(max(0.0, saved.least))} to {_s(max(0.0, saved.most))}"
    saves = f"{best.name} would save {between}{of_whole}{unchecked}."
    if whole.calls * used.round_trip_ns > _MOSTLY * used.calls_ns:
        text = (
            f"The number of calls costs it, not their bytes: {whole.calls} calls of at least "
            f"{used.round_trip_ns / _US:.0f} us. {saves}"
        )
    else:
        took = "" if seen.rpc_s is None else f" here ({_s(seen.rpc_s)} were spent in calls)"
        mib = (whole.sent_bytes + whole.received_bytes) / MIB
        text = (
            f"Bytes and copies cost it, not the transport: {mib:,.0f} MiB in {whole.calls} calls take "
            f"{_s(told_s)} by {used.name}{took}, {100 * _codec_share(here, used, whole):.0f} % of it "
            f"serializing and deserializing. {saves}"
        )
    return text, "bad"


def _latency(here: Calibration, used: PathCost, seen: Observed) -> list[tuple[str, str]]:
    """What waking each other up costs, on the path where it costs most; nothing where it is much."""
    calls, worst = seen.whole.calls, max(here.paths, key=lambda path: path.round_trip_ns)
    if calls * worst.round_trip_ns > MATTERS * used.calls_ns:
        return []
    each = f"{calls} calls x {worst.round_trip_ns / _US:.0f} us"
    took = _s(calls * worst.round_trip_ns / NS_PER_S)
    return [(f"Latency is not the reason: even by {worst.name}, {each} are {took}.", "")]


def _codec_share(here: Calibration, path: PathCost, whole: Load) -> float:
    """Of the calls' time, serializing and deserializing on both sides."""
    messages = (whole.sent_bytes + whole.received_bytes) / here.message_bytes
    return min(1.0, messages * (path.serialize_ns + path.deserialize_ns) / path.calls_ns)


_WRONG = {
    "missing": "No process listens at {endpoint}: start the server.",
    "closed": "No process listens at {endpoint}: start the server.",
    "stale": "{path} is left over from a server that ended: a server that is started removes it.",
    "not a socket": "{path} is not a socket: choose another path; your file is not removed.",
}


def _wrong_places(places: Places) -> list[tuple[str, str]]:
    state = places.state
    scheme, _, path = state.endpoint.partition("://")
    found = [_WRONG[state.kind].format(endpoint=state.endpoint, path=path)] if state.kind in _WRONG else []
    if len(state.listeners) > 1:
        all_of_them = " and ".join(map(str, state.listeners))
        found.append(
            f"More than one process is bound to {state.endpoint}: {all_of_them}. Stop the older one."
        )
    others = [f"{server} listens at {at}" for at, server in places.servers if at != state.endpoint]
    if state.kind != "live" and others:
        elsewhere = ", ".join(others)
        found.append(f"The client would ask {state.endpoint}, but {elsewhere}: give both the same.")
    for name, theirs in (pair for each in state.listeners for pair in each.environment):
        mine = places.environment.get(name, theirs)
        if mine != theirs:
            found.append(f"The server runs with {name}={theirs}, this shell has {mine or 'none'}.")
    if places.logged not in (None, scheme.upper()):
        found.append(f"The log says {places.logged}, the endpoint here is {scheme.upper()}.")
    return [(text, "bad") for text in found]


# ---- tables ------------------------------------------------------------------------------------


def _places_blocks(places: Places) -> list[Block]:
    state = places.state
    file = None if state.mode is None else f"mode {state.mode}, owner {state.owner}"
    elsewhere = [(at, who) for at, who in places.servers if at != state.endpoint]
    variables = [pair for each in state.listeners for pair in each.environment]
    rows: list[tuple[str, Cell]] = [
        ("client's endpoint", f"{state.endpoint} ({places.told_by})"),
        ("state", state.kind),
        ("file", file),
        *(("listens", str(listener)) for listener in state.listeners),
        *(("its environment", f"{name}={value}") for name, value in variables),
        *(("listens elsewhere", f"{at}: {who}") for at, who in elsewhere),
        *((name, value or "not set") for name, value in places.environment.items()),
        ("log was made over", places.logged),
    ]
    return [Pairs(rows)]


def _paths_table(here: Calibration) -> Table:
    rows: list[Sequence[Cell]] = [
        (
            path.name,
            Quantity(path.round_trip_ns / _US, "us", 1),
            *(
                _speed(here.message_bytes, took_ns, path.there_ns)
                for took_ns in (path.there_ns, path.back_ns, path.serialize_ns, path.deserialize_ns)
            ),
        )
        for path in here.paths
    ]
    return Table(("path", "round trip", "there", "back", "serialize", "deserialize"), rows, figures=5)


def _speed(size: int, took_ns: float, whole_ns: float) -> Cell:
    """None for a stage that hardly depends on the bytes."""
    return None if took_ns <= _NOTHING * whole_ns else Quantity(size / took_ns, "GB/s", 2)


def _traffic_blocks(here: Calibration, seen: Observed) -> list[Block]:
    whole = seen.whole
    facts: list[tuple[str, Cell]] = [
        ("from", seen.source),
        ("calls", Quantity(whole.calls)),
        ("sent", Quantity(whole.sent_bytes / MIB, "MiB", 1)),
        ("received", Quantity(whole.received_bytes / MIB, "MiB", 1)),
        ("largest arrays", ", ".join(seen.dtypes) or None),
        ("server computes in", seen.server_dtype),
        ("in calls", None if seen.rpc_s is None else Quantity(seen.rpc_s, "s", 2)),
        ("of it at the server", None if seen.server_s is None else Quantity(seen.server_s, "s", 2)),
    ]
    if explained(here, seen) is False:
        return [Pairs(facts)]
    head = ("path", "at least", "at most", "without a byte", "serializing and deserializing")
    rows: list[Sequence[Cell]] = [
        (
            path.name,
            *(Quantity(1e3 * seconds, "ms", 0) for seconds in predicted(path, whole.calls)),
            Quantity(whole.calls * path.round_trip_ns / path.calls_ns, "share", 0),
            Quantity(_codec_share(here, path, whole), "share", 0),
        )
        for path in here.paths
    ]
    return [Pairs(facts), Table(head, rows, figures=4)]


def _s(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
