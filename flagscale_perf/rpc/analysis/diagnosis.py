"""A report on where the time of calls goes, and what another transport would change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flagscale_perf.analysis.blocks import Block, Cell, Note, Pairs, Quantity, Report, Section, Table
from flagscale_perf.rpc.analysis.expected import Expected
from flagscale_perf.rpc.analysis.observed import Observed
from flagscale_perf.rpc.costs.claims import MIB, Reported, Verdict, judge_all
from flagscale_perf.rpc.costs.listeners import EndpointState, Listener
from flagscale_perf.rpc.costs.model import Calibration, Curve, PathCost, Prediction, Traffic
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S

MATTERS = 0.1  # a path that saves a smaller share of the whole is not worth changing to
UNEXPLAINED = 0.25  # of what carrying took; beyond it the measurements predict nothing
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


@dataclass(frozen=True)
class Diagnosis:
    """The whole diagnosis, for programs."""

    here: Calibration
    observed: Observed | None = None
    places: Places | None = None
    verdicts: Sequence[Verdict] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        seen = self.observed
        known = seen is not None and _explained(self.here, seen) is not False
        predicted = predictions(self.here, seen.traffic) if seen is not None and known else {}
        return {
            "machine": self.here.machine,
            "predicted_s": {name: each.total_ns / NS_PER_S for name, each in predicted.items()},
            "conclusions": [text for text, _ in self.conclusions()],
            "cannot_be": [verdict.says for verdict in self.verdicts if verdict.can_be is False],
        }

    def conclusions(self) -> list[tuple[str, str]]:
        """Sentences with their tone, the verdict first."""
        found = [] if self.observed is None else _conclude(self.here, self.observed)
        return found + ([] if self.places is None else _wrong_places(self.places))

    def report(self) -> Report:
        """The diagnosis as blocks."""
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
        if self.verdicts:
            sections.append(
                Section("figures", "Figures", "Figures, held against arithmetic", _claims(self.verdicts))
            )
        return Report("Transport diagnosis", head, [each for each in sections if each.blocks], self)


def diagnose(
    here: Calibration, observed: Observed | None, places: Places | None, reported: Reported | None = None
) -> Diagnosis:
    """The diagnosis that `diagnose_transport.py` prints."""
    return Diagnosis(here, observed, places, judge_all(reported.claim, here) if reported else ())


def predictions(here: Calibration, traffic: Traffic) -> dict[str, Prediction]:
    """The prediction for every path, by its name."""
    return {path.name: path.predict(traffic) for path in here.paths}


# ---- the verdict -------------------------------------------------------------------------------


def _conclude(here: Calibration, seen: Observed) -> list[tuple[str, str]]:
    used = here.path(seen.payload, seen.transport or "IPC", seen.control)
    if used is None or not seen.traffic.loads:
        return [
            (
                f"There is no measurement of {seen.payload} over {seen.transport or 'IPC'} to compare with.",
                "warn",
            )
        ]
    best = min(here.paths, key=lambda path: path.predict(seen.traffic).total_ns)
    explained = _explained(here, seen)
    return [
        _headline(used, best, seen, explained),
        *(_transport_alone(here, seen) if explained is not False else ()),
        *_codec(used, seen),
        *([_cheapest(here, best, used, seen)] if explained is not False else ()),
        *_volume(seen),
    ]


def _explained(here: Calibration, seen: Observed) -> bool | None:
    """Whether the measurements made here explain what carrying the calls took on the present path; None where
    that is not known. Where they do not, they cannot say what another path would take.
    """
    used, carrying_s = here.path(seen.payload, seen.transport or "IPC", seen.control), seen.carrying_s
    if used is None or carrying_s is None:
        return None
    told_s = used.predict(seen.traffic).total_ns / NS_PER_S
    return abs(told_s - carrying_s) <= UNEXPLAINED * carrying_s


def _volume(seen: Observed) -> list[tuple[str, str]]:
    """What the model's calls must move, and whether they move more."""
    form = seen.expected
    if form is None:
        return []
    must = sum(form.in_dtype or form.by_model)
    moved = f"The model's calls moved {sum(form.found) / MIB:,.1f} MiB"
    if form.is_wide:
        text = (
            f"{moved}, {form.item_bytes} bytes a value; in {form.dtype}, which the server computes in, they "
            f"have {must / MIB:,.1f} MiB: set LLAMA_DTYPE={form.dtype} on both sides."
        )
        return [(text, "bad")]
    if sum(form.found) != must:
        return [(f"{moved}; by closed form they have {must / MIB:,.1f} MiB.", "warn")]
    return [(f"{moved}, what they have by closed form in {form.dtype or 'their type'}, to the byte.", "good")]


