"""The cube and what feeds and drains it: L1 to L0, products, and the fixpipe."""

from npusim.isa.cube.fixpipe import Fixpipe
from npusim.isa.cube.load_data import LoadData2D, LoadData3D
from npusim.isa.cube.mmad import Mmad

__all__ = ["Fixpipe", "LoadData2D", "LoadData3D", "Mmad"]
