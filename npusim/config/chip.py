"""The hardware description: what a chip is, in numbers, and how each number is known.

A chip says what the hardware does, never what a program chooses. Every numeric field carries its unit in its
name and an entry in `sources`. Rates of the memory system are in bytes per core cycle, latencies that do not
scale with the core clock in nanoseconds.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from npusim.config.fields import CostClass, CubeType, Cycles, Nanoseconds, Rate, VectorType
from npusim.units import KIB, gb_per_s_to_bytes_per_cycle, ns_to_cycles

Confidence = Literal["H", "M", "L"]


class Section(BaseModel):
    """Base of every part of a chip: unknown keys, wrong types and infinities are errors, values are fixed."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        defer_build=True,  # schemas are built at first use, to keep the import short
    )


class Source(Section):
    """Where a number comes from and how far it can be trusted."""

    source: str = Field(alias="from", min_length=1)
    """Document, measurement or derivation."""
    confidence: Confidence
    """How far to trust it.

    H: vendor document or consistent with a vendor measurement; M: one measurement or a fit; L: placeholder or
    inference.
    """


class Cores(Section):
    """How many cores there are and how cube and vector units share them."""

    arrangement: Literal["split", "coupled"]
    """`split`: a cube core (AIC) with its own vector cores (AIV); `coupled`: one core holds both units."""
    cube: PositiveInt
    """Cube cores of the chip; on a coupled chip, the cores."""
    vector_per_cube: Annotated[int, Field(ge=1, le=2)]
    """Vector cores that belong to one cube core; 1 on a coupled chip."""

    @model_validator(mode="after")
    def _one_vector_unit(self) -> Cores:
        if self.arrangement == "coupled" and self.vector_per_cube != 1:
            raise ValueError(f"a coupled chip has 1 vector unit per core, got {self.vector_per_cube}")
        return self


class Cube(Section):
    """The matrix unit."""

    rates: dict[CubeType, Rate]
    """Multiply-accumulates per cycle as (m, n, k), by operand type; an absent type is not supported."""
    head_streamed_cycles: Cycles
    """Cycles added to a Mmad that follows another without a gap."""
    head_isolated_cycles: Cycles
    """Cycles from the start of a lone Mmad to its result, beyond its steps."""
    interlock_fractals: Cycles
    """Result fractals (16x16) from which on a Mmad may accumulate into the tile of the one before without a
    barrier."""
    l0a_layout: Literal["ZZ", "NZ"]
    """Order of the fractals in L0A."""


class Banks(Section):
    """Bank geometry of the unified buffer; a block of 32 bytes lives in one group."""

    groups: PositiveInt
    """Bank groups, selected by the address bits right above the block offset."""
    bank_low_bit: PositiveInt
    """Lowest address bit that selects the bank inside a group."""
    banks: PositiveInt
    """Banks inside a group."""
    ports: PositiveInt
    """Accesses of one kind (read or write) that a group serves in a cycle."""
    write_delay_cycles: Cycles
    """Cycles from the last read of a repeat to the write of its result."""


class Vector(Section):
    """The vector unit: memory to memory, 256 bytes a repeat."""

    head_cycles: Cycles
    """Cycles of every vector instruction before its first repeat; heads of successive ones do not overlap."""
    cycles_per_repeat: dict[CostClass, dict[VectorType, PositiveFloat]]
    """Cycles per repeat by cost class of the instruction, then by element type or `default`.

    A class that is absent is not supported. A repeat is 256 bytes: of the wider type for a cast, of the
    result for a brcb (8 blocks), of the records for a sort or a merge (32 of them). A repeat of a transpose
    is 16 rows of 32 bytes.
    """
    banks: Banks


class Scalar(Section):
    """The scalar unit, which issues everything in program order."""

    issue_cycles: Cycles
    """Cycles to put one instruction into the queue of a pipe."""
    state_cycles: Cycles
    """Cycles to set a mask, an atomic mode or another control state."""
    alu_cycles: Cycles
    """Cycles of one scalar operation on registers."""
    ub_read_cycles: Cycles
    """Cycles until a value read from the unified buffer is in a register."""
    ub_write_cycles: Cycles
    """Cycles of a scalar store to the unified buffer."""
    gm_read_ns: Nanoseconds
    """Time of a scalar read of global memory that misses the data cache."""
    gm_clean_ns: Nanoseconds
    """Time to clean or invalidate one line of the data cache."""
    dcache_lines: PositiveInt
    """Lines of the data cache."""
    dcache_line_bytes: PositiveInt
    """Bytes of a line of the data cache."""


