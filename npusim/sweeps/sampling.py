"""Which points a search tries next: Optuna's samplers over the positions on the axes."""

from __future__ import annotations

import importlib.util
import itertools
import random
from typing import Any, Literal, get_args

from npusim.errors import ConfigError, did_you_mean
from npusim.sweeps.goals import Goals, Values
from npusim.sweeps.plan import Grid, Point

Sampler = Literal["tpe", "nsga2", "random"]
Position = tuple[int, ...]

_PATIENCE = 20
"""Suggestions in a row that are no new point, after which one is drawn from those that are left."""
_ENUMERATED = 100_000
"""Combinations up to which those that are left are looked through."""


def check_search(trials: int, seed: int, sampler: str, jobs: int) -> None:
    """Raise `ConfigError` for settings of a search that cannot be, and where Optuna is not installed."""
    known = get_args(Sampler)
    if sampler not in known:
        near = did_you_mean(sampler, known) or f"; samplers: {' '.join(known)}"
        raise ConfigError(f"search: no sampler {sampler!r}{near}")
    if trials < 1:
        raise ConfigError(f"search: trials must be 1 or more, not {trials}")
    if jobs < 1:  # the points chosen at a time: no count of cores stands for it, or hosts would differ
        raise ConfigError(f"search: jobs must be 1 or more, not {jobs}")
    if not 0 <= seed < 2**32:
        raise ConfigError(f"search: seed must be 0 to {2**32 - 1:,}, not {seed}")
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError("search needs Optuna; install it with pip install 'npusim[search]'")


class Suggestions:
    """Points of a space as a sampler suggests them; every point once."""

    def __init__(self, grid: Grid, goals: Goals, seed: int, sampler: Sampler) -> None:
        """Begin a study. Raises `ConfigError` where the space has no point at all."""
        import optuna

        makers = {
            "tpe": lambda: optuna.samplers.TPESampler(seed=seed),
            "nsga2": lambda: optuna.samplers.NSGAIISampler(seed=seed),
            "random": lambda: optuna.samplers.RandomSampler(seed=seed),
        }
        self._grid = grid
        before = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            self._study: Any = optuna.create_study(
                directions=["minimize"] * len(goals.texts), sampler=makers[sampler]()
            )
        finally:
            optuna.logging.set_verbosity(before)
        self._fail = optuna.trial.TrialState.FAIL
        groups = [("chip",), *(group for group in grid.together if group != ("chip",))]
        self._axes: dict[str, Any] = {
            " ".join(group): optuna.distributions.IntDistribution(0, size - 1)
            if _ordered(grid, group)
            else optuna.distributions.CategoricalDistribution(list(range(size)))
            for group, size in zip(groups, grid.sizes, strict=True)
        }
        self._random = random.Random(seed)
        self._points: dict[Position, Point | None] = {}
        self._asked: set[Position] = set()
        self._open: dict[str, Any] = {}
        self._values: dict[str, Values | None] = {}
        first = self._left()
        if first is None:
            raise ConfigError(f"search: where and the program leave none of the {grid.size:,} points")
        self.first: Point = first[1]
        """Some point of the space."""

    def ask(self, count: int) -> list[Point]:
        """Return up to so many points that were not asked for before; fewer where no more are left."""
        found: list[Point] = []
        in_vain = 0
        while len(found) < count and len(self._asked) < self._grid.size:
            if in_vain >= _PATIENCE:
                left = self._left()
                if left is None:
                    break
                self._study.enqueue_trial(dict(zip(self._axes, left[0], strict=True)))
            trial = self._study.ask(self._axes)
            at = tuple(trial.params[name] for name in self._axes)
            point = self._point(at)
            if point is None or at in self._asked:
                self._finish(trial, None if point is None else self._values.get(point.key))
                in_vain += 1
                continue
            in_vain = 0
            self._asked.add(at)
            self._open[point.key] = trial
            found.append(point)
        return found

    def tell(self, point: Point, values: Values | None) -> None:
        """Say what a point came to, None where its run is worth nothing."""
        self._values[point.key] = values
        self._finish(self._open.pop(point.key), values)

    def _finish(self, trial: Any, values: Values | None) -> None:
        if values is None:
            self._study.tell(trial, state=self._fail)
        else:
            self._study.tell(trial, list(values))

    def _point(self, at: Position) -> Point | None:
        """Return the point at a position; None where `where`, the program or the chip refuses it."""
        if at not in self._points:
            try:
                self._points[at] = self._grid.point(at)
            except ConfigError:
                self._points[at] = None
        return self._points[at]

    def _left(self) -> tuple[Position, Point] | None:
        """Draw a point that was not asked for; None where there seems to be none."""
        sizes = self._grid.sizes
        for _ in range(1000):
            at = tuple(self._random.randrange(size) for size in sizes)
            point = self._point(at)
            if at not in self._asked and point is not None:
                return at, point
        if self._grid.size <= _ENUMERATED:
            for at in itertools.product(*map(range, sizes)):
                point = self._point(at)
                if at not in self._asked and point is not None:
                    return at, point
        return None


def _ordered(grid: Grid, group: tuple[str, ...]) -> bool:
    """Whether neighbours of an axis are alike: numbers that rise or fall."""
    for axis in group:
        values = [] if axis == "chip" else grid.values(axis)
        if not values or any(isinstance(v, bool) or not isinstance(v, int | float) for v in values):
            return False
        if values not in (sorted(values), sorted(values, reverse=True)):
            return False
    return True
