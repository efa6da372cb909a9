"""Copies in the form a program thinks in: tiles, rows and pitches. Each function returns one instruction."""

from __future__ import annotations

from npusim.isa.dma.data_copy import DataCopy
from npusim.isa.dma.movement import UB
from npusim.isa.dma.nd2nz import DataCopyNd2Nz
from npusim.isa.dma.pad import DataCopyPad
from npusim.isa.operand import Operand, Tile
from npusim.units import BLOCK_BYTES, align_up


def copy_in(
    dst: Tile, src: Operand, *, pitch: int | None = None, l2_bypass: bool = False
) -> DataCopy | DataCopyPad:
    """Load a tile of UB or L1 from GM: as one run, or row by row from rows that lie `pitch` elements apart.

    Rows that are no multiple of 32 bytes need DataCopyPad, which exists for UB only; each row then starts at
    a block boundary of UB, and the rest of its last block is filled.
    """
    rows, nbytes = _rows(dst, pitch)
    gap = 0 if pitch is None else dst.dtype.bytes_of(pitch) - nbytes
    if _whole(nbytes, gap) or dst.space is not UB:
        blocks = nbytes // BLOCK_BYTES if nbytes % BLOCK_BYTES == 0 else 0
        return DataCopy(
            dst=dst,
            src=src,
            block_count=rows,
            block_len=blocks,
            src_gap=gap // BLOCK_BYTES,
            l2_bypass=l2_bypass,
        )
    return DataCopyPad(dst=dst, src=src, block_count=rows, block_len=nbytes, src_gap=gap, l2_bypass=l2_bypass)


def copy_out(
    dst: Operand, src: Tile, *, pitch: int | None = None, l2_bypass: bool = False
) -> DataCopy | DataCopyPad:
    """Store a tile of UB to GM: as one run, or row by row into rows that lie `pitch` elements apart.

    Rows that are no multiple of 32 bytes are stored by DataCopyPad, which expects each to start at a block
    boundary of UB and writes exactly its bytes.
    """
    rows, nbytes = _rows(src, pitch)
    gap = 0 if pitch is None else src.dtype.bytes_of(pitch) - nbytes
    if _whole(nbytes, gap):
        blocks = nbytes // BLOCK_BYTES
        return DataCopy(
            dst=dst,
            src=src,
            block_count=rows,
            block_len=blocks,
            dst_gap=gap // BLOCK_BYTES,
            l2_bypass=l2_bypass,
        )
    return DataCopyPad(dst=dst, src=src, block_count=rows, block_len=nbytes, dst_gap=gap, l2_bypass=l2_bypass)


def nd_to_nz(
    dst: Operand,
    src: Operand,
    rows: int,
    columns: int,
    *,
    pitch: int | None = None,
    height: int | None = None,
    l2_bypass: bool = False,
) -> DataCopyNd2Nz:
    """Load a row-major matrix from GM into columns of fractals in L1.

    `pitch` is the distance of its rows in elements (default: dense), `height` the rows of a column of
    fractals in L1 (default: the rows rounded up to 16).
    """
    return DataCopyNd2Nz(
        dst=dst,
        src=src,
        n_value=rows,
        d_value=columns,
        src_d_value=columns if pitch is None else pitch,
        dst_c0_stride=align_up(rows, 16) if height is None else height,
        l2_bypass=l2_bypass,
    )


def _rows(tile: Tile, pitch: int | None) -> tuple[int, int]:
    """Rows to copy, and bytes of one."""
    if pitch is None:
        return 1, tile.nbytes
    columns = tile.shape[-1]
    return tile.size // columns, tile.dtype.bytes_of(columns)


def _whole(nbytes: int, gap: int) -> bool:
    return nbytes % BLOCK_BYTES == 0 and gap % BLOCK_BYTES == 0