def _headline(used: PathCost, best: PathCost, seen: Observed, explained: bool | None) -> tuple[str, str]:
    spent, carrying_s, whole_s = used.predict(seen.traffic), seen.carrying_s, seen.total_s or seen.rpc_s
    if carrying_s is not None and whole_s is not None and carrying_s < MATTERS * whole_s:
        share = 100 * carrying_s / whole_s
        return (
            f"The transport is not your problem: all that carrying these calls took are {_s(carrying_s)} of "
            f"{_s(whole_s)} ({share:.1f} %).",
            "good",
        )
    if explained is False:
        return (
            f"What another path would save is not known: by what was measured here, {used.name} takes "
            f"{_s(spent.total_ns / NS_PER_S)} for these calls, and carrying them took "
            f"{_s(carrying_s or 0.0)}. See what else ran on the machine, and how long the processes waited "
            "for a CPU.",
            "warn",
        )
    if best is used:
        return f"The transport is not your problem: {used.name} is the cheapest way measured here.", "good"
    return _saving(used, best, seen)


def _saving(used: PathCost, best: PathCost, seen: Observed) -> tuple[str, str]:
    """What carries the calls costs, and what another path would save, as an interval: each of both times is
    known to a quarter at best.
    """
    spent, gained_s = used.predict(seen.traffic), best.predict(seen.traffic).total_ns / NS_PER_S
    carrying_s, whole_s = seen.carrying_s, seen.total_s or seen.rpc_s
    told_s = spent.total_ns / NS_PER_S
    now_s = sorted((told_s, carrying_s)) if carrying_s is not None else [told_s, told_s]
    least_s = max(0.0, now_s[0] - (1 + UNEXPLAINED) * gained_s)
    most_s = now_s[-1] - (1 - UNEXPLAINED) * gained_s
    if whole_s is not None and most_s < MATTERS * whole_s:
        return (
            f"The transport is not your problem: {best.name} would save {_s(most_s)} of {_s(whole_s)} at "
            f"most ({100 * most_s / whole_s:.1f} %).",
            "good",
        )
    of_whole = "" if whole_s is None else f" of {_s(whole_s)}"
    unchecked = "" if carrying_s is not None else ", if they take what was measured here"
    saves = f"{best.name} would save {_s(least_s)} to {_s(most_s)}{of_whole}{unchecked}."
    if spent.fixed_ns > _MOSTLY * spent.total_ns:
        each_us = used.round_trip_ns / _US
        return (
            f"The number of calls costs it, not their bytes: {seen.traffic.calls} calls of at least "
            f"{each_us:.0f} us. {saves}",
            "bad",
        )
    took = "" if seen.rpc_s is None else f" here ({_s(seen.rpc_s)} were spent in calls)"
    return (
        f"Bytes and copies cost it, not the transport: {_mib(seen.traffic)} take {_s(told_s)} by {used.name}"
        f"{took}, {_share(spent.serialize_ns + spent.deserialize_ns, spent)} of it serializing and "
        f"deserializing. {saves}",
        "bad",
    )


def _transport_alone(here: Calibration, seen: Observed) -> list[tuple[str, str]]:
    """What TCP would cost over IPC, and what latency costs."""
    ipc, tcp = here.path(seen.payload, "IPC"), here.path(seen.payload, "TCP")
    if ipc is None or tcp is None:
        return []
    over_ipc, over_tcp = ipc.predict(seen.traffic), tcp.predict(seen.traffic)
    more_s = (over_tcp.total_ns - over_ipc.total_ns) / NS_PER_S
    cost = f"{_s(more_s)} more" if more_s > 0 else "no more"
    calls, latency_us = seen.traffic.calls, tcp.round_trip_ns / _US
    return [
        (
            f"TCP instead of IPC would cost {cost} for this traffic ({_s(over_tcp.total_ns / NS_PER_S)} and "
            f"{_s(over_ipc.total_ns / NS_PER_S)}). Latency cannot be the reason: {calls} calls x "
            f"{latency_us:.0f} us are {_s(calls * latency_us / 1e6)}, even over TCP.",
            "",
        )
    ]


def _codec(used: PathCost, seen: Observed) -> list[tuple[str, str]]:
    """Serialization time on the caller's side, compared with what it takes here."""
    if seen.serialize_s is None or seen.deserialize_s is None:
        return []
    there, back = used.codec_ns(seen.traffic)
    return [
        (
            f"Serializing took {_s(seen.serialize_s)} and deserializing {_s(seen.deserialize_s)} on the "
            f"caller's side; {used.name} takes {_s(there / NS_PER_S)} and {_s(back / NS_PER_S)} here. The "
            "server does the same once more, the other way round.",
            "",
        )
    ]


