"""Reports as text for people: what came out, how long it took, what bounds it and where the cycles went."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping

from npusim.report.checked import CheckReport
from npusim.report.model import FirstNotFinite, NotFinite, NotFinitePart, Report, Values
from npusim.units import grouped

_LABEL = 12
_CAUSES = ("work", "flag", "cross_core", "barrier", "link", "issue", "queue", "tail")
_LAUNCHES = 8
"""Names of launches that are told one by one."""
_FEW_CORES = 3
"""Up to here every core has its own lines; a cube core and its two vector cores are that many."""
_LEAST_WORK = 0.001
"""Share of the cycles from which on a pipe has a line of its own."""
_BOUNDS = {
    "compute": ("compute", "the work of the busiest pipe alone"),
    "hbm": ("HBM", "the traffic at the sustained rate of main memory"),
    "l2": ("L2", "the traffic at the rate of L2"),
    "flag_only": ("flag-only", "the longest chain of issue, pipes and flags, with infinitely fast links,"),
}
"""Title of every bound, and what takes that long."""
_KINDS = {"cube": "cube", "vec": "vector", "ai": "AI"}

_TELLING_ULPS = 1000
"""A count of units in the last place is shown up to here."""


def report_text(report: Report, width: int = 80, *, next_step: str = "") -> str:
    """Return a report as text of at most `width` columns (80 at least).

    `next_step` is a command line to suggest at the end.
    """
    page = _Page(width)
    page.line(f"{report.program} on {report.chip}")
    page.line("")
    page.row("setup", _setup(report.params, report.seed, report.numerics, report.l2))
    page.row("values", values_words(report.values, computed=bool(report.outputs), outputs=report.outputs))
    if report.not_finite is not None:
        page.row("non-finite", not_finite_words(report.not_finite, report.clock_mhz))
    page.row("time", _time(report))
    if len(report.launches) > 1:
        page.row("launches", _launches(report))
    page.row("memory", _memory(report))
    units = _units(report)
    if units:
        page.row("units", units)
    page.row("bound", _bound(report))
    if report.total_cycles:
        _pipes(page, report)
    shares = report.confidence
    if shares.H + shares.M + shares.L:
        page.row(
            "confidence",
            f"{_percent(shares.H)} of the work is priced by documented numbers (H), {_percent(shares.M)} by "
            f"single measurements or fits (M), {_percent(shares.L)} by assumptions (L)",
        )
    if next_step:
        page.row("next", next_step)
    return page.text()


def check_text(report: CheckReport, width: int = 80, *, next_step: str = "") -> str:
    """Return the result of a check as text, like `report_text`."""
    page = _Page(width)
    page.line(f"{report.program} on {report.chip}, checked without timing")
    page.line("")
    page.row("setup", _setup(report.params, report.seed, report.numerics, None))
    page.row("values", values_words(report.values, computed=True, outputs=report.outputs))
    if report.not_finite is not None:
        page.row("non-finite", not_finite_words(report.not_finite, report.clock_mhz))
    page.row("hazards", "none: limits, unwritten bytes, races, flags and waits are all right")
    cores = max((part.cores for part in report.launches), default=0)
    count = sum(part.instructions for part in report.launches)
    pipes = ", ".join(f"{name} {grouped(n)}" for name, n in report.pipes.items())
    page.row(
        "stream", f"{_count(count, 'instruction')} on {_count(cores, 'core')}{': ' if pipes else ''}{pipes}"
    )
    page.row(
        "memory",
        f"{_bytes(report.read_bytes)} read and {_bytes(report.write_bytes)} written; inputs and outputs "
        f"are {_bytes(report.useful_bytes)}",
    )
    b = report.bounds
    cycles = {"compute": b.compute_cycles, "l2": b.l2_cycles, "flag_only": b.flag_only_cycles}
    _, what = _BOUNDS[b.binding]
    others = [f"{_BOUNDS[n][0]} {grouped(c)}" for n, c in cycles.items() if n != b.binding]
    page.row(
        "bound",
        f"{grouped(cycles[b.binding])} cycles at least ({_duration(cycles[b.binding] / report.clock_mhz)}): "
        f"{what} takes that long. Other bounds: {', '.join(others)}; that of main memory needs a run",
    )
    if next_step:
        page.row("next", next_step)
    return page.text()


def values_words(values: Values, *, computed: bool, outputs: Collection[str] = ()) -> str:
    """Say in a few words how outputs, whose names may be given, compare with the reference."""
    if not values.checked:
        return "computed, with no reference to compare them with" if computed else "not computed"
    if values.tolerance is None and not values.not_compared:
        return f"no element compared, since the reference gives no {' and no '.join(outputs) or 'output'}"
    if values.tolerance is None:
        return "no element compared, since the reference cannot say what is right"
    lost = values.not_compared or 0
    rest = (
        f"; {_count(lost, 'element')} not compared, since the reference cannot say what is right"
        if lost
        else ""
    )
    if values.max_abs_error == 0:
        return f"ok: every {'other ' if lost else ''}element equals the reference{rest}"
    error = _size(values.max_abs_error)
    # beside a sum that cancels to almost nothing the unit is tiny, and a count of units tells nobody anything
    few = values.max_ulp is not None and values.max_ulp <= _TELLING_ULPS
    ulp = f" ({_size(values.max_ulp)} ulp)" if values.max_ulp is not None and few else ""
    largest = f"largest error {error}{ulp}, tolerance {_size(values.tolerance)}"
    if values.ok:
        return f"ok: {largest}{rest}"
    return f"WRONG: {_count(values.mismatches or 0, 'element')} outside the tolerance; {largest}{rest}"


def not_finite_words(found: NotFinitePart, clock_mhz: int) -> str:
    """Say which outputs hold NaN and infinities, and what made the first of them."""
    where = " and ".join(f"output {name} holds {_lost(n)}" for name, n in found.outputs.items())
    if found.inputs:
        given = " and ".join(f"input {name} holds {_lost(n)}" for name, n in found.inputs.items())
        return f"{where}; {given} before the first launch"
    first = found.first
    if first is None:
        return f"{where}; no instruction made one of finite operands"
    when = ""
    if first.cycle is not None:
        when = f" at cycle {grouped(first.cycle)} ({_duration(first.cycle / clock_mhz)})"
    return (
        f"{where}; first {first.instruction} ({first.pipe}, {first.line}), instruction "
        f"{grouped(first.number)} of {first.core} in launch {first.launch_number + 1} ({first.launch}), "
        f"made {_lost(first)} in {first.space} of finite operands{when}"
    )


def _lost(found: NotFinite | FirstNotFinite) -> str:
    words = []
    if found.nan:
        words.append(f"{grouped(found.nan)} NaN")
    if found.infinite:
        words.append(_count(found.infinite, "infinity", "infinities"))
    return " and ".join(words)


class _Page:
    """Lines with a label in front, wrapped to a width."""

    def __init__(self, width: int) -> None:
        self._width = max(80, width)
        self._lines: list[str] = []

    def line(self, text: str) -> None:
        """Add a line as it is."""
        self._lines.append(text)

    def row(self, label: str, text: str) -> None:
        """Add a label and wrapped text."""
        self._lines += textwrap.wrap(
            text,
            min(self._width, 100),
            initial_indent=f"{label:<{_LABEL}}",
            subsequent_indent=" " * _LABEL,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [label]

    def text(self) -> str:
        """Return everything, with a newline at the end."""
        return "\n".join(self._lines) + "\n"


def _setup(params: Mapping[str, object], seed: int, numerics: str, l2: str | None) -> str:
    words = [f"{name}={value}" for name, value in params.items()]
    state = f", L2 {l2} at the start" if l2 else ""
    return f"{' '.join(words)}{'; ' if words else ''}seed {seed}, numerics {numerics}{state}"


def _time(report: Report) -> str:
    cycles = f"{grouped(report.total_cycles)} cycles at {grouped(report.clock_mhz)} MHz"
    started = _count(len(report.launches), "launch", "launches")
    start = f"{_duration(report.launch_overhead_us)} to start {started}"
    host = (
        f" ({_duration(report.host_overhead_us)} of host time not counted)" if report.host_overhead_us else ""
    )
    return f"{_duration(report.time_us)} on the device: {cycles} + {start}{host}"


def _launches(report: Report) -> str:
    """Tell the times of the launches by name, the longest first, with what starts them."""
    times: dict[str, float] = defaultdict(float)
    often: Counter[str] = Counter()
    for part in report.launches:
        # a report from before launches had times tells cycles only
        times[part.name] += part.cycles / report.clock_mhz if part.time_us is None else part.time_us
        often[part.name] += 1
    total = sum(times.values()) or 1.0
    order = sorted(times, key=lambda name: -times[name])
    words = [
        f"{name}{f' ({often[name]} times)' if often[name] > 1 else ''} {_duration(times[name])}, "
        f"{_percent(times[name] / total)}"
        for name in order[:_LAUNCHES]
    ]
    if order[_LAUNCHES:]:
        rest = sum(times[name] for name in order[_LAUNCHES:])
        words.append(f"{len(order[_LAUNCHES:])} others {_duration(rest)}, {_percent(rest / total)}")
    return "; ".join(words)


def _memory(report: Report) -> str:
    gm = report.gm
    return (
        f"{_rate(gm.useful_gb_per_s)} GB/s useful, {_rate(gm.achieved_gb_per_s)} GB/s moved by the cores; "
        f"{_percent(gm.l2_hit_rate)} of the bytes hit L2, main memory runs at {_percent(gm.utilization)} of "
        f"its nominal rate"
    )


def _units(report: Report) -> str:
    words = []
    if report.cube.macs:
        busy = _percent(report.cube.utilization)
        words.append(f"cube works {busy} of the time ({_count(report.cube.macs, 'multiply-accumulate')})")
    if report.vector.element_ops:
        busy = _percent(report.vector.utilization)
        words.append(
            f"vector works {busy} of the time ({_count(report.vector.element_ops, 'element operation')})"
        )
    return "; ".join(words)


def _bound(report: Report) -> str:
    title, what = _BOUNDS[report.bounds.binding]
    cycles = getattr(report.bounds, f"{report.bounds.binding}_cycles")
    share = f"{_percent(cycles / report.total_cycles)} of the " if report.total_cycles else ""
    return f"{share}{title} bound: {what} takes {grouped(cycles)} cycles"


# ---- the table of pipes ------------------------------------------------------------------------------------


def _pipes(page: _Page, report: Report) -> None:
    """Add the table of pipes that did something, the busiest of every core, or kind of core, first."""
    total = report.total_cycles
    active = {name: part for name, part in report.pipes.items() if part.instructions}
    busy = {name: part for name, part in active.items() if part.work >= _LEAST_WORK * total} or active
    idle = len(active) - len(busy)
    page.row("cycles", f"in percent of {grouped(total)}; work + waits + tail = 100 for every pipe")
    page.line("")
    cores = dict.fromkeys(name.rpartition(".")[0] for name in busy)
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name in busy:
        core, _, pipe = name.rpartition(".")
        kind = core.partition(".")[2].rstrip("0123456789")
        groups[core if len(cores) <= _FEW_CORES else kind][pipe].append(name)
    heads = [c.removesuffix("_core") for c in _CAUSES]
    table = [("", *heads, "instructions")]
    for group, pipes in groups.items():
        lines = []
        for pipe, names in pipes.items():
            sums = [sum(getattr(busy[n], cause) for n in names) / len(names) for cause in _CAUSES]
            count = sum(busy[n].instructions for n in names)
            who = f"{_KINDS[group]} x{len(names)}" if group in _KINDS else group
            lines.append((sums[0], f"{who} {pipe}", sums, count))
        for _, label, sums, count in sorted(lines, key=lambda line: -line[0]):
            table.append((label, *(_share(s, total) for s in sums), grouped(count)))
    for line in _aligned(table):
        page.line(line)
    page.line("")
    notes = [_spread(report, busy)] if len(cores) > _FEW_CORES else []
    if idle:
        notes.append(f"not shown: {_count(idle, 'pipe')} working under 0.1 %")
    if notes:
        page.row("", "; ".join(notes))


def _spread(report: Report, busy: Mapping[str, object]) -> str:
    """Say how evenly the cores share the work of the busiest pipe."""
    works: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name in busy:
        core, _, pipe = name.rpartition(".")
        works[f"{core.partition('.')[2].rstrip('0123456789')} {pipe}"].append((report.pipes[name].work, core))
    shares = max(works.values(), key=lambda found: sum(w for w, _ in found) / len(found))
    pipe = next(k for k, v in works.items() if v is shares).partition(" ")[2]
    (low, idle), (high, full) = min(shares), max(shares)
    total = report.total_cycles
    if low == high:
        return f"means over the cores; {pipe} works {_share(low, total)} % on every one"
    return (
        f"means over the cores; {pipe} works from {_share(low, total)} % ({idle}) to "
        f"{_share(high, total)} % ({full})"
    )


def _aligned(table: list[tuple[str, ...]]) -> Iterable[str]:
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for first, *others in table:
        cells = [f"{cell:>{max(5, w)}}" for cell, w in zip(others, widths[1:], strict=True)]
        yield f"{first:<{widths[0]}} {' '.join(cells)}".rstrip()


# ---- numbers -----------------------------------------------------------------------------------------------


def _share(cycles: float, total: int) -> str:
    return f"{100 * cycles / total:.1f}" if cycles else "-"


def _percent(share: float) -> str:
    value = 100 * share
    if value and value < 0.1:
        return "under 0.1 %"
    return f"{value:.1f} %" if value < 10 and value != int(value) else f"{value:.0f} %"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _duration(us: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{_rate(us / size)} {unit}"
    return f"{_rate(us)} us" if us else "0 us"


def _size(value: float | None) -> str:
    if value is None:
        return "infinite"
    return f"{value:,.0f}" if 1000 <= value < 1e15 else f"{value:.3g}"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{grouped(number)} {one if number == 1 else many or f'{one}s'}"


def _bytes(number: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size:
            return f"{_rate(number / size)} {unit}"
    return _count(number, "byte")
