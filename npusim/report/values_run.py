"""The functional side of a run: memory, checks and outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from npusim.check.hazards import Watch
from npusim.config.chip import Chip
from npusim.errors import HazardError
from npusim.isa.instruction import Array
from npusim.isa.numerics.profile import NumericsProfile
from npusim.machine.functional import FunctionalMachine, Probe
from npusim.machine.memory import Segment
from npusim.machine.resolve import Resolved
from npusim.program.core import Launch
from npusim.program.program import Program

Progress = Callable[[str, int], None]
"""Called now and then with what is being done and the number of instructions done."""


class FunctionalRun:
    """Global memory with the inputs of a program, and the machine that runs its launches on it."""

    def __init__(
        self,
        program: Program,
        chip: Chip,
        profile: NumericsProfile,
        arrays: Mapping[str, Array],
        check: bool,
        say: Progress,
        probe: Probe | None = None,
    ) -> None:
        self._program = program
        self._segments = []
        for spec in program.segments:
            segment = Segment(spec.name, spec.dtype, spec.shape, np.zeros(spec.nbytes, np.uint8))
            if spec.name in arrays:
                segment.fill(arrays[spec.name])
            self._segments.append(segment)
        self._watch = Watch(chip, program.segments, list(arrays)) if check else None
        self._machine = FunctionalMachine(
            chip,
            profile,
            self._segments,
            watch=self._watch,
            progress=lambda n: say("values", n),
            probe=probe,
        )

    def run(self, launch: Launch) -> list[Resolved]:
        """Run one launch."""
        return self._machine.run(launch)

    def outputs(self) -> dict[str, Array]:
        """Return the outputs.

        Raises `HazardError` where a part of one was never written.
        """
        found = {}
        for index, (spec, segment) in enumerate(zip(self._program.segments, self._segments, strict=True)):
            if spec.role not in ("output", "inout"):
                continue
            if self._watch is not None:
                gap = self._watch.never_written(index)
                if gap is not None:
                    raise HazardError(
                        f"{self._program.name}: bytes {gap[0]:,} to {gap[1]:,} of output {spec.name} are "
                        f"never written; let a stream store them, or make the output smaller"
                    )
            found[spec.name] = segment.array()
        return found
