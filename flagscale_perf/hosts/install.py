"""Puts the monitor into a training process: every patch is made here once, and can be taken back."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NoReturn, TextIO

from flagscale_perf.arguments import PerfConfig, add_perf_arguments, unknown_variables
from flagscale_perf.hooks import TrainingHooks
from flagscale_perf.hosts import host_monitor, rehearsal
from flagscale_perf.hosts.asked import asks_for_monitor, rehearsal_mode
from flagscale_perf.hosts.bridge import PRETRAIN_MODULE, patch_bridge
from flagscale_perf.hosts.hf_trainer import TRAINER_MODULE, HuggingFace
from flagscale_perf.hosts.import_hook import ImportHook
from flagscale_perf.hosts.lightning import TRAINER_MODULES, Lightning
from flagscale_perf.hosts.megatron import ARGUMENTS_MODULE, LOOP_MODULES, patch_loop
from flagscale_perf.hosts.patching import Patches
from flagscale_perf.hosts.profiled import check_asked
from flagscale_perf.hosts.stand_ins import StandIns
from flagscale_perf.spine.errors import PerfError

MANUAL_MODULE = "flagscale_perf.hosts.manual"


class Installation:
    """The monitor inside one process. Imports nothing of the host; acts when the host imports its modules.

    Args:
        argv: the training script's arguments.
        environ: the environment.
    """

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        self.hooks = TrainingHooks()
        self.rehearsing = False
        self._asked = asks_for_monitor(argv, environ)
        self._mode = rehearsal_mode(argv, environ)
        self._pid = os.getpid()
        self._rank = environ.get("RANK", "0")
        self._unknown = unknown_variables(environ) if self._rank == "0" else {}
        self._patches = Patches()
        self._announced: set[str] = set()
        self._exit_code: object = None
        patches = self._patches
        after: dict[str, Callable[[ModuleType], None]] = {
            ARGUMENTS_MODULE: self._patch_arguments,
            PRETRAIN_MODULE: self._patch_bridge,
            TRAINER_MODULE: HuggingFace(self.hooks, patches, lambda: _refuse_wrong({})).patch,
            host_monitor.ARGUMENTS_MODULE: lambda module: host_monitor.patch_arguments(module, patches),
            host_monitor.HOOKS_MODULE: lambda module: host_monitor.patch_hooks(
                module, patches, self._announce
            ),
        }
        after |= {name: self._patch_loop for name in LOOP_MODULES}
        after |= {
            name: Lightning(self.hooks, patches, lambda: _refuse_wrong({})).patch for name in TRAINER_MODULES
        }
        for name, patch in rehearsal.host_patches(patches).items():
            after[name] = functools.partial(self._when_rehearsing, patch)
        self._import_hook = ImportHook({"megatron": self._rehearse}, after, self._import_failed)

    def install(self) -> Installation:
        """Starts to watch imports: the host's modules are patched as they come."""
        for name, wrong in self._unknown.items():
            _print_safely(f"{name} changes nothing: {wrong}", sys.stderr)
        self._import_hook.install()
        return self

    def undo(self) -> None:
        """Stops watching and takes every patch back."""
        self._import_hook.uninstall()
        self._patches.undo()

    def report_if_unused(self) -> None:
        """Called at the end of a script that did not fail. Prints one line on stderr if the monitor was asked
        for and no training loop ever called it.
        """
        has_own_loop = MANUAL_MODULE in sys.modules
        is_child = os.getpid() != self._pid  # forked by the script
        if self._asked and self._rank == "0" and not self.hooks.entered and not has_own_loop and not is_child:
            _print_safely(
                "nothing was recorded: the script ended without entering a training loop that the monitor"
                " knows (flagscale-perf doctor lists them)",
                sys.stderr,
            )

    def report_at_exit(self) -> None:
        """Has the same done at the interpreter's exit, if Megatron was imported and the script ended well.

        What runs at the exit cannot learn the exit code: `sys.exit`, argparse's way out, too, notes it.
        """
        leave = sys.exit

        @functools.wraps(leave)
        def noted(code: Any = None, /) -> NoReturn:
            self._exit_code = code
            leave(code)

        self._patches.set(sys, "exit", noted)
        atexit.register(self._report_at_exit)

    def _report_at_exit(self) -> None:
        failed = hasattr(sys, "last_value")  # set by an uncaught exception
        if "megatron" in sys.modules and not failed and self._exit_code in (None, 0):
            self.report_if_unused()

    def _rehearse(self) -> None:
        if not rehearsal.is_due(self._mode):
            return
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
        rehearsal.install(self._patches)
        StandIns().install(self._patches)
        self.rehearsing = True
        self._announce(
            "rehearsing on the CPU: torch.cuda calls land on the CPU, gloo instead of NCCL, no device times,"
            " no MFU"
        )

    def _when_rehearsing(self, patch: Callable[[ModuleType], None], module: ModuleType) -> None:
        if self.rehearsing:
            patch(module)

    def _patch_loop(self, module: ModuleType) -> None:
        patch_loop(module, self.hooks, self._patches, self.rehearsing)

    def _patch_bridge(self, module: ModuleType) -> None:
        patch_bridge(
            module, self.hooks, self._patches, self.rehearsing, lambda: _refuse_wrong({}).enable_perf_monitor
        )

    def _patch_arguments(self, module: ModuleType) -> None:
        add_host_arguments, parse_args = module.add_megatron_arguments, module.parse_args

        @functools.wraps(add_host_arguments)
        def add_megatron_arguments(parser: Any) -> Any:
            parser = add_perf_arguments(add_host_arguments(parser))
            # A host that adds a monitor's flags of its own after this point replaces ours instead of failing.
            parser.conflict_handler = "resolve"
            return parser

        @functools.wraps(parse_args)
        def parse(*args: Any, **kwargs: Any) -> Any:
            parsed = parse_args(*args, **kwargs)
            self.hooks.attach(lambda: self._check(parsed))
            return parsed

        self._patches.set(module, "add_megatron_arguments", add_megatron_arguments)
        self._patches.set(module, "parse_args", parse)

    def _check(self, parsed: Any) -> None:
        _refuse_wrong(parsed)
        if self.rehearsing and (changed := rehearsal.adapt_args(parsed)):
            self._announce("rehearsal changes " + ", ".join(changed))

    def _announce(self, text: str) -> None:
        if self._rank == "0" and text not in self._announced:
            self._announced.add(text)
            _print_safely(text, sys.stdout)

    def _import_failed(self, module: str, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        _print_safely(
            f"hooks for {module} not installed: {reason} (training goes on without them)", sys.stderr
        )


def _print_safely(text: str, stream: TextIO) -> None:
    # A closed stream, or what it cannot encode, must not end the host.
    with contextlib.suppress(OSError, ValueError):
        print(f"flagscale_perf: {text}", file=stream, flush=True)


def _refuse_wrong(given: Any) -> PerfConfig:
    """The options in force. A wrong one, in the host's arguments or the environment, ends the process."""
    try:
        config = PerfConfig.from_args(given)
        check_asked(config)
        return config
    except PerfError as error:
        print(f"flagscale_perf: error: {error}", file=sys.stderr, flush=True)
        sys.exit(2)