def _cheapest(here: Calibration, best: PathCost, used: PathCost, seen: Observed) -> tuple[str, str]:
    before, after = used.predict(seen.traffic).total_ns, best.predict(seen.traffic).total_ns
    floor = here.memory.floor_ns(seen.traffic)
    text = (
        f"By {best.name} these calls would take {_s(after / NS_PER_S)}: {before / after:.1f} times less, "
        f"{after / floor:.2f} times what one copy of the bytes costs ({_s(floor / NS_PER_S)})."
    )
    if seen.may_be_halved:
        half = best.predict(seen.traffic.scaled(0.5)).total_ns
        text += f" With half the bytes (bfloat16 for float32) {_s(half / NS_PER_S)}."
    return text, ""


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
            *(_rate(path, curve) for curve in (path.there, path.back, path.serialize, path.deserialize)),
        )
        for path in here.paths
    ]
    memory = here.memory
    rows += [
        ("one copy of memory", None, *[_gb_per_s(memory.warm)] * 2, None, None),
        ("one copy into new memory", None, *[_gb_per_s(memory.fresh)] * 2, None, None),
    ]
    return Table(("path", "round trip", "there", "back", "serialize", "deserialize"), rows, figures=5)


def _traffic_blocks(here: Calibration, seen: Observed) -> list[Block]:
    traffic = seen.traffic
    facts: list[tuple[str, Cell]] = [
        ("from", seen.source),
        ("calls", Quantity(traffic.calls)),
        ("sent", Quantity(traffic.sent_bytes / MIB, "MiB", 1)),
        ("received", Quantity(traffic.received_bytes / MIB, "MiB", 1)),
        ("largest arrays", ", ".join(seen.dtypes) or None),
        ("server computes in", seen.server_dtype),
        *_expected_rows(seen.expected),
        ("in calls", None if seen.rpc_s is None else Quantity(seen.rpc_s, "s", 2)),
        ("of it at the server", None if seen.server_s is None else Quantity(seen.server_s, "s", 2)),
    ]
    floor = here.memory.floor_ns(traffic)
    if _explained(here, seen) is False:
        return [Pairs(facts)]
    rows = [_prediction_row(path.name, path.predict(traffic), floor) for path in here.paths]
    rows.append(("one copy of memory", _ms(floor), None, None, None, None, Quantity(1.0, "", 2)))
    head = ("path", "predicted", "fixed", "serialize", "transfer", "deserialize", "x copy")
    return [Pairs(facts), Table(head, rows, figures=6)]


def _expected_rows(form: Expected | None) -> list[tuple[str, Cell]]:
    if form is None:
        return []
    sides = f"{form.by_model.sent / MIB:,.2f} MiB sent, {form.by_model.received / MIB:,.2f} MiB received"
    repeated = "; K and V once per query head" if form.repeats_kv else ""
    return [("by closed form", f"{sides} in {form.passes} passes, {form.item_bytes} bytes a value{repeated}")]


def _prediction_row(name: str, each: Prediction, floor: float) -> Sequence[Cell]:
    times = (each.total_ns, each.fixed_ns, each.serialize_ns, each.transfer_ns, each.deserialize_ns)
    return (name, *map(_ms, times), Quantity(each.total_ns / floor, "", 2) if floor else None)


def _claims(verdicts: Sequence[Verdict]) -> list[Block]:
    wrong = [each for each in verdicts if each.can_be is False]
    other = [each for each in verdicts if each.can_be is not False and each.because]
    tables: list[Block] = []
    for title, group in (("cannot be", wrong), ("to be known", other)):
        if group:
            notes = [each.because for each in group]
            head = (f"{title}: {len(group)}",)
            tables.append(
                Table(head, [(f"{n}. {each.says}",) for n, each in enumerate(group, 1)], notes=notes)
            )
    return tables


def _rate(path: PathCost, curve: Curve) -> Cell:
    """None for a stage whose cost hardly depends on the bytes: it has no speed."""
    size, whole_ns = path.there.points[-1]
    return None if curve.at(size) - curve.fixed_ns < _NOTHING * whole_ns else _gb_per_s(curve)


def _gb_per_s(curve: Curve) -> Cell:
    speed = curve.bytes_per_s
    return None if speed is None else Quantity(speed / 1e9, "GB/s", 2)


def _ms(time_ns: float) -> Quantity:
    return Quantity(time_ns / NS_PER_MS, "ms")


def _s(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _mib(traffic: Traffic) -> str:
    return f"{(traffic.sent_bytes + traffic.received_bytes) / MIB:,.0f} MiB in {traffic.calls} calls"


def _share(part_ns: float, whole: Prediction) -> str:
    return f"{100 * part_ns / whole.total_ns:.0f} %"
