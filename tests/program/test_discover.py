"""Finding programs: where they may be, what is suggested, and what is said of files that do not load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from npusim import load_chip
from npusim.errors import ConfigError
from npusim.program import discover
from npusim.program.discover import find_program, plugged_programs, shipped_programs

ONE = """
from npusim import program

@program
def one(k, *, n: int = {n}):
    \"\"\"The first sentence. The second,
    which goes on.
    \"\"\"
"""
TWO = (
    ONE
    + """
@program(name="other")
def two(k):
    pass
"""
)

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a file into the working directory, a folder of the test."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, text: str | bytes) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    return write


def failure(name: str) -> str:
    """Return the message of a search that fails."""
    with pytest.raises(ConfigError) as caught:
        find_program(name)
    return str(caught.value)


def test_files(write: Write) -> None:
    write("one.py", ONE.format(n=1))
    write("sub/two.py", TWO.format(n=1))
    assert find_program("one.py").name == "one"
    assert find_program("./one.py").name == "one"
    assert find_program("one.py:one").name == "one"
    assert find_program("sub/two.py:other").name == "other"
    assert find_program(str(Path("sub").resolve() / "two.py:one")).name == "one"
    assert failure("sub/two.py") == (
        "sub/two.py: defines several programs; name one as sub/two.py:NAME; programs: one other"
    )
    assert failure("sub/two.py:two") == "sub/two.py: no program 'two'; programs: one other"
    assert failure("sub/two.py:othr") == (
        "sub/two.py: no program 'othr'; did you mean other?; programs: one other"
    )
    assert failure("one.py:") == "one.py: no program ''; programs: one"


def test_summary_is_the_first_sentence(write: Write) -> None:
    write("one.py", ONE.format(n=1))
    assert find_program("one.py").summary == "The first sentence."


def test_a_program_that_is_imported_is_not_one_of_the_file(write: Write) -> None:
    write("one.py", ONE.format(n=1))
    write("user.py", "from .one import one\n")
    assert failure("user.py") == "user.py: defines no program; decorate its function with @program"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("memcpy", "program 'memcpy' is not known; did you mean memcopy?; list them with `npusim programs`"),
        ("zzz", "program 'zzz' is not known; list them with `npusim programs`"),
        ("", "program '' is not known; list them with `npusim programs`"),
        ("one", "program 'one' is not known; did you mean one.py?; list them with `npusim programs`"),
        ("onne.py", "onne.py: no such program file; did you mean one.py?"),
        ("memcopy.py", "memcopy.py: no such program file; did you mean memcopy?"),
        ("programs/scan_u.py", "programs/scan_u.py: no such program file; did you mean scan_u?"),
        ("none.asm", "none.asm: no such program file"),
        ("sub/", "sub: is a folder; name a program file in it"),
        ("./notes.txt", "notes.txt: a program file ends in .py or .asm"),
        ("a\0b.py", "'a\\x00b.py': no such program file"),
        ("x" * 5000 + ".py", "x" * 5000 + ".py: no such program file"),
        ("x" * 5000, f"program '{'x' * 5000}' is not known; list them with `npusim programs`"),
    ],
)
def test_names_that_mean_nothing(write: Write, name: str, message: str) -> None:
    write("one.py", ONE.format(n=1))
    write("sub/two.py", ONE.format(n=1))
    write("notes.txt", "no program")
    assert failure(name) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ndef f(:\n", "2: SyntaxError: invalid syntax"),
        ("if True:\npass\n", "2: IndentationError: expected an indented block"),
        (b"x = 1\n\0", "1: SyntaxError: source code "),
        (b"x = '\xff'\n", "1: SyntaxError: (unicode error) 'utf-8' codec can't decode byte 0xff"),
        (
            "\n\nimport nothing_such\n",
            "3: cannot be loaded: ModuleNotFoundError: No module named 'nothing_such'",
        ),
        ("def f():\n    return 1 / 0\n\nf()\n", "2: cannot be loaded: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit('bye')\n", "2: cannot be loaded: SystemExit: bye"),
        ("raise ValueError('two\\nlines')", "1: cannot be loaded: ValueError: two lines"),
        ("raise KeyError", "1: cannot be loaded: KeyError"),
        (
            "from npusim import program\n@program\ndef f(k, n=1): pass\n",
            "2: cannot be loaded: TypeError: f: parameter n must be keyword-only and have a default",
        ),
    ],
)
def test_files_that_do_not_load(write: Write, text: str | bytes, message: str) -> None:
    write("bad.py", text)
    said = failure("bad.py")
    python_words = "Error: " in message and "cannot" not in message  # they differ between versions
    assert said.startswith(f"bad.py:{message}") if python_words else said == f"bad.py:{message}"
    assert "\n" not in said
    assert failure("bad.py") == said


def test_a_broken_neighbour_is_named(write: Write) -> None:
    write("good.py", "from .helper import N\n" + ONE.format(n=1))
    write("helper.py", "\nN = (\n")
    assert failure("good.py") == "helper.py:2: SyntaxError: '(' was never closed"
    write("helper.py", "\nN = {}['x']\n")
    assert failure("good.py") == "helper.py:2: cannot be loaded: KeyError: 'x'"
    write("helper.py", "N = 1\n")
    assert find_program("good.py").name == "one"


def default(name: str) -> object:
    """Return the default of parameter n."""
    return find_program(name).parameters()["n"][1]


def test_a_changed_file_is_loaded_again(write: Write) -> None:
    write("one.py", ONE.format(n=1))
    first = find_program("one.py")
    assert find_program("one.py") is first
    write("one.py", ONE.format(n=2))
    assert default("one.py") == 2
    write("one.py", "broken(")
    assert failure("one.py") == "one.py:1: SyntaxError: '(' was never closed"
    write("one.py", ONE.format(n=3))
    assert default("one.py") == 3


def test_a_changed_neighbour_is_loaded_again(write: Write) -> None:
    write("one.py", "from .numbers_of_mine import N\n" + ONE.format(n="N"))
    write("numbers_of_mine.py", "N = 1\n")
    assert default("one.py") == 1
    write("numbers_of_mine.py", "N = 2\n")
    assert default("one.py") == 2
    assert not list(Path().rglob("*.pyc"))


def test_files_of_one_name_in_two_folders_are_two(write: Write) -> None:
    write("a/one.py", ONE.format(n=1))
    write("b/one.py", ONE.format(n=2))
    assert (default("a/one.py"), default("b/one.py"), default("a/one.py")) == (1, 2, 1)


def test_assembly_files(write: Write) -> None:
    write("p.asm", ".schema npusim.asm/1\n.program idle\n.launch go vector 1\n.core core0.vec0\n")
    maker = find_program("p.asm")
    assert maker.name == "idle"
    assert maker.build(load_chip("toy")).source == "p.asm"
    write("q.asm", ".schema npusim.asm/1\n.launch go victor 1\n")
    assert failure("q.asm") == "q.asm:2: launch kind 'victor' is not known; did you mean vector?"
    write("r.asm", b".schema \xff")
    assert failure("r.asm") == "r.asm: is no text: byte 8 is not UTF-8"


def test_shipped_programs_are_found_by_name() -> None:
    known = shipped_programs()
    assert {"memcopy", "scan_u", "scan_ul1", "cumsum_vec"} <= set(known)
    for name, maker in known.items():
        assert find_program(name).name == name == maker.name
        assert maker.summary.endswith("."), name


def test_shipped_names_are_unique() -> None:
    modules: dict[str, list[str]] = {}
    shipped_programs()
    for module in list(sys.modules.values()):
        if getattr(module, "__package__", "") and str(module.__package__).startswith("npusim_programs_"):
            for value in vars(module).values():
                if isinstance(value, discover.ProgramMaker) and value.function.__module__ == module.__name__:
                    folder = Path(str(module.__file__)).parent
                    if folder == Path(str(discover.shipped("programs"))):
                        modules.setdefault(value.name, []).append(module.__name__)
    assert modules
    assert all(len(set(found)) == 1 for found in modules.values()), modules


def test_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        "plug": EntryPoint("plug", "npusim.program.discover:PLUG", discover.GROUP),
        "number": EntryPoint("number", "os:sep", discover.GROUP),
        "broken": EntryPoint("broken", "nothing_of_this_name:x", discover.GROUP),
    }
    there = dict(points)
    monkeypatch.setattr(discover, "entry_points", lambda group: list(there.values()))
    monkeypatch.setattr(discover, "PLUG", shipped_programs()["memcopy"], raising=False)
    assert find_program("plug").name == "memcopy"
    assert failure("plugg") == (
        "program 'plugg' is not known; did you mean plug?; list them with `npusim programs`"
    )
    assert failure("number") == (
        "entry point number of npusim.programs: must be a program made by @program, not str"
    )
    assert failure("broken") == (
        "entry point broken of npusim.programs: cannot be loaded: ModuleNotFoundError: No module named "
        "'nothing_of_this_name'"
    )
    del there["number"], there["broken"]
    assert list(plugged_programs()) == ["plug"]
