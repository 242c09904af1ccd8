"""Parallel efficiency and where the loss goes, as a report, a picture and a JSON file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from flagscale_perf.analysis.blocks import (
    Block,
    Cell,
    Lane,
    Note,
    Quantity,
    Section,
    Stripe,
    Table,
    Waterfall,
)
from flagscale_perf.analysis.verdicts import Verdict, verdict_of
from flagscale_perf.bench.analysis.efficiency import Gain, Lost, gains_of, lost_of
from flagscale_perf.bench.analysis.served import (
    MS,
    groups_of,
    memory_of,
    remarks_of,
    same_of,
    same_words,
)  # fmt: skip
from flagscale_perf.bench.analysis.shown import Remark, Shown
from flagscale_perf.bench.analysis.source import Part
from flagscale_perf.bench.losses import (
    BETWEEN,
    HOST,
    OTHER,
    PRODUCTS,
    PROFILING,
    REST,
    TRANSFER,
    UNSPLIT,
    WAIT,
    Loss,
    Step,
)  # fmt: skip
from flagscale_perf.bench.names import DECODE, DURATION, FLOW, JOB, TOKENS, TPOT, TTFT

COLOURS = {
    WAIT: "red", TRANSFER: "orange", UNSPLIT: "yellow", PRODUCTS: "blue", OTHER: "sky", HOST: "grey",
    REST: "faint", PROFILING: "faint", BETWEEN: "green",
}  # fmt: skip
LIMITS = {"TP": (0.75, 0.5), "PP": (0.6, 0.4)}
SMALL = 0.001  # of a loss: what does not make a sign
MAX_NOISE = 0.5  # of what is compared: repetitions that differ by more decide nothing
CHANGES = {
    WAIT: "one rank comes late: its profile says in which row, the network is not the cause",
    TRANSFER: "faster links, larger batches, or fewer devices",
    UNSPLIT: "profile all ranks of the group: wait and transfer are then told apart",
    PRODUCTS: "products of matrices are too small to be split: larger batches, or fewer devices",
    OTHER: "operators that every device repeats, or that are too small to be split: fuse them",
    HOST: "Python between operators is not split: torch.compile, CUDA graphs, larger batches",
    BETWEEN: "scheduler and server between two steps: the same for any number of devices",
}
HEAD = ("arm", "what", "one device", "here", "speed-up", "efficiency", "+-", "at most")


def _sections(part: Part) -> Sequence[Section]:
    rows = [_row(gain, what, scale, unit) for gain, what, scale, unit in _all(part)]
    made = []
    if rows:
        same = same_of(part, (DURATION, TTFT, TPOT))
        notes = [Note(same_words(same))] if same else []
        about = Note(
            "Efficiency is T1 / (p Tp): what one device takes, by p times what p devices take. A batch is a"
            " fixed job; in flow, more requests are in flight than a pipeline has stages. At most:"
            " m / (m + p - 1) with m requests in flight."
        )
        blocks = [*_efficiency(part), Table(HEAD, rows, 6), about, *notes, *_memory(part)]
        made.append(Section("parallelism", "Efficiency", "Parallel efficiency", blocks))
    lost = lost_of(part)
    if lost:
        made.append(
            Section("losses", "Losses", "Where the rest goes", [*_step_bars(lost), *_loss_tables(lost)])
        )
    return made


def _all(part: Part) -> list[tuple[Gain, str, float, str]]:
    """Every gain with its label and unit."""
    made = []
    for figure, job, is_rate, what, scale, unit in (
        (DURATION, JOB, False, "a batch", MS, "ms"), (TTFT, JOB, False, "first token", MS, "ms"),
        (TPOT, JOB, False, "each further token", MS, "ms"), (TOKENS, FLOW, True, "in flow", 1.0, "tokens/s"),
    ):  # fmt: skip
        gains = gains_of(groups_of(part, figure), job, is_rate)
        made += [(gain, f"{what}: {gain.setting.case}", scale, unit) for gain in gains]
    return sorted(made, key=lambda each: each[0].setting.devices)


def _row(gain: Gain, what: str, scale: float, unit: str) -> Sequence[Cell]:
    return (
        gain.setting.arm, what, Quantity(scale * gain.one, unit), Quantity(scale * gain.here, unit),
        Quantity(gain.speedup, "", 2), Quantity(gain.efficiency, "share"), Quantity(gain.noise, "share"),
        Quantity(gain.bound, "share"),
    )  # fmt: skip


def _memory(part: Part) -> list[Block]:
    memory = memory_of(part)
    rows: list[Sequence[Cell]] = [(arm, Quantity(value, "GB", 2)) for arm, value in memory.items()]
    return [Table(("arm", "memory of the server"), rows, 1)] if rows else []


def _loss_tables(found: Mapping[tuple[str, str], Lost]) -> list[Block]:
    made: list[Block] = []
    for (arm, phase), lost in found.items():
        rows = [_loss_row(each.part, [each], lost) for each in lost.parts if each.one or each.several]
        rows.append(_loss_row("together", lost.parts, lost))
        head = ("part", "one device, ms", f"1/{lost.devices} of it", f"{arm}, ms", "lost, ms", "of the loss")
        made.append(Table(head, rows, 5, title=f"{arm}, {phase}: {_words(lost.one, lost.several)}"))
    made.append(Note(
        "Parts are of profiled steps of a mean rank, on the thread that runs the model; on a GPU, waiting for"
        " the device is host. What profiling itself costs is a part: the whole is what the client sees."
    ))  # fmt: skip
    return made


def _loss_row(name: str, parts: Sequence[Loss], lost: Lost) -> Sequence[Cell]:
    one, several = sum(each.one for each in parts), sum(each.several for each in parts)
    lost_s = sum(each.lost for each in parts)
    times = (one, one / lost.devices, several, lost_s)
    signs = {each.lost > 0 for each in lost.parts if abs(each.lost) > SMALL * abs(lost.total)}
    share = (
        lost_s / lost.total if lost.total and len(signs) == 1 else None
    )  # of gains and losses there is none
    return (name, *(Quantity(MS * value, "", 3) for value in times), Quantity(share, "share"))


def _words(one: Step, several: Step) -> str:
    if one.whole is None or several.whole is None:
        return f"a profiled step takes {MS * several.total:.2f} ms, on one device {MS * one.total:.2f} ms"
    return f"the client sees {MS * several.whole:.2f} ms, on one device {MS * one.whole:.2f} ms"


def _drawn(part: Part) -> Sequence[Block]:
    return [*_efficiency(part), *_step_bars(lost_of(part))]


def _efficiency(part: Part) -> list[Block]:
    lanes = [
        Lane(f"{gain.setting.arm}, {what}", 0.0,
             [Stripe("efficiency", 100 * gain.efficiency, None, "blue")])
        for gain, what, _, _ in _all(part)
    ]  # fmt: skip
    most = max([100.0, *(stripe.value or 0.0 for lane in lanes for stripe in lane.parts)])
    return [Waterfall("efficiency", "Parallel efficiency", "%", lanes, 1.05 * most)] if lanes else []


def _step_bars(found: Mapping[tuple[str, str], Lost]) -> list[Block]:
    """One device's share beside what several take, by part; negative parts are not drawn."""
    made: list[Block] = []
    for (arm, phase), lost in found.items():
        lanes = [
            _lane("one device", {each.part: each.one for each in lost.parts}),
            _lane(f"1/{lost.devices} of it", {each.part: each.one / lost.devices for each in lost.parts}),
            _lane(arm, {each.part: each.several for each in lost.parts}),
        ]
        most = max(sum(stripe.value or 0.0 for stripe in lane.parts) for lane in lanes)
        title = f"What {_unit_of(phase)} is made of, {arm}"
        key = f"step-{arm}-{phase}".replace(" ", "").lower()
        made.append(Waterfall(key, title, "ms", lanes, 1.05 * most or 1.0))
    return made


