"""Running a point: the streams are played once and timed on every chip that looks the same to them."""

from __future__ import annotations

import contextlib
import sys
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from npusim.errors import NpusimError
from npusim.isa.numerics.profile import get_profile
from npusim.machine.resolve import Resolved, resolve
from npusim.program.discover import find_program, program_frame
from npusim.program.inputs import make_inputs
from npusim.program.program import Program
from npusim.program.stream import short_path
from npusim.report.model import Report, Values
from npusim.report.simulate import retime
from npusim.report.values import NOT_CHECKED, compare
from npusim.report.values_run import FunctionalRun
from npusim.sweeps.plan import Point
from npusim.sweeps.rows import failed_row, report_row
from npusim.sweeps.watched import ReadNotes

KEPT_INSTRUCTIONS = 1_000_000
"""Instructions whose streams a process keeps to time them again."""


@dataclass(frozen=True, slots=True)
class Played:
    """What a run leaves to be timed on other chips."""

    notes: ReadNotes
    """What the program, its streams and the checks read of their chip."""
    program: Program
    streams: tuple[list[Resolved], ...]
    checked: Values

    @property
    def instructions(self) -> int:
        """Instructions of all streams."""
        return sum(s.count for streams in self.streams for s in streams)


class Player:
    """Runs points and keeps what the last of them played."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], Played] = OrderedDict()
        self.plays = 0
        """Runs that were played and not only timed."""

    def report(self, point: Point) -> Report:
        """Return the report of a point, the same as `npusim.simulate` returns.

        Raises what a run raises.
        """
        played = self._found(point) or self._play(point)
        return retime(
            played.program,
            point.chip,
            played.streams,
            played.checked,
            seed=point.seed,
            numerics=point.numerics,
            l2=point.l2,
        )

    def _found(self, point: Point) -> Played | None:
        streams = point.stream_key
        for key, played in self._kept.items():
            if key[0] == streams and played.notes.match(point.chip):
                self._kept.move_to_end(key)
                return played
        return None

    def _play(self, point: Point) -> Played:
        self.plays += 1
        notes = ReadNotes(point.chip)
        chip = notes.chip
        program = find_program(point.program).build(chip, point.params)
        checked = NOT_CHECKED
        if point.timing_only:
            streams = tuple(resolve(launch, chip) for launch in program.launches)
        else:
            arrays = make_inputs(program, point.seed)
            profile = get_profile(point.numerics or chip.numerics)
            values = FunctionalRun(program, chip, profile, arrays, point.check, lambda what, done: None)
            streams = tuple(values.run(launch) for launch in program.launches)
            checked = compare(program, arrays, values.outputs())
        played = Played(notes, program, streams, checked)
        self._kept[point.stream_key, self.plays] = played
        while len(self._kept) > 1 and sum(p.instructions for p in self._kept.values()) > KEPT_INSTRUCTIONS:
            self._kept.popitem(last=False)
        return played


_PLAYER = Player()
"""The player of this process; a worker runs one point after another."""


def run_point(point: Point, player: Player | None = None) -> dict[str, Any]:
    """Run a point and return its row; whatever goes wrong becomes its `error`.

    What the program prints goes to stderr.
    """
    player = player or _PLAYER
    with contextlib.redirect_stdout(sys.stderr):
        try:
            return report_row(point, player.report(point))
        except (Exception, SystemExit) as error:  # one point that fails must not take the others with it
            return failed_row(point, _words(error))


def _words(error: BaseException) -> str:
    words = " ".join(str(error).split())
    text = words if isinstance(error, NpusimError) else f"{type(error).__name__}: {words}".removesuffix(": ")
    frame = program_frame(error.__traceback__)
    place = f"{short_path(frame[0])}:{frame[1]}: " if frame else ""
    return text if text.startswith(place) or isinstance(error, NpusimError) else f"{place}{text}"
