"""The sentences that a file of the package can print, as templates: what it computes is `{0}`, `{1}` ..."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator

from flagscale_perf.spine.language import CHINESE, table
from tests.conftest import REPO

# Each makes something that is read: where it gets a word, that is a head, a label or a title.
PACKAGE = REPO / "flagscale_perf"
_HEADS = frozenset(
    ("Section", "Table", "Pairs", "Tile", "Panel", "Series", "StackedBar", "Stripe", "HeatMap")
    + ("Waterfall", "Layer", "Line", "Lane", "Note", "Curve", "Report", "Findings")
)
_LOOKING = frozenset(  # functions whose arguments nobody reads
    ("compile", "startswith", "endswith", "removeprefix", "removesuffix", "fullmatch", "search", "split")
    + ("get", "getattr", "replace", "strftime", "argument", "offers", "phase_share", "part", "number")
)
_WORD = re.compile(r"[A-Za-z][A-Za-z-]*[a-z]")
_HOLE = re.compile(r"\{\w*\}")  # of str.format
_WHO = re.compile(r"flagscale_perf[\w {}]*: ")  # before a sentence on stderr, see `spine.language.live`
_NO_PROSE = re.compile(r"[\w.{}\[\]/*%:=<>#-]*|\s*")  # a key, a path, a flag, a format


# What is printed for people in these is in the table: findings, reports, `watch`, `doctor`, errors of run.py.
SPOKEN = (
    *("training/analysis/findings/*.py", "rpc/analysis/findings.py", "rpc/analysis/costs.py"),
    *("rpc/analysis/unexplained.py", "trace/analysis/findings.py", "trace/analysis/case.py"),
    *("trace/analysis/late_samples.py", "trace/analysis/model.py", "trace/analysis/sample.py"),
    *("profile/analysis/findings.py", "profile/analysis/slow_places.py", "profile/analysis/case.py"),
    *("bench/analysis/bandwidth.py", "bench/analysis/collectives.py", "bench/analysis/latency.py"),
    *("bench/analysis/parallelism.py", "bench/analysis/report.py", "bench/analysis/served.py"),
    *("analysis/rules.py", "analysis/blocks.py", "analysis/links.py", "training/analysis/basis.py"),
    *("analysis/job_report.py", "analysis/live.py", "analysis/session.py", "analysis/clocks.py"),
    *("analysis/whole.py", "*/analysis/blocks.py", "*/analysis/live.py", "*/analysis/head.py"),
    *("training/analysis/ledgers.py", "training/analysis/series.py", "training/analysis/history.py"),
    *("training/analysis/facts.py", "training/analysis/tree.py", "training/analysis/every_rank.py"),
    *("training/analysis/captured.py", "training/ledger/naming.py"),
    *("trace/analysis/pictures.py", "trace/analysis/remarks.py", "profile/analysis/drawn.py"),
    *("profile/analysis/tables.py", "profile/analysis/report.py", "profile/analysis/observer.py"),
    *("rpc/analysis/units.py", "store/run_file.py", "store/evidence.py", "spine/limits.py"),
    *("report/findings.py", "report/text.py", "report/markdown.py", "report/watch.py", "report/format.py"),
    *("cli/watch.py", "cli/doctor.py", "hosts/doctor.py", "hosts/transfer_queue/doctor.py"),
    *("hosts/profiling/doctor.py", "hosts/hook_points.py", "hosts/megatron.py", "hosts/bridge.py"),
    *("hosts/wrappers.py", "hosts/importable.py", "device/nvml.py", "spine/packages.py"),
    *("launcher/*.py", "options/*.py", "spine/errors.py", "spine/files.py", "hosts/flagscale_runner.py"),
    *("analysis/compare/*.py", "*/analysis/compare.py", "training/analysis/pairs.py", "cli/stacks.py"),
    *("training/analysis/patch.py", "training/analysis/run_blocks.py", "training/analysis/runs.py"),
    *("training/analysis/settings.py", "analysis/jobs.py", "analysis/listed.py", "analysis/listing.py"),
    *("training/remarks.py", "training/records.py", "training/slowdown.py", "training/host.py"),
    *("training/clocks.py", "training/memory.py", "training/hardware.py", "training/standstill.py"),
    *("training/ranks/view.py", "training/ranks/late.py", "training/ranks/hang.py", "training/capture.py"),
    *("training/ranks/gather.py", "training/ranks/gatherer.py", "training/ranks/kept.py"),
    *("training/recording/*.py", "writer/*.py", "spine/live.py", "hooks.py", "training/growth.py"),
    *("sinks/text_format.py", "sinks/otlp.py", "cli/asking.py", "store/runs.py", "analysis/job.py"),
)
# What those files hold besides: names, colours, code of shells, and what is the same in both languages.
_SAME = re.compile(
    r"(--[\w-]+( ?\{\d+\}| [\w-]+)?|flagscale-perf .*|Megatron-(Bridge|Core) \{0\}|"
    r"[\s{}0-9+-]+(to|ms)?[\s{}0-9]*ms)|[a-z0-9_]+_(ms|w|mhz|c|s|gpu|joule)|mfu|hfu|"
    r"red|sky|grey|blue|green|orange|purple|faint|area|line|dashed|dot|cross|diamond|warn|bad|bold \w+|"
    r"(set|cd|exec|export|unset|trap|;|#|\nimport) ?[-+!\w: ].*|true\|false|print the hosts .*|"
    r"'/(home|etc)/.*'|--perf-otlp; .*|grad_norm|learning_rate|"
    r"flagscale_perf( \w+| \{0\})?|  envs:|\{1\}: \{2\} in process \{3\}|\(\?:.*|Callable\[.*|\{\"kept.*|"
    r"the --perf-log-dir of a running .*|"
    r"(at|in|\{0\} in|for) \{\d\}( s)?| for \{0\} s|\{0\} \{1\} in group \{2\}|\{0\} Session Started: \{1\}|"
    r"Time\(ms\)|.*\|musa|\+train.*|iteration \{0\}/\{1\}|(page|next|found) {2,}.*|.*\"kind\".*",
    re.DOTALL,
)


def missing() -> dict[str, str]:
    """What can be printed for people and is not in the table of Chinese, with the file that has it."""
    known = table(CHINESE)
    return {
        each: file
        for each, file in of_files(SPOKEN).items()
        if each not in known and not _SAME.fullmatch(each)
    }


def of_files(patterns: Iterable[str], every: bool = False) -> dict[str, str]:
    """The templates of these files of the package, or `every` string, with the first file that has each."""
    found: dict[str, str] = {}
    for pattern in patterns:
        paths = sorted(PACKAGE.glob(pattern))
        assert paths, pattern
        for path in paths:
            for template in _of_tree(ast.parse(path.read_text(encoding="utf-8")), every):
                found.setdefault(template, str(path.relative_to(PACKAGE)))
    return found


def _of_tree(tree: ast.Module, every: bool) -> Iterator[str]:
    heads = {id(word) for call in ast.walk(tree) if _is_head(call) for word in ast.walk(call)}
    silent = set(_silent(tree))
    for node in ast.walk(tree):
        if id(node) in silent:
            continue
        text = _template(node)
        text = text and _WHO.sub("", text)
        if text is not None and (every or _is_said(text, id(node) in heads)):
            yield text


def _is_head(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _HEADS


def _silent(tree: ast.Module) -> Iterator[int]:
    """What nobody reads: docstrings, the parts of an f-string, keys, what is compared or looked up."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant() as said):
                yield id(said)
            case ast.JoinedStr(values=values):
                yield from (id(part) for part in values)
                yield from (
                    id(part)
                    for each in values
                    if isinstance(each, ast.FormattedValue) and each.format_spec
                    for part in ast.walk(each.format_spec)
                )
            case ast.Subscript(slice=key):
                yield id(key)
            case ast.Compare():
                yield from (id(part) for part in ast.walk(node) if isinstance(part, ast.Constant))
            case ast.Call(keywords=keywords, func=called):
                yield from _silent_arguments(called, node.args)
                for each in keywords:
                    if each.arg in ("colour", "style", "key", "help", "tone", "metavar"):
                        yield from map(id, ast.walk(each.value))


def _silent_arguments(called: ast.expr, args: list[ast.expr]) -> Iterator[int]:
    name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
    if name in ("Section", "Series", "HeatMap", "Waterfall"):
        yield from map(id, args[:1])  # its key
    if name in _LOOKING:
        yield from (id(part) for arg in args for part in ast.walk(arg))


def _template(node: ast.AST) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            holes = iter(range(len(text)))
            return _HOLE.sub(lambda _: f"{{{next(holes)}}}", text)
        case ast.JoinedStr(values=values):
            parts = [part.value if isinstance(part, ast.Constant) else "\0" for part in values]
            holes = iter(range(len(parts)))
            return re.sub("\0+", lambda _: f"{{{next(holes)}}}", "".join(map(str, parts)))
    return None


def _is_said(text: str, is_head: bool) -> bool:
    plain = re.sub(r"\{\d+\}", "", text)
    if not _WORD.search(plain):
        return False
    return is_head or not _NO_PROSE.fullmatch(plain)


if __name__ == "__main__":
    print(json.dumps(missing(), indent=0))