class Buffers(Section):
    """Sizes of the on-chip memories of one core."""

    l1_kib: PositiveInt
    """Buffer between global memory and the L0 buffers."""
    l0a_kib: PositiveInt
    """Left operands of the cube."""
    l0b_kib: PositiveInt
    """Right operands of the cube."""
    l0c_kib: PositiveInt
    """Results of the cube."""
    ub_kib: PositiveInt
    """Usable unified buffer of one vector core."""
    bt_bytes: Annotated[int, Field(ge=0)]
    """Bias table; 0 where the chip has none."""
    fb_bytes: Annotated[int, Field(ge=0)]
    """Fixpipe parameter buffer; 0 where the chip has none."""


class Queues(Section):
    """Instructions that fit into the queue of a pipe before the scalar unit has to wait."""

    v: PositiveInt
    m: PositiveInt
    mte1: PositiveInt
    mte2: PositiveInt
    mte3: PositiveInt
    fix: Annotated[int, Field(ge=0)]
    """0 on a coupled chip, which has no fixpipe."""


class Path(Section):
    """A path inside a core.

    An instruction occupies its pipe for issue + size / rate; its result is there a latency later.
    """

    bytes_per_cycle: PositiveFloat | None = None
    """Rate of the data."""
    elements_per_cycle: PositiveFloat | None = None
    """Instead of bytes where the unit counts elements (the fixpipe)."""
    issue_cycles: Cycles
    """Cycles before the first byte moves, paid by every instruction."""
    latency_cycles: Cycles
    """Cycles from the last byte sent to the last byte usable."""

    @model_validator(mode="after")
    def _one_rate(self) -> Path:
        if (self.bytes_per_cycle is None) == (self.elements_per_cycle is None):
            raise ValueError("give exactly one of bytes_per_cycle and elements_per_cycle")
        return self


class Paths(Section):
    """The paths inside a core; one that is absent does not exist on the chip."""

    l1_to_l0a: Path
    l1_to_l0b: Path
    l1_to_bt: Path | None = None
    l1_to_fb: Path | None = None
    fill_l1: Path
    """Constant fill of L1."""
    l0c_to_l1: Path | None = None
    l0c_to_ub: Path | None = None
    ub_to_l1: Path | None = None
    l1_to_ub: Path | None = None


class Port(Section):
    """A core's path to or from global memory in one direction."""

    bytes_per_cycle: PositiveFloat | None = None
    """Rate of the data."""
    elements_per_cycle: PositiveFloat | None = None
    """Instead of bytes where the unit counts elements (L0C to global memory)."""
    issue_cycles: Cycles
    """Cycles between the starts of two transfers; they overlap with the data of the transfer before."""
    outstanding: PositiveInt
    """Transfers under way at once; the next one waits for the oldest to complete."""

    @model_validator(mode="after")
    def _one_rate(self) -> Port:
        if (self.bytes_per_cycle is None) == (self.elements_per_cycle is None):
            raise ValueError("give exactly one of bytes_per_cycle and elements_per_cycle")
        return self


class Ports(Section):
    """The ports of one core to global memory."""

    gm_to_ub: Port
    gm_to_l1: Port
    ub_to_gm: Port
    l0c_to_gm: Port | None = None
    """Absent on coupled chips, whose results leave through the unified buffer."""


class L2(Section):
    """The cache that all cores share: write-back, write-allocate without fetch, least recently used goes."""

    size_mib: PositiveInt
    """Capacity."""
    read_bytes_per_cycle: PositiveFloat
    """Reads of all cores together."""
    write_bytes_per_cycle: PositiveFloat
    """Writes of all cores together."""
    read_latency_ns: Nanoseconds
    """From request to data for a hit."""
    write_latency_ns: Nanoseconds
    """From the last byte sent to the flag behind a store."""
    granule_bytes: PositiveInt
    """Unit of replacement in the model."""
    request_bytes: PositiveInt
    """Range of addresses that a request stays inside; a shorter one takes its port as long as a whole one."""
    sector_bytes: PositiveInt
    """A row that starts and ends at multiples of this moves its own bytes through L2 and main memory, any
    other one all request ranges that it touches."""
    same_range_requests_per_cycle: PositiveFloat | None = None
    """Requests that transfers under way over the same ranges get served between them; None for no limit."""
    writeback_buffer_kib: Annotated[int, Field(ge=0)]
    """Evicted bytes under way that do not delay the access that evicted them."""


class Hbm(Section):
    """The main memory behind L2; reads, writes and evictions share its rate."""

    size_gib: PositiveInt
    """Capacity."""
    nominal_gb_per_s: PositiveFloat
    """Data-sheet rate; utilisation is counted against it."""
    sustained_fraction: Annotated[float, Field(gt=0, le=1)]
    """Share of the nominal rate that traffic reaches."""
    read_latency_ns: Nanoseconds
    """From request to data for an access that misses L2."""


