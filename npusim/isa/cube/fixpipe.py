"""The fixpipe: results leave L0C, converted and reordered on the way."""

from __future__ import annotations

from typing import Annotated, ClassVar

from npusim.config.chip import Chip
from npusim.isa.cube.layout import C0, ROWS, Part, l0c_accesses, l0c_views
from npusim.isa.cube.quantise import conversions, convert, scaled
from npusim.isa.dma.movement import FB, GM, L0C, L1, Movement, path_work, port_work, store_gm, touched
from npusim.isa.dtype import F16, F32, S8, U8, U64
from npusim.isa.instruction import Array, CoreView, Role, Work, instruction
from npusim.isa.operand import Access, Operand, Pipe
from npusim.isa.state import Atomic, State
from npusim.units import align_up


@instruction
class Fixpipe(Movement):
    """Move an m x n result from L0C to GM or L1, convert it, and leave it in ND or NZ.

    Columns of fractals in L0C are `src_stride` rows high. With `nd` (to GM) rows of the result lie
    `dst_stride` elements apart; without, it stays in NZ, and `dst_stride` is the distance between columns of
    fractals in blocks of 32 bytes (the rows of the tile in L1 for 8- and 16-bit types). The types say what is
    converted: f32 to f16 or bf16 (nearest even), f32 or s32 to s8 or u8 and s32 to f16 by a scale, which is
    that of the control state or one word of `scale` (fixpipe buffer) for every column. `relu` replaces
    negative accumulators by zero first. Stores to GM obey the atomic mode.
    Cost: the port of the core to GM, or issue + elements / rate of L0C -> L1, then its latency.
    """

    dst: Annotated[Operand, Role((GM, L1), writes=True)]
    src: Annotated[Operand, Role((L0C,), reads=True)]
    m: int
    n: int
    src_stride: int
    dst_stride: int
    nd: bool = True
    relu: bool = False
    scale: Annotated[Operand, Role((FB,), reads=True)] | None = None

    pipe: ClassVar[Pipe] = Pipe.FIX

    def check_rules(self, chip: Chip, state: State) -> None:
        """Check the path, the types, the limits of the fields, the scale and the atomic mode."""
        self.check_path(chip, "l0c_to_gm" if self.dst.space is GM else "l0c_to_l1")
        src, dst = self.src.dtype, self.dst.dtype
        known = conversions(src)
        if dst not in known:
            names = " ".join(d.short for d in known) or "nothing"
            raise self.error(f"no conversion {src.short} -> {dst.short}; l0c {src.short} becomes {names}")
        if self.dst.space is L1:
            if self.nd:
                raise self.error("a result in l1 is NZ; set nd=False")
            if dst.bits > 16:
                raise self.error(f"results in l1 have 8 or 16 bits, not {dst.short}; convert to f16")
        self.check_range("m", 1, 8192 if self.nd else 65535, "rows")
        self.check_range("n", 1, 4095, "columns")
        self.check_range("src_stride", 1, 65535, "rows")
        self.check_range("dst_stride", 1, 2**32 - 1, "elements" if self.nd else "blocks of 32 bytes")
        merged = 32 if dst.bits == 8 else ROWS
        if not self.nd and self.n % merged:
            raise self.error(
                f"n must be a multiple of {merged} for an NZ result of {dst.short}, not {self.n}"
            )
        if self.scale is not None:
            if not scaled(src, dst):
                raise self.error(f"{src.short} -> {dst.short} takes no scale")
            if self.scale.dtype is not U64:
                raise self.error(f"scale must be u64 words, not {self.scale.dtype.short}")
        elif dst in (S8, U8) and state.quant_signed is not (dst is S8):
            sign = "signed" if state.quant_signed else "unsigned"
            raise self.error(f"the quantisation is set to {sign}, but dst is {dst.short}; set QUANT_SIGNED")
        self.check_disjoint(
            self.writes(state)[0], f"dst_stride {self.dst_stride} makes rows of the result overlap"
        )
        self.check_atomic(self.dst, state)

    def reads(self, state: State) -> tuple[Access, ...]:
        """Return the tile of L0C, the scales, and the destination of an atomic store."""
        found = l0c_accesses(self.src, self.m, self.n, self.src_stride)
        if self.scale is not None:
            found += (touched(self.scale, 0, self.n * 8),)
        if self.dst.space is GM and state.atomic is not Atomic.NONE:
            found += self.writes(state)
        return found

    def writes(self, state: State) -> tuple[Access, ...]:
        """Return the rows of an ND result, or the columns of fractals of an NZ one."""
        size = self.dst.dtype.size
        if self.nd:
            return (touched(self.dst, 0, self.n * size, (self.m, self.dst_stride * size)),)
        width = max(C0, ROWS * size)
        columns = self.n * size // width
        return (touched(self.dst, 0, width, (columns, self.dst_stride * C0), (self.m, width)),)

    def execute(self, core: CoreView, state: State) -> None:
        """Convert and store the columns of fractals, whole ones at once."""
        src, dst = self.src.dtype, self.dst.dtype
        words = None if self.scale is None else core.view(self.scale, (self.n,))
        for p, column in l0c_views(core, self.src, self.m, self.n, self.src_stride):
            scales = None
            if words is not None:
                first = p.first * ROWS
                scales = words[first : first + p.blocks * p.size].reshape(p.blocks, 1, p.size)
            values = convert(column, src, dst, state, scales, relu=self.relu)
            target = self._nd_view(core, p) if self.nd else self._nz_view(core, p)
            values = values.reshape(target.shape)
            if self.dst.space is GM:
                store_gm(target, values, state)
            else:
                target[...] = values

    def _nd_view(self, core: CoreView, p: Part) -> Array:
        size = self.dst.dtype.size
        at = self.dst.offset(p.first * ROWS * size)
        return core.view(at, (p.blocks, self.m, p.size), (ROWS * size, self.dst_stride * size, size))

    def _nz_view(self, core: CoreView, p: Part) -> Array:
        size, column = self.dst.dtype.size, self.dst_stride * C0
        if size == 1:
            return core.view(self.dst, (p.blocks // 2, 2, self.m, ROWS), (column, ROWS, C0, 1))
        return core.view(self.dst, (p.blocks, self.m, ROWS), (column, ROWS * size, size))

    def work(self, chip: Chip, state: State) -> Work:
        """Return the cost of the port or of the path, in columns of whole fractals."""
        elements = self.m * align_up(self.n, ROWS)
        if self.dst.space is GM:
            rows, bits = self.writes(state)[0], self.dst.dtype.bits
            return port_work(chip, "l0c_to_gm", rows, elements, write=True, bits=bits)
        return path_work(chip, "l0c_to_l1", elements * self.dst.dtype.size, elements)

    @classmethod
    def example(cls) -> Fixpipe:
        """Store a 128 x 256 result as halves in a matrix with rows of 512."""
        dst, src = Operand(GM, F16, 0), Operand(L0C, F32, 0)
        return cls(dst=dst, src=src, m=128, n=256, src_stride=128, dst_stride=512)