def _lane(title: str, values: Mapping[str, float]) -> Lane:
    stripes = [Stripe(part, MS * value, None, COLOURS[part]) for part, value in values.items() if value > 0]
    return Lane(title, 0.0, stripes)


def _unit_of(phase: str) -> str:
    return "a token" if phase == DECODE else "a prompt"


def _content(part: Part) -> Mapping[str, Any]:
    """Speed-ups and losses; times in seconds."""
    memory = memory_of(part)
    gains = [
        {
            "arm": gain.setting.arm, "tensor_parallel": gain.setting.tp, "pipeline_parallel": gain.setting.pp,
            "batch_size": gain.setting.batch, "sequence_length": gain.setting.seq,
            "output_length": gain.setting.output, "in_flight": gain.setting.in_flight, "what": what,
            "one_device": gain.one, "here": gain.here, "unit": "tokens/s" if unit == "tokens/s" else "s",
            "speedup": gain.speedup, "efficiency": gain.efficiency, "noise_share": gain.noise,
            "efficiency_bound": gain.bound, "memory_gb": memory.get(gain.setting.arm),
        }
        for gain, what, _, unit in _all(part)
    ]  # fmt: skip
    lost = [
        {
            "arm": arm, "phase": phase, "devices": one.devices, "communication_share": one.communication,
            "parts": [each._asdict() for each in one.parts],
        }
        for (arm, phase), one in lost_of(part).items()
    ]  # fmt: skip
    return {"results": gains, "losses": lost}


