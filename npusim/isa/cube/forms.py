"""Cube instructions as a program thinks of them: matrices and extents. Each function returns one."""

from __future__ import annotations

from npusim.isa.cube.fixpipe import Fixpipe
from npusim.isa.cube.layout import ROWS
from npusim.isa.cube.load_data import LoadData3D
from npusim.isa.cube.mmad import Mmad
from npusim.isa.operand import Operand
from npusim.units import align_up


def load_a(
    dst: Operand,
    src: Operand,
    m: int,
    k: int,
    *,
    height: int | None = None,
    transpose: bool = False,
) -> LoadData3D:
    """Load the left operand (m, k) from L1 into L0A.

    L1 holds it as m x k in NZ, or as k x m with `transpose` (16-bit types). `height` is the number of rows of
    a column of fractals in L1 (default: the rows rounded up to 16).
    """
    rows, columns = (k, m) if transpose else (m, k)
    height = align_up(rows, ROWS) if height is None else height
    return LoadData3D(dst=dst, src=src, m=rows, k=columns, rows=height, transpose=transpose)


def load_b(
    dst: Operand, src: Operand, k: int, n: int, *, height: int | None = None, transpose: bool = True
) -> LoadData3D:
    """Load the right operand (k, n) from L1 into L0B.

    L1 holds it as k x n in NZ, which takes the transposing load of 16-bit types, or as n x k with
    `transpose=False`: the order of the fractals in L0B is that of the transposed matrix. `height` is the
    number of rows of a column of fractals in L1 (default: the rows rounded up to 16).
    """
    rows, columns = (k, n) if transpose else (n, k)
    height = align_up(rows, ROWS) if height is None else height
    return LoadData3D(dst=dst, src=src, m=rows, k=columns, rows=height, transpose=transpose)


def mmad(
    acc: Operand,
    a: Operand,
    b: Operand,
    m: int,
    k: int,
    n: int,
    *,
    init: bool = False,
    bias: Operand | None = None,
) -> Mmad:
    """Multiply operands that `load_a` and `load_b` laid out in fractals, whatever m: GEMV mode is off."""
    return Mmad(dst=acc, a=a, b=b, m=m, k=k, n=n, init=init, bias=bias, disable_gemv=m == 1)


def store_nd(
    dst: Operand,
    src: Operand,
    m: int,
    n: int,
    *,
    pitch: int | None = None,
    height: int | None = None,
    relu: bool = False,
    scale: Operand | None = None,
) -> Fixpipe:
    """Store an m x n result from L0C to GM row by row, as the element type of `dst`.

    `pitch` is the distance of rows in GM in elements (default: dense), `height` the rows of a column of
    fractals in L0C (default: m rounded up to 16, as Mmad leaves it).
    """
    stride = align_up(m, ROWS) if height is None else height
    pitch = n if pitch is None else pitch
    return Fixpipe(dst=dst, src=src, m=m, n=n, src_stride=stride, dst_stride=pitch, relu=relu, scale=scale)


def store_nz(
    dst: Operand,
    src: Operand,
    m: int,
    n: int,
    *,
    dst_height: int | None = None,
    height: int | None = None,
    relu: bool = False,
    scale: Operand | None = None,
) -> Fixpipe:
    """Move an m x n result from L0C to L1 as the element type of `dst` (8 or 16 bits), ready to be an
    operand.

    `dst_height` and `height` are the rows of a column of fractals in L1 and in L0C (default: m rounded up to
    16).
    """
    stride = align_up(m, ROWS)
    return Fixpipe(
        dst=dst,
        src=src,
        m=m,
        n=n,
        src_stride=stride if height is None else height,
        dst_stride=stride if dst_height is None else dst_height,
        nd=False,
        relu=relu,
        scale=scale,
    )
