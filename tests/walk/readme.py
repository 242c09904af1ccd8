"""The commands that a page tells its reader to type."""

from __future__ import annotations

import re

PROGRAMS = {"bash", "flagscale-perf", "make", "pip", "python", "tail", "tensorboard", "torchrun", "watch"}
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_COMMENT = re.compile(r"(^|\s+)#\s.*$")


def commands(page: str) -> list[str]:
    """In the order of the page, each once: the lines of its `bash` blocks without their comments, and code in
    a sentence that begins with a program, unless it only names a longer command by its beginning.
    """
    typed: dict[int, str] = {}
    for block in _BLOCK.finditer(page):
        if block[1] == "bash":
            whole = block[2].replace("\\\n", "  ")
            position = block.start(2)
            for line in whole.splitlines(keepends=True):
                typed[position] = " ".join(_COMMENT.sub("", line).split())
                position += len(line)
    in_blocks = set(typed.values())
    sentences = _BLOCK.sub(lambda block: " " * len(block[0]), page)
    typed |= {code.start(): code[1] for code in _CODE.finditer(sentences) if _is_command(code[1])}
    found = [typed[position] for position in sorted(typed) if typed[position]]
    return [
        command
        for command in dict.fromkeys(found)
        if command in in_blocks or not any(other.startswith(f"{command} ") for other in found)
    ]


def _is_command(code: str) -> bool:
    program, blank, _ = code.partition(" ")  # alone, it only names the program
    return bool(blank) and program.rpartition("/")[2] in PROGRAMS
