"""Data movement: global memory to and from L1 and the unified buffer, and inside a core."""

from npusim.isa.dma.data_copy import DataCopy
from npusim.isa.dma.fill import Fill
from npusim.isa.dma.nd2nz import DataCopyNd2Nz
from npusim.isa.dma.pad import DataCopyPad

__all__ = ["DataCopy", "DataCopyNd2Nz", "DataCopyPad", "Fill"]
