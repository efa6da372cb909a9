"""The report of a run, `npusim.report/1`: fields may be added within version 1, never renamed or removed."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from npusim.config.chip import Chip
from npusim.isa.instruction import Array
from npusim.machine.timing.engine import LaunchTiming

MODEL_REVISION = 2
"""Raised whenever a golden cycle count changes, so that results of two timing models are never mixed."""


class Part(BaseModel):
    """Base of the parts of a report."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        defer_build=True,  # schemas are built at first use, to keep the import short
    )


class Values(Part):
    """Outputs against the reference."""

    checked: bool
    """Whether there was a reference and values were computed."""
    ok: bool | None
    """Whether every element is within its tolerance; null where nothing was checked."""
    max_abs_error: float | None
    """Largest error of the elements that were compared; null where it is infinite or there are none."""
    max_ulp: float | None
    """Largest error in units in the last place of the output type."""
    mismatches: int | None
    """Elements outside their tolerance."""
    tolerance: float | None
    """Largest tolerance of the elements that were compared; null where there are none."""
    not_compared: int | None = None
    """Elements of which the reference cannot say what they should be: their tolerance is infinite."""


class NotFinite(Part):
    """NaN and infinities of an array."""

    nan: int
    infinite: int


class FirstNotFinite(Part):
    """The first instruction that made NaN or an infinity of finite operands, in the order of the functional
    machine.
    """

    launch: str
    launch_number: int
    """From 0."""
    core: str
    pipe: str
    instruction: str
    number: int
    """Position in the stream of its core, from 0."""
    line: str
    """File and line of the program, or the position again where a stream has no file."""
    space: str
    """Memory that it wrote to."""
    nan: int
    """NaN among what it wrote."""
    infinite: int
    cycle: int | None
    """When it starts, in cycles from the first instruction of the run on, as in traces; null where nothing is
    timed.
    """


class NotFinitePart(Part):
    """NaN and infinities in outputs, and where they came from."""

    outputs: dict[str, NotFinite]
    """Outputs that hold any."""
    inputs: dict[str, NotFinite]
    """Inputs and constants that held any before the first launch; then no instruction is looked for."""
    first: FirstNotFinite | None
    """Null where inputs held some, or where no instruction made one of finite operands."""


class LaunchPart(Part):
    """One launch."""

    name: str
    cycles: int
    cores: int
    time_us: float | None = None
    """Device time with the start of the launch; those of all launches add up to the report's. Null in reports
    that were written before there was this field, as is the share.
    """
    share: float | None = None
    """Part of the device time of all launches."""


class PipePart(Part):
    """Cycles of one pipe over all launches: work + waits by cause + tail = total."""

    instructions: int
    work: int
    flag: int
    cross_core: int
    barrier: int
    link: int
    issue: int
    queue: int
    tail: int
    """After its last instruction, until the launch ends."""


class GmPart(Part):
    """Traffic with global memory."""

    read_bytes: int
    write_bytes: int
    useful_bytes: int
    """Every input once and every output once."""
    hbm_read_bytes: int
    hbm_write_bytes: int
    l2_hit_rate: float
    """Share of the bytes moved by the cores that L2 took without main memory."""
    achieved_gb_per_s: float
    """Bytes moved by the cores over device time."""
    useful_gb_per_s: float
    """Useful bytes over device time."""
    utilization: float
    """Bytes moved by main memory over what its nominal rate allows in the device time."""


class CubePart(Part):
    """The cube units."""

    macs: int
    utilization: float
    """Share of the cycles of the cores taking part in which pipe M works."""


class VectorPart(Part):
    """The vector units."""

    element_ops: int
    utilization: float
    """Share of the cycles of the cores taking part in which pipe V works."""


class BoundsPart(Part):
    """Lower bounds from the same costs, without simulation."""

    compute_cycles: int
    """Busiest pipe."""
    hbm_cycles: int
    """Traffic over the sustained rate of main memory."""
    l2_cycles: int
    """Traffic over the rate of L2."""
    flag_only_cycles: int
    """Longest chain through issue, queues, pipes and flags with infinitely fast links."""
    binding: str
    """The largest of them."""


class ConfidencePart(Part):
    """Share of the work priced with numbers of each confidence; the worst number of a cost counts."""

    H: float
    M: float
    L: float


class Report(Part):
    """What a run computed, cost and waited for."""

    schema_id: Literal["npusim.report/1"] = Field("npusim.report/1", alias="schema")
    run_id: str
    """Hash of everything that can change a result."""
    model_revision: int
    program: str
    chip: str
    clock_mhz: int
    """Clock of the cores, in which all cycles are counted."""
    params: dict[str, Any]
    seed: int
    numerics: str
    l2: str
    """State of L2 at the start: cold, warm or dirty."""
    values: Values
    not_finite: NotFinitePart | None = None
    """Null where every output is finite, or nothing was computed."""
    total_cycles: int
    time_us: float
    """Device time: the cycles and the start of every launch."""
    launch_overhead_us: float
    """The part of `time_us` that starts launches."""
    host_overhead_us: float
    """Host time of the launches, not in `time_us`."""
    launches: list[LaunchPart]
    pipes: dict[str, PipePart]
    gm: GmPart
    cube: CubePart
    vector: VectorPart
    bounds: BoundsPart
    confidence: ConfidencePart

    _outputs: dict[str, Array] = PrivateAttr(default_factory=dict)
    _timings: list[LaunchTiming] = PrivateAttr(default_factory=list)
    _chip: Chip | None = PrivateAttr(default=None)

    @property
    def outputs(self) -> dict[str, Array]:
        """Output arrays by name; empty where only time was simulated. Not part of the JSON."""
        return self._outputs

    @property
    def timings(self) -> list[LaunchTiming]:
        """Clocks, spans and streams of every launch, for traces and plots. Not part of the JSON."""
        return self._timings

    @property
    def chip_used(self) -> Chip | None:
        """The chip with all its numbers; None in a report that was read back. Not part of the JSON."""
        return self._chip

    def to_json(self) -> str:
        """Return the report as JSON; the same run gives the same bytes."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"
