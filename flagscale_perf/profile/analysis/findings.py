"""Rules for what slows the step, each with the gain that a change would bring by this profile's own rows."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from flagscale_perf.analysis.rules import Change, Finding, find, names_no_cause, rule
from flagscale_perf.profile.analysis.case import GAIN, ProfileCase, ProfileRule, part, takes
from flagscale_perf.profile.analysis.operators import COMMUNICATION
from flagscale_perf.profile.analysis.paired import (
    FEW_STEPS,
    LayerTimes,
    slow_on_ranks,
)
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.analysis.slow_places import (
    layers_of,
    more_python,
    outside_python,
    python_in_module,
    slow_layer,
    slow_on_rank,
)
from flagscale_perf.profile.analysis.sums import PhaseSums
from flagscale_perf.spine.averages import median
from flagscale_perf.spine.chance import SURE_STEPS, median_within
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.spine.limits import Limit

_OBSERVER = "costly_observer"  # its cost is the training's, beside the profiled steps
RECOMPUTE = "recompute"  # the part of a step
_GRAPH, _DISPATCH = "CompiledFxGraph", "PythonDispatchMode"  # in names of torch's events


def _together(findings: Sequence[Finding], whole_s: float) -> list[Finding]:
    """The findings with their shares of all profiled steps and what would be gained. Together they are at
    most the whole: where they would be more, one counts what costlier ones leave of it, and names them.
    """
    left_s, made = whole_s, list[Finding]()
    for one in findings:
        if one.cost_s is not None and whole_s and one.name != _OBSERVER:
            costlier = tuple(dict.fromkeys(each.name for each in made if each.cost_s))
            overlaps = costlier if one.cost_s > left_s else ()
            cost_s = min(one.cost_s, left_s)
            left_s -= cost_s
            if one.least_s is not None:
                least_s = min(one.least_s, cost_s)
                one = replace(one, least_s=least_s, least_gain=least_s / (whole_s - least_s))
            gain = cost_s / (whole_s - cost_s) if cost_s < whole_s else None
            share = cost_s / whole_s
            one = replace(one, cost_s=cost_s, cost_share=share, gain=gain, overlaps=overlaps)
            one = replace(one, cost_of_steps=share, base="the profiled steps")
        made.append(one)
    return made


@rule(
    limits={"wait": Limit(0.02, "share", "ours: of a step, that another rank waits for this one alone")},
    causes=["more work on that rank, or a slower or shared processor", "its input comes later"],
    changes=["look at this rank's rows before the collective: the network is not the cause"],
    explains=["host_bound"],
)
def late_rank(this: ProfileRule, case: ProfileCase) -> list[Finding]:
    """The other ranks wait for one rank in collectives and do nothing else, and not for each in turn. The
    cost is an interval: of the median step, by the steps that were profiled.
    """
    books, found = case.whole, []
    if books is None:
        return []
    for late in case.report.communication.lates:
        least, most = median_within(late.alone_ns), median_within(late.most_ns)
        if least is None or most is None or not this.exceeds(least[0] / books.total, "wait"):
            continue
        words = (
            f"of a step: {least[0] / NS_PER_MS:.3f} to {most[1] / NS_PER_MS:.3f} ms; last in {late.lasts} of"
            f" {late.operations}, at {late.module or 'outside'} ({late.phase})"
        )
        title = f"The other ranks wait for rank {late.rank}"
        evidence = [this.broke(words, least[0] / books.total, "wait")]
        finding, least_s = takes(this, books, title, most[1], evidence), least[0] * books.steps / NS_PER_S
        step_ms = median(late.most_ns) / NS_PER_MS
        found.append(
            replace(finding, least_s=least_s, ranks=[late.rank], phase="communication", step_ms=step_ms)
        )
    return found


@rule(
    limits={"transfer": Limit(0.1, "share", "ours: of a step, without waiting and what compute hides")},
    causes=["links are slow for the bytes that are sent", "many small operations"],
    changes=["overlap it with compute, or send less: fewer tensor-parallel ranks, larger batches"],
)
def transfers(this: ProfileRule, case: ProfileCase) -> Finding | None:
    """Collectives take long even without the waiting."""
    books = case.whole
    if books is None:
        return None
    whole = sum(one.exposed_transfer_ns for one in case.report.communication.waits)
    ranks = {rank for sums in case.report.sums.values() for rank in sums.books}
    each_ns = whole / len(ranks) / books.steps
    share = each_ns / books.total
    if not this.exceeds(share, "transfer"):
        return None
    words = f"of a step: {each_ns / NS_PER_MS:.3f} ms in transfers that nothing hides"
    evidence = [this.broke(words, share, "transfer")]
    return takes(this, books, "Transfers take a large part of a step", each_ns, evidence)


@rule(
    limits={"waits": Limit(0.1, "share", "ours: of a step, beyond what the schedule costs even stages")},
    causes=["a stage has more to do than the others: more layers, the embedding, the output layer"],
    changes=["give the busiest stage fewer layers (--decoder-last-pipeline-num-layers, -first-)"],
)
def uneven_stages(this: ProfileRule, case: ProfileCase) -> Finding | None:
    """Pipeline stages wait for each other longer than their schedule explains."""
    books = case.whole
    known = [one for one in case.report.communication.bubbles if one.waiting_share is not None]
    if books is None or not known:
        return None
    worst, busiest = (pick(known, key=lambda one: one.waiting_share or 0.0) for pick in (max, min))
    waits, ideal = worst.waiting_share or 0.0, worst.ideal_share
    if ideal is None or not this.exceeds(waits - ideal, "waits"):
        return None
    even = (1 - books.communication / books.total) / (1 - ideal)
    words = (
        f"of a step beyond the schedule's own {100 * ideal:.1f} %; stage {busiest.stage} waits least,"
        f" {100 * (busiest.waiting_share or 0.0):.1f} %: it has the most to do"
    )
    title = f"Stage {worst.stage} of the pipeline waits {100 * waits:.1f} % of a step for its neighbours"
    evidence = [this.broke(words, waits - ideal, "waits")]
    finding = takes(this, books, title, max(0.0, 1 - even) * books.total, evidence)
    return replace(finding, ranks=[busiest.rank], phase="communication")


@rule(
    limits={"host": Limit(0.2, "share", "ours: of a step, Python between operators and autograd's engine")},
    causes=["operators are so short that Python cannot keep up: small batches, decoding"],
    changes=["larger batches, torch.compile, or CUDA graphs: fewer, longer operators"],
)
def host_bound(this: ProfileRule, case: ProfileCase) -> list[Finding]:
    """Much of the step is spent in Python. Not on a rank that the others wait for: what it spends there
    beyond them is what they wait. Nor what one layer or module spends beyond the median layer, or what is
    spent outside of the model and the optimizer: who waits for a batch does not lack long operators.
    """
    late, found = {rank for one in case.explained_by for rank in one.ranks}, list[Finding]()
    for sums in case.steps:
        own = [one for place, one in sums.books.items() if case.report.profile.ranks[place].rank not in late]
        if not own:
            continue
        taken = sum(one.python for one in own) / len(own) - sum(more_python(sums).values())
        taken -= outside_python(sums)
        if sums.busy is not None:  # a device that has work waits for no Python
            taken = min(taken, max(0.0, sums.mean.total - sums.busy))
        found += part(this, sums, "host", "Python", taken)
    return found


@rule(
    limits={"again": Limit(0.15, "share", "ours: of a step, forward passes that run twice")},
    causes=["activations are recomputed where the memory would hold them"],
    changes=[
        Change(
            ["--recompute-granularity selective"],
            "recompute attention alone, or fewer layers, as far as the memory allows",
        )
    ],
)
def recomputation(this: ProfileRule, case: ProfileCase) -> list[Finding]:
    """Much of the step computes activations again."""
    found = []
    for sums in case.steps:
        again = sums.by(lambda cell: cell.phase, lambda cell: cell.kind != COMMUNICATION).get(RECOMPUTE)
        if again is not None:
            found += part(this, sums, "again", "Recomputation", again.self_ns)
    return found


@names_no_cause
@rule(
    limits={"observer": Limit(1.1, "times", "ours: beyond it shares are those of another program")},
    causes=["very short operators", "a machine that others use, too: see clean against clean"],
    changes=["read shares, not times; larger batches make operators longer"],
)
def costly_observer(this: ProfileRule, case: ProfileCase) -> list[Finding]:
    """Profiling changes what it measures by more than its own cost varies, and clean steps differ."""
    found = []
    for phase, one in case.report.observers.items():
        ratio, noise = one.ratio, (one.noise or 0.0) + abs((one.clean_ratio or 1.0) - 1.0)
        if ratio is None or not this.exceeds(ratio, "observer") or ratio - 1 <= max(noise, one.spread or 0.0):
            continue
        evidence = [this.broke(f"profiled {phase} steps against clean ones: {one.words}", ratio, "observer")]
        finding = this.finding(f"Profiling makes a {phase} step x{ratio:.2f}", evidence, GAIN)
        first, last = case.report.profile.span(phase)
        more_ns = ((one.lost or ratio) - 1) * (one.clean_ns or 0.0)
        cost_s = more_ns * case.report.sums[phase].mean.steps / NS_PER_S
        found.append(replace(finding, cost_s=cost_s, first_iteration=first, iteration=last))
    return found


@rule(
    limits={"residual": Limit(0.02, "share", "ours: of a step that no row explains")},
    causes=["work outside of operators and modules, or events that were dropped"],
    changes=["see the residual of each rank: nothing of it is hidden in other rows"],
)
def open_books(this: ProfileRule, case: ProfileCase) -> list[Finding]:
    """The rows do not account for the whole step."""
    found = []
    for sums in case.steps:
        share = abs(sums.mean.residual) / sums.mean.total
        if this.exceeds(share, "residual"):
            words = f"of a {sums.phase} step, {sums.mean.residual / NS_PER_MS:.3f} ms"
            title = f"{100 * share:.1f} % of a {sums.phase} step are in no row"
            found.append(this.finding(title, [this.broke(words, share, "residual")], GAIN))
    return found


RULES: tuple[ProfileRule, ...] = (
    *(
        late_rank,
        uneven_stages,
        transfers,
        host_bound,
        python_in_module,
        slow_on_rank,
        slow_layer,
        recomputation,
    ),
    *(costly_observer, open_books),
)


def judge(report: ProfileReport) -> None:
    """Gives the report its findings, the costliest first."""
    if not report.has_rows:
        return
    times = {phase: LayerTimes.of(report.profile, sums) for phase, sums in report.sums.items()}
    on_ranks = {phase: slow_on_ranks(report.profile, sums) for phase, sums in report.sums.items()}
    known = {phase: one for phase, one in times.items() if one is not None}
    case = ProfileCase(report, known, on_ranks)
    whole_s = 0.0 if report.whole is None else report.whole.total * report.whole.steps / NS_PER_S
    report.findings = _together(find(RULES, case), whole_s)
    report.unjudged = _unjudged(report, case.times)


def _unjudged(report: ProfileReport, judged: Container[str]) -> list[str]:
    """What could not be judged, and why; `judged`: the kinds of steps whose layers were compared."""
    unjudged = [] if report.roofs.best else ["what the device could do at best: no roofs were measured"]
    if report.communication.unsplit:
        unjudged.append("waiting in collectives of which not all ranks were profiled")
    if any(len(late.alone_ns) < SURE_STEPS for late in report.communication.lates):
        unjudged += [f"whether the others wait for one rank: that needs {SURE_STEPS} profiled steps"]
    unknown = [phase for phase, sums in report.sums.items() if phase not in judged and layers_of(sums)]
    if unknown:
        unjudged.append(
            f"whether a layer of {' and '.join(unknown)} steps is slow, or Python in another module: that"
            f" needs {FEW_STEPS} profiled steps whose runs were kept"
        )
    for sums in report.sums.values():
        unjudged += [*_uncounted(sums), *_dispatched(sums)]
    return unjudged


def _uncounted(sums: PhaseSums) -> list[str]:
    """Compiled code, of a step with shapes, that called no operator whose FLOPs are known."""
    if all(cell.moved_bytes is None for cell in sums.cells):
        return []
    counted = {(cell.rank, cell.phase, cell.module) for cell in sums.cells if cell.flops is not None}
    regions = {
        (cell.op, cell.phase, cell.module)
        for cell in sums.cells
        if _GRAPH in cell.op and (cell.rank, cell.phase, cell.module) not in counted
    }
    if not regions:
        return []
    what = "1 compiled region" if len(regions) == 1 else f"{len(regions)} compiled regions"
    return [
        f"the FLOPs of {what} of {sums.phase} steps: no event of a matrix product lies within, as with"
        " Inductor's C++ wrapper or its own kernels for products, so what they multiply is missing"
    ]


def _dispatched(sums: PhaseSums) -> list[str]:
    taken = sums.by(lambda cell: cell.op, lambda cell: cell.op == _DISPATCH).get(_DISPATCH)
    if taken is None:
        return []
    share = 100 * taken.self_ns / sums.mean.total
    return [
        f"{sums.phase} steps without {_DISPATCH}, which takes {share:.1f} % of"
        " them: a TorchDispatchMode of the program, such as FlopCounterMode, is called for every operator;"
        " leave it out of profiled steps"
    ]
