"""Where the time of every pipe went, as stacked bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from npusim.errors import ConfigError, did_you_mean
from npusim.plots.style import BELOW, CAUSES
from npusim.report.model import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_KINDS = {"cube": "cube cores", "vec": "vector cores", "ai": "cores"}


def pipe_shares(report: Report, cores: Sequence[str] = ()) -> dict[str, dict[str, float]]:
    """Return the percent of the run by cause, the tail included, of every pipe with an instruction.

    Without `cores`, a run on one core of each kind at most is shown as it is; of more, the mean over the
    cores of a kind. `cores` names single ones, as `core0.vec1`. Raises `ConfigError` for one that took no
    part, and for a run without an instruction.
    """
    lanes = report.pipes
    if not any(part.instructions for part in lanes.values()):
        raise ConfigError(f"plot: the run of {report.program} has no pipe with an instruction to draw")
    known = list(dict.fromkeys(name.rpartition(".")[0] for name in lanes))
    for core in cores:
        if core not in known:
            raise ConfigError(f"{core}: no such core in this run{did_you_mean(core, known)}")
    kinds = {core: core.rpartition(".")[2].rstrip("0123456789") for core in known}
    counts = {kind: sum(k == kind for k in kinds.values()) for kind in kinds.values()}
    total = report.total_cycles
    sums: dict[str, dict[str, float]] = {}
    used: dict[str, int] = {}
    for name, part in lanes.items():
        core, _, pipe = name.rpartition(".")
        if cores and core not in cores:
            continue
        kind = kinds[core]
        alone = bool(cores) or counts[kind] == 1
        row = name if alone else f"{counts[kind]} {_KINDS.get(kind, kind)} {pipe}"
        share = sums.setdefault(row, dict.fromkeys(CAUSES, 0.0))
        used[row] = used.get(row, 0) + part.instructions
        for cause in CAUSES:
            share[cause] += 100 * getattr(part, cause) / (total or 1) / (1 if alone else counts[kind])
    return {row: share for row, share in sums.items() if used[row]}


def pipes(report: Report, ax: Axes, *, cores: Sequence[str] = ()) -> Axes:
    """Draw for every pipe the percent of the run that it worked, waited by cause, and was done.

    `cores` as in `pipe_shares`.
    """
    shares = pipe_shares(report, cores)
    rows = list(shares)
    left = [0.0] * len(rows)
    for cause, (colour, hatch) in CAUSES.items():
        widths = [shares[row][cause] for row in rows]
        if not any(widths):
            continue
        ax.barh(
            rows,
            widths,
            left=left,
            height=0.72,
            color=colour,
            hatch=hatch,
            edgecolor="white" if not hatch else "0.25",
            linewidth=0.3,
            label=cause.replace("_", " "),
        )
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for y, row in enumerate(rows):
        work = shares[row]["work"]
        if work >= 8:
            ax.text(work / 2, y, f"{work:.0f}", color="white", ha="center", va="center", fontsize=7)
    ax.invert_yaxis()
    ax.set(xlim=(0, 100), xlabel=f"percent of {report.total_cycles:,} cycles")
    ax.tick_params(axis="y", length=0)
    ax.set_title(f"{report.program} on {report.chip}", loc="left")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=BELOW, ncols=4)
    return ax
