"""What the pages of the documentation tell a reader to do, as steps that can be done.

A page is README.md or a hand-written docs/*.md. Its blocks, from top to bottom, in one folder of their own:

* A block in `python` runs; the blocks of a page share their names. After "Save this as `NAME`" a block is
  written to that file instead, and so is one in `yaml` with `# NAME.yaml` as its first line.
* Lines that begin with `npusim`, in an indented block or in `console` behind `$ `, are commands. They run.
* A block without a language right behind a command or Python, and what stands below a command in `console`,
  is what that writes: every line of it, in this order; `...` stands for any lines.
* "Delete `LINE` and run it again" runs the saved file once without that line; the block behind it is what
  that writes.

A command ends with 0, unless the page shows another end: a line that begins with `error:` (any other code), a
comment `# exit N` behind the command, or `$ echo $?` and the number.

Nothing is passed over. A command of another program, and a block in `toml`, is a step of its own, `Left`, and
the tests name every one with the reason. A block in `text` is a list or a picture, and may hold no command;
the only directive is `{toctree}`. Whatever else looks like code is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
GENERATED = ("docs/isa.md", "docs/trust.md")
"""Pages written by programs, with tests of their own."""

_SAVED = re.compile(r"\b[Ss]ave (?:this|it|them) as `([\w./-]+\.\w+)`")
_DELETED = re.compile(r"\b[Dd]elete `([^`]+)` and run it again")
_NAMED = re.compile(r"# ([\w./-]+\.yaml)\n")
_EXIT = re.compile(r"\bexit (\d+)")
_CODE = re.compile(r"^\s*(\$ |npusim\b|python\b|pip\b|import\b|from \S+ import\b|@).*", re.M)


@dataclass
class Save:
    """Write a file."""

    line: int
    name: str
    text: str


@dataclass
class Python:
    """Run Python."""

    line: int
    code: str
    shown: list[str] = field(default_factory=list)
    """Lines that it prints, in this order."""


@dataclass
class Command:
    """Run a command of npusim."""

    line: int
    argv: list[str]
    code: int | None = 0
    """Exit code; None for any but 0."""
    shown: list[str] = field(default_factory=list)
    """Lines that it writes, in this order."""


@dataclass
class Delete:
    """Run the saved file once without a line of it."""

    line: int
    words: str
    shown: list[str] = field(default_factory=list)


@dataclass
class Left:
    """A command of another program, or a block that nothing runs."""

    line: int
    words: str
    """The command, or the text of the block."""


Step = Save | Python | Command | Delete | Left


def pages() -> list[str]:
    """Return the pages that people write, as paths from the root of the repository."""
    found = ["README.md", *(p.relative_to(ROOT).as_posix() for p in sorted((ROOT / "docs").rglob("*.md")))]
    return [p for p in found if p not in GENERATED and not p.startswith("docs/generated/")]


def steps(text: str) -> list[Step]:
    """Return what a page tells its reader to do.

    Raises `ValueError`, with the line, for a block that is none of what the module says.
    """
    made: list[Step] = []
    before = ""
    """The paragraph right above a block."""
    output_of: Command | Delete | Python | None = None
    for token in MarkdownIt("commonmark").parse(text):
        if token.type == "inline":
            before, output_of = token.content, None
            if deleted := _DELETED.search(" ".join(before.split())):
                output_of = Delete(_line(token), deleted[1])
                made.append(output_of)
            continue
        if token.type == "html_block" and re.search(r"<(pre|code)\b", token.content):
            raise ValueError(f"line {_line(token)}: code in HTML; fence it")
        if token.type not in ("fence", "code_block"):
            continue
        language = token.info.split()[0] if token.info else ""
        if token.type == "fence" and not language:
            if output_of is None:
                raise ValueError(f"line {_line(token)}: output of no command; give the block a language")
            output_of.shown += token.content.splitlines()
            if isinstance(output_of, Command) and any(s.startswith("error:") for s in output_of.shown):
                output_of.code = None
            output_of = None
            continue
        new = list(_block(token.content, language, _line(token), before))
        made += new
        output_of = next((step for step in reversed(new) if isinstance(step, Command | Python)), None)
        before = ""
    return made


def _line(token) -> int:
    return token.map[0] + 1


def _block(content: str, language: str, line: int, before: str) -> Iterator[Step]:
    saved = _SAVED.search(" ".join(before.split())) or (language == "yaml" and _NAMED.match(content))
    if saved:
        yield Save(line, saved[1], content)
    elif language == "python":
        if "@program" in content:
            raise ValueError(f"line {line}: a program, but nothing above says 'Save this as `NAME.py`'")
        yield Python(line, content)
    elif language == "console":
        yield from _session(content, line)
    elif language == "toml":
        yield Left(line, content.strip())
    elif language == "text":
        if found := _CODE.search(content):
            raise ValueError(f"line {line}: {found[0].strip()!r} in a block of text; indent it to be run")
    elif not language:
        if re.match(r"(import|from) \w", content):
            raise ValueError(f"line {line}: Python in an indented block; fence it")
        for number, words in enumerate(content.splitlines(), line):
            yield from _commands(words, number)
    elif language == "yaml":
        raise ValueError(f"line {line}: no name for YAML; put 'Save this as `NAME.yaml`' above it")
    elif language != "{toctree}":
        raise ValueError(f"line {line}: nothing runs a block in {language}")


def _session(content: str, line: int) -> Iterator[Command | Left]:
    last: Command | None = None
    asked = False
    for number, words in enumerate(content.splitlines(), line + 1):
        if words == "$ echo $?":
            asked = True
        elif asked:
            assert last is not None
            last.code, asked = int(words), False
        elif words.startswith("$ "):
            made = list(_commands(words[2:], number))
            last = next((step for step in reversed(made) if isinstance(step, Command)), None)
            yield from made
        elif last is None:
            raise ValueError(f"line {number}: output of no command of npusim")
        else:
            last.shown.append(words)
            if words.startswith("error:"):
                last.code = None


def _commands(words: str, line: int) -> Iterator[Command | Left]:
    """Return the commands in one line."""
    command, _, comment = words.partition("  #")
    for part in filter(None, map(str.strip, command.split(" && "))):
        if part.split()[0] == "npusim":
            ends = _EXIT.search(comment)
            yield Command(line, shlex.split(part)[1:], code=int(ends[1]) if ends else 0)
        else:
            yield Left(line, part)