def _verdicts(part: Part) -> Sequence[Verdict]:
    jobs = gains_of(groups_of(part, DURATION), JOB, is_rate=False)
    flows = gains_of(groups_of(part, TOKENS), FLOW, is_rate=True)
    return [
        _verdict(part, "TP", [gain for gain in jobs if gain.setting.tp > 1], "a fixed batch"),
        _verdict(part, "PP", [gain for gain in flows if gain.setting.pp > 1], "tokens/s, many in flight"),
    ]


def _verdict(part: Part, name: str, gains: Sequence[Gain], what: str) -> Verdict:
    shares = [gain.efficiency for gain in gains]
    if not shares:
        return verdict_of(f"{name} efficiency", None, "share", LIMITS[name], _why(part, name))
    remark = f"{what}; median of {len(shares)}, from {min(shares):.0%} to {max(shares):.0%}"
    bounds = [gain.bound for gain in gains if gain.bound is not None]
    noises = [gain.noise for gain in gains if gain.noise is not None]
    remark += f"; repetitions differ by +- {max(noises):.0%}" if noises else ""
    remark += f"; at most {max(bounds):.0%} by m / (m + p - 1)" if bounds else ""
    is_known = not noises or max(noises) < MAX_NOISE
    value = median(shares) if is_known else None
    why = "" if is_known else f"no verdict: {median(shares):.0%} is within what repetitions differ by; "
    return verdict_of(f"{name} efficiency", value, "share", LIMITS[name], why + remark)


def _why(part: Part, name: str) -> str:
    found = [one.why for one in part.values(DURATION) if str(one.case.get("arm", "")).startswith(name)]
    return found[0] if found else "no such arm was measured"


def _remarks(part: Part) -> Sequence[Remark]:
    said = [_worst(arm, phase, lost) for (arm, phase), lost in lost_of(part).items()]
    return [*(one for one in said if one is not None), *remarks_of(part)]


def _worst(arm: str, phase: str, lost: Lost) -> Remark | None:
    named = [each for each in lost.parts if each.part in CHANGES and each.lost > 0]
    if not named or lost.total <= 0:
        return None
    if lost.noise is not None and lost.total < lost.noise:
        return Remark(
            f"{arm}, {phase}: {MS * lost.total:.2f} ms are lost for {_unit_of(phase)}, repetitions differ by"
            f" +- {MS * lost.noise:.2f} ms: too little to say where; take more --repeats, or a quiet machine",
            "warn",
        )
    worst = max(named, key=lambda each: each.lost)
    return Remark(
        f"{arm}, {phase}: {MS * lost.total:.2f} ms are lost for {_unit_of(phase)}; the most,"
        f" {MS * worst.lost:.2f} ms, to {worst.part}: {CHANGES[worst.part]}", "bad",
    )  # fmt: skip


SHOWN = Shown(
    "parallelism", "parallelism_overhead", "parallelism_analysis", _sections, _drawn, _content, _verdicts,
    _remarks,
)  # fmt: skip