class Flags(Section):
    """Synchronisation between pipes and between cores."""

    ids: PositiveInt
    """Flags per ordered pair of pipes."""
    latency_cycles: Cycles
    """From a set to the wait that sees it."""
    cross_ids: Annotated[int, Field(ge=0)]
    """Flags between cores; 0 where the chip has none."""
    cross_limit: Annotated[int, Field(ge=0)]
    """Sets of one cross-core flag that may be outstanding."""
    group_latency_ns: Nanoseconds
    """From a set to a wait inside a group of one cube core and its vector cores."""
    all_latency_ns: Nanoseconds
    """From the last set to a wait between all cores of a kind."""


class Launch(Section):
    """Time to start streams on the device and from the host; reported apart from the cycles of a program."""

    device_us: Annotated[float, Field(ge=0)]
    """Start of one AI core: a cube core with its vector cores, any of them, or a coupled core."""
    device_per_ai_core_us: Annotated[float, Field(ge=0)]
    """Added for every further AI core."""
    host_us: Annotated[float, Field(ge=0)]
    """Host time per launch."""


class Chip(Section):
    """A hardware description, resolved and validated; load one with `npusim.load_chip`."""

    schema_id: Literal["npusim.chip/1"] = Field(alias="schema")
    name: str = Field(min_length=1)
    """How the chip is called; the name of its file without `.yaml`."""
    description: str = Field(min_length=1)
    """One line: which device this is."""
    clock_mhz: PositiveInt
    """Clock of the cores; all cycles are cycles of this clock."""
    numerics: str
    """Name of the numerics profile, see `npusim.isa.numerics`."""
    cores: Cores
    cube: Cube
    vector: Vector
    scalar: Scalar
    buffers: Buffers
    queues: Queues
    paths: Paths
    ports: Ports
    l2: L2
    hbm: Hbm
    flags: Flags
    launch: Launch
    sources: dict[str, Source]
    """Source of every number, by dotted path.

    A path to a section covers all numbers in it that have no entry of their own. A loaded chip has one entry
    per number; a list of numbers counts as one.
    """

    @property
    def coupled(self) -> bool:
        """Whether one core holds both the cube and the vector unit."""
        return self.cores.arrangement == "coupled"

    @property
    def hbm_bytes_per_cycle(self) -> float:
        """Sustained bytes per core cycle of the main memory."""
        rate = self.hbm.nominal_gb_per_s * self.hbm.sustained_fraction
        return gb_per_s_to_bytes_per_cycle(rate, self.clock_mhz)

    def cycles(self, ns: float) -> int:
        """Convert nanoseconds to whole core cycles, rounded up."""
        return ns_to_cycles(ns, self.clock_mhz)

    def capacity_bytes(self, space: str) -> int:
        """Bytes of one on-chip memory of a core: `l1`, `l0a`, `l0b`, `l0c`, `ub`, `bt` or `fb`."""
        b = self.buffers
        sizes = {"l1": b.l1_kib, "l0a": b.l0a_kib, "l0b": b.l0b_kib, "l0c": b.l0c_kib, "ub": b.ub_kib}
        if space in sizes:
            return sizes[space] * KIB
        return {"bt": b.bt_bytes, "fb": b.fb_bytes}[space]

    def confidence(self, path: str) -> Confidence:
        """Confidence of the number at a dotted path: its own entry, else the nearest enclosing one.

        Raises `KeyError` where no entry covers the path; the loader refuses such chips.
        """
        above = path.partition("[")[0]
        while above:
            if above in self.sources:
                return self.sources[above].confidence
            above = above.rpartition(".")[0]
        raise KeyError(path)

    def numbers(self) -> dict[str, float]:
        """Every hardware number by dotted path, in the order of the file."""
        return dict(_numbers(self.model_dump(exclude={"sources"}), ""))

    def identity(self) -> str:
        """Canonical JSON of what can change a result: the numbers, not their sources nor the description."""
        data = self.model_dump(mode="json", exclude={"sources", "description", "name"}, by_alias=True)
        return json.dumps(data, sort_keys=True, separators=(",", ":"))

    def digest(self) -> str:
        """First 12 hex digits of the SHA-256 of `identity()`."""
        return hashlib.sha256(self.identity().encode()).hexdigest()[:12]


def _numbers(node: Any, path: str) -> list[tuple[str, float]]:
    if isinstance(node, dict):
        return [
            leaf for key, value in node.items() for leaf in _numbers(value, f"{path}.{key}" if path else key)
        ]
    if isinstance(node, tuple | list):
        return [leaf for i, value in enumerate(node) for leaf in _numbers(value, f"{path}[{i}]")]
    if isinstance(node, int | float) and not isinstance(node, bool):
        return [(path, node)]
    return []
