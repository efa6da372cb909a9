"""Every block of README.md and of the pages runs and does what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest
from pages import ROOT, Command, Delete, Python, Save, pages, steps
from typer.main import get_command

from npusim.cli import main
from npusim.cli.commands import app
from npusim.cli.options import build
from npusim.errors import ConfigError
from npusim.isa.instruction import REGISTRY


class Reader:
    """Somebody who does what a page says, in one folder."""

    def __init__(self, page: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.page = page
        self.capsys = capsys
        self.names: dict[str, object] = {"__name__": "page"}
        self.saved: Path | None = None

    def do(self, step: Save | Python | Command | Delete) -> None:
        """Do one step."""
        place = f"{self.page}:{step.line}"
        if isinstance(step, Save):
            path = Path(step.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.text, encoding="utf-8")
            if path.suffix == ".py":
                self.saved = path
        elif isinstance(step, Python):
            exec(compile(step.code, place, "exec"), self.names)
            in_order(step.shown, self.capsys.readouterr().out, place)
        elif isinstance(step, Delete):
            self.delete(step, place)
        elif step.long:
            read(step.argv)
        else:
            self.run(step, place)

    def run(self, step: Command, place: str) -> None:
        code = main(step.argv)
        out, err = self.capsys.readouterr()
        told = f"{place}: npusim {' '.join(step.argv)}\n{out}{err}"
        assert "Traceback" not in out + err, told
        assert code != 0 if step.code is None else code == step.code, f"exit {code} from {told}"
        in_order(step.shown, out + err, told)

    def delete(self, step: Delete, place: str) -> None:
        assert self.saved is not None, place
        text = self.saved.read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        (number,) = (i for i, line in enumerate(lines) if line.strip() == step.words)
        self.saved.write_text("".join(lines[:number] + lines[number + 1 :]), encoding="utf-8")
        fails = any(line.startswith("error:") for line in step.shown)
        command = Command(step.line, ["run", str(self.saved)], code=None if fails else 0, shown=step.shown)
        self.run(command, place)
        self.saved.write_text(text, encoding="utf-8")


def read(argv: list[str]) -> None:
    """Read a command line and build its program, without running it."""
    name, *rest = argv
    given = get_command(app).commands[name].make_context(name, rest).params
    if name == "run":
        build(given["program"], given["chip"], given["param"], given["overrides"], given["inputs"])


def in_order(shown: list[str], written: str, told: str) -> None:
    """Check that all lines were written, in this order; errors, which pages wrap, word by word."""
    if any(line.startswith("error:") for line in shown):
        assert " ".join(" ".join(shown).split()) in " ".join(written.split()), told
        return
    rest = iter(line.rstrip() for line in written.splitlines())
    for line in shown:
        assert line.rstrip() in ("...", "") or line.rstrip() in rest, f"no line {line!r} in {told}"


@pytest.fixture
def reader(request, tmp_path, monkeypatch, capsys):
    """A reader in an empty folder; what the page adds to this process is taken back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NPUSIM_DEBUG", raising=False)
    known = dict(REGISTRY)
    with matplotlib.rc_context({"backend": "agg"}):
        yield Reader(request.param, capsys)
        plt.close("all")
    REGISTRY.clear()
    REGISTRY.update(known)


@pytest.mark.parametrize("reader", pages(), indirect=True, ids=pages())
def test_a_page_does_what_it_says(reader):
    for step in steps((ROOT / reader.page).read_text(encoding="utf-8")):
        reader.do(step)


LONG = [
    s for p in pages() for s in steps((ROOT / p).read_text(encoding="utf-8")) if getattr(s, "long", False)
]


def test_long_commands_are_few_and_are_read():
    assert len(LONG) <= 20
    with pytest.raises(ConfigError, match="batch"):
        read(["run", "scan_batch", "-p", "batch=0", "--timing-only"])
    with pytest.raises(Exception, match="--timing-onli"):
        read(["run", "scan_batch", "--timing-onli"])


SAMPLE = """# A page

Save this as `two.py`:

```python
x = 1  # @program
```

Delete `x = 1` and run it again:

```
error: no x
```

    npusim run two.py    # exit 3
    npusim run two.py --timing-only  # long

```console
$ npusim chips
toy
$ npusim chip nothing
error: no chip
$ echo $?
2
```
"""


def test_a_page_is_read_as_it_is_meant():
    found = steps(SAMPLE)
    assert [type(step).__name__ for step in found] == ["Save", "Delete", *["Command"] * 4]
    saved, deleted, run, late, chips, chip = found
    assert (saved.name, saved.text) == ("two.py", "x = 1  # @program\n")
    assert (deleted.words, deleted.shown) == ("x = 1", ["error: no x"])
    assert (run.argv, run.code, run.long) == (["run", "two.py"], 3, False)
    assert (late.argv, late.code, late.long) == (["run", "two.py", "--timing-only"], 0, True)
    assert (chips.code, chips.shown) == (0, ["toy"])
    assert (chip.code, chip.shown) == (2, ["error: no chip"])


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("```\nout\n```", "line 1: output of no command; give the block a language"),
        ("```python\n@program\n```", "line 1: a program, but nothing above says 'Save this as `NAME.py`'"),
        ("    import npusim", "line 1: Python in an indented block; fence it"),
    ],
)
def test_blocks_that_cannot_be_run_are_refused(page, words):
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        steps(page)


def test_what_is_not_written_is_missed():
    in_order(["a", "...", "c"], "a\nb\nc\n", "here")
    in_order(["error: a", "b"], "error: a b\n", "here")
    for shown in (["c", "a"], ["d"], ["error: c"]):
        with pytest.raises(AssertionError):
            in_order(shown, "a\nb\nc\n", "here")
