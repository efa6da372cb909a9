"""The cube, what feeds it and what drains it."""

from npusim.isa.cube.coupled import DataCopyEnhanced, DataCopyNz2Nd
from npusim.isa.cube.fixpipe import Fixpipe
from npusim.isa.cube.layout import Order
from npusim.isa.cube.load_data import LoadData2D, LoadData3D
from npusim.isa.cube.load_transpose import LoadDataWithTranspose
from npusim.isa.cube.mmad import Mmad

__all__ = [
    "DataCopyEnhanced",
    "DataCopyNz2Nd",
    "Fixpipe",
    "LoadData2D",
    "LoadData3D",
    "LoadDataWithTranspose",
    "Mmad",
    "Order",
]
