"""The public names: all of them, at first use, and few modules before."""

from __future__ import annotations

import subprocess
import sys

import pytest

import npusim


def test_every_public_name_is_there():
    assert len(set(npusim.__all__)) == len(npusim.__all__)
    for name in npusim.__all__:
        assert getattr(npusim, name) is not None
        assert name in dir(npusim)
    assert npusim.sweep.__module__ == "npusim.sweeps.run"
    assert npusim.isa.Mmad.__name__ == "Mmad"


def test_only_public_names_are_listed():
    import npusim.sweeps.run  # a module that was imported is an attribute, and yet no public name

    assert [name for name in dir(npusim) if not name.startswith("__")] == sorted(npusim.__all__)
    assert "__version__" in dir(npusim)


def test_a_name_that_does_not_exist():
    with pytest.raises(AttributeError, match=r"^module 'npusim' has no attribute 'simulat'$"):
        npusim.simulat  # noqa: B018


@pytest.mark.parametrize(
    "first",
    ["", "from npusim import Builder, Kernel", "import npusim.program.kernel", "from npusim import *"],
)
def test_no_package_takes_the_place_of_a_function(first):
    code = f"{first}\nfrom npusim import *\nassert callable(program)\nfrom npusim import program, simulate\n"
    code += "import npusim\nfor f in (program, simulate, npusim.program, npusim.search): assert callable(f)"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_an_import_alone_loads_no_library():
    code = "import npusim, sys; print(*{m.partition('.')[0] for m in sys.modules} & {'numpy', 'simpy'})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "\n"
