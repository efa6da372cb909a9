"""Every block of README.md and of the pages runs and does what the page says."""

from __future__ import annotations

import re
import tomllib
from contextlib import ExitStack
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest
from pages import ROOT, Command, Delete, Left, Python, Save, Step, pages, steps

from npusim.cli import main
from npusim.isa.instruction import REGISTRY
from npusim.program.discover import GROUP


class Reader:
    """Somebody who does what a page says, in one folder."""

    def __init__(self, page: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.page = page
        self.capsys = capsys
        self.names: dict[str, object] = {"__name__": "page"}
        self.saved: Path | None = None

    def do(self, step: Step) -> None:
        """Do one step; what is left is for the test that names it."""
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
        elif isinstance(step, Command):
            self.run(step, place)

    def run(self, step: Command, place: str) -> None:
        with ExitStack() as stack:
            argv = [scheduler(stack) if word == SCHEDULER else word for word in step.argv]
            code = main(argv)
        out, err = self.capsys.readouterr()
        told = f"{place}: npusim {' '.join(argv)}\n{out}{err}"
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


SCHEDULER = "tcp://HOST:8786"
"""The scheduler of the pages; the tests put one of their own in its place."""


def scheduler(stack: ExitStack) -> str:
    """Start a cluster of this machine and return the address of its scheduler."""
    distributed = pytest.importorskip("distributed", reason="needs npusim[cluster]")
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    return stack.enter_context(cluster).scheduler_address


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


SHARED = {"docs/programs.md": 4}
"""Pages of commands that need nothing of one another, and how many readers share one."""


def readers():
    """Return every page with its readers; Dask warns of what its processes leave when they end."""
    for name in pages():
        far = SCHEDULER in (ROOT / name).read_text(encoding="utf-8")
        for number in range(SHARED.get(name, 1)):
            marks = [pytest.mark.filterwarnings("ignore")] if far else []
            yield pytest.param(name, number, marks=marks, id=f"{name}-{number}" if number else name)


@pytest.mark.parametrize(("reader", "number"), list(readers()), indirect=["reader"])
def test_a_page_does_what_it_says(reader, number):
    found = steps((ROOT / reader.page).read_text(encoding="utf-8"))
    for step in found[number :: SHARED.get(reader.page, 1)]:
        reader.do(step)


LEFT = {
    "pip install .": "CI runs programs from a wheel in a fresh environment",
    "pip install '.[test]'": "CI runs this line as README has it",
    "pytest": "this is it",
    "pip install -e '.[dev]'": "CI installs the same extra",
    ".ci/run": "this is what CI runs",
    "python benchmarks/run.py": "measures the machine that it runs on",
    "pip install 'npusim[cluster]'": "from the package index; CI installs the same extra by way of test",
    f"dask scheduler --port {SCHEDULER.rpartition(':')[2]}": "runs until it is stopped; see scheduler()",
    f"dask worker {SCHEDULER} --nthreads 1": "runs until it is stopped; see scheduler()",
    '[project.entry-points."npusim.programs"]\nsquares = "mypackage.squares:squares"': (
        "part of another package's file; test_discover.py offers a program under this group"
    ),
}
"""What no test of pages runs, and why."""


def left() -> list[str]:
    """Return what the pages hold and nobody runs."""
    found = (step for p in pages() for step in steps((ROOT / p).read_text(encoding="utf-8")))
    return [step.words for step in found if isinstance(step, Left)]


def test_what_is_not_run_has_a_reason():
    assert set(left()) == LEFT.keys()


def test_what_is_not_run_is_there():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for words in left():
        first, *rest = words.split()
        if first == "pip":
            assert set(re.findall(r"\[(\w+)\]", words)) <= extras.keys(), words
        elif first == "python":
            assert (ROOT / rest[0]).is_file(), words
        elif first.startswith("[project"):
            assert tomllib.loads(words)["project"]["entry-points"].keys() == {GROUP}
        elif first.startswith("."):
            assert (ROOT / first).is_file(), words


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
    make it && npusim run two.py --timing-only  # at once

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
    assert [type(step).__name__ for step in found] == [
        "Save", "Delete", "Command", "Left", "Command", "Command", "Command"
    ]  # fmt: skip
    saved, deleted, run, make, late, chips, chip = found
    assert (saved.name, saved.text) == ("two.py", "x = 1  # @program\n")
    assert (deleted.words, deleted.shown) == ("x = 1", ["error: no x"])
    assert (run.argv, run.code) == (["run", "two.py"], 3)
    assert make.words == "make it"
    assert (late.argv, late.code) == (["run", "two.py", "--timing-only"], 0)
    assert (chips.code, chips.shown) == (0, ["toy"])
    assert (chip.code, chip.shown) == (2, ["error: no chip"])


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("```\nout\n```", "line 1: output of no command; give the block a language"),
        ("```python\n@program\n```", "line 1: a program, but nothing above says 'Save this as `NAME.py`'"),
        ("    import npusim", "line 1: Python in an indented block; fence it"),
        (
            "```text\na\n  npusim chips\n```",
            "line 1: 'npusim chips' in a block of text; indent it to be run",
        ),
        ("```bash\nnpusim chips\n```", "line 1: nothing runs a block in bash"),
        ("```{code-block} python\nx\n```", "line 1: nothing runs a block in {code-block}"),
        ("```yaml\na: 1\n```", "line 1: no name for YAML; put 'Save this as `NAME.yaml`' above it"),
        ("```console\n$ ls\na\n```", "line 3: output of no command of npusim"),
        ("<pre>\nnpusim chips\n</pre>", "line 1: code in HTML; fence it"),
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
