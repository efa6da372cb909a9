"""Races: what the checker accepts and refuses in random programs, against a graph of starts and ends."""

from __future__ import annotations

import re
from typing import Any

import hypothesis.strategies as st
from hypothesis import assume, event, given, settings
from small import TOY

from npusim import Builder, Operand, Pipe, Reg, Space, isa, program, simulate
from npusim.errors import DeadlockError, HazardError

S, V, MTE2, MTE3 = Pipe.S, Pipe.V, Pipe.MTE2, Pipe.MTE3
PIPES = (S, V, MTE2, MTE3)
BLOCKS = 6
"""Blocks of 32 bytes of the unified buffer and of each array that the programs touch."""


# ---- the oracle -------------------------------------------------------------------------------------------


class Graph:
    """Points in time and which comes before which, closed at the end over all steps in between."""

    def __init__(self) -> None:
        self.after: list[int] = []
        """For every point, a bit for each point that comes behind it."""

    def node(self, *before: int) -> int:
        self.after.append(0)
        for earlier in before:
            self.edge(earlier, len(self.after) - 1)
        return len(self.after) - 1

    def edge(self, first: int, second: int) -> None:
        self.after[first] |= 1 << second

    def close(self) -> None:
        for middle in range(len(self.after)):
            for first, after in enumerate(self.after):
                if after >> middle & 1:
                    self.after[first] |= self.after[middle]

    def ordered(self, first: int, second: int) -> bool:
        return bool(self.after[first] >> second & 1)


class Access:
    """One instruction that touches memory."""

    def __init__(self, place: Any, op: Any, start: int, end: int) -> None:
        self.place, self.pipe, self.start, self.end = place, op.pipe, start, end
        state = isa.State(mask=0xFF)
        self.reads, self.writes = words(op.reads(state), place[0]), words(op.writes(state), place[0])


def words(accesses: Any, core: int) -> set[tuple[bool, int, int]]:
    """Return the words of some accesses: whether global, segment or core, number."""
    return {
        (a.space == Space.GM, a.segment if a.space == Space.GM else core, word)
        for a in accesses
        for start, stop in a.runs()
        for word in range(start // 4, -(-stop // 4))
    }


def judge(streams: list[list[Any]]) -> tuple[set[tuple[Any, Any]], set[Any], set[Any]]:
    """Return the pairs of accesses that nothing orders, the reads of what nobody wrote, and the sets that are
    too early, each as (core, position).
    """
    graph = Graph()
    accesses: list[Access] = []
    sets: dict[Any, list[tuple[Any, int, int]]] = {}
    waits: dict[Any, list[int]] = {}
    for core, ops in enumerate(streams):
        _lay_out(graph, core, ops, accesses, sets, waits)
    for key, ends in waits.items():  # the first wait takes the first set, and so on
        for number, end in enumerate(ends):
            everyone = range(len(streams))
            names = [key] if key[0] == "flag" else [("cross", core, *key[2:]) for core in everyone]
            for name in names:
                graph.edge(sets[name][number][2], end)
    graph.close()
    early = {
        place
        for key, found in sets.items()
        for number, (place, start, _) in enumerate(found)
        if key[0] == "flag"
        and number
        and (number > len(waits[key]) or not graph.ordered(waits[key][number - 1], start))
    }
    racing, poison = set(), set()
    for n, one in enumerate(accesses):
        known = {w for other in accesses for w in other.writes if graph.ordered(other.end, one.start)}
        if not all(
            (is_global and segment == 0) or (is_global, segment, word) in known
            for is_global, segment, word in one.reads
        ):
            poison.add(one.place)
        for other in accesses[:n]:
            if graph.ordered(other.end, one.start) or graph.ordered(one.end, other.start):
                continue
            same = one.pipe == other.pipe and one.place[0] == other.place[0]
            if same and one.pipe is S:
                continue
            clash = one.writes & other.writes or (one.reads & other.writes)
            if clash or (one.writes & other.reads and not same):
                racing.add((other.place, one.place))
    return racing, poison, early


def _lay_out(graph: Graph, core: int, ops: list[Any], accesses: list[Access], sets: Any, waits: Any) -> None:
    """Put the points of one core and what they follow inside it into the graph."""
    issue = graph.node()
    start = {p: graph.node() for p in PIPES}
    """Latest start of the pipe."""
    ends: dict[Pipe, list[int]] = {p: [] for p in PIPES}
    made: dict[int, int] = {}
    """End of the instruction that set a register."""
    for position, op in enumerate(ops):
        place, pipe = (core, position), op.pipe
        issue = graph.node(issue)
        if isinstance(op, isa.SetFlag | isa.CrossCoreSetFlag):
            begin = start[pipe] = graph.node(issue, start[pipe])
            name = (
                ("flag", core, op.src, op.dst, op.id)
                if isinstance(op, isa.SetFlag)
                else ("cross", core, op.id)
            )
            sets.setdefault(name, []).append((place, begin, graph.node(begin, *ends[pipe])))
        elif isinstance(op, isa.WaitFlag | isa.CrossCoreWaitFlag):
            done = start[pipe] = graph.node(issue, start[pipe])
            name = (
                ("flag", core, op.src, op.dst, op.id)
                if isinstance(op, isa.WaitFlag)
                else ("all", core, op.id)
            )
            waits.setdefault(name, []).append(done)
            issue = done if pipe is S else issue
        elif isinstance(op, isa.PipeBarrier) and op.on is Pipe.ALL:
            issue = graph.node(issue, *start.values(), *(n for found in ends.values() for n in found))
        elif isinstance(op, isa.PipeBarrier):
            start[pipe] = graph.node(issue, start[pipe], *ends[pipe])
        elif op.kind is not isa.ResetMask.kind:
            registers = [made[r] for r in op.registers_read()]
            begin = graph.node(issue, start[pipe], *registers, *(ends[pipe] if pipe is S else ()))
            end = graph.node(begin)
            if pipe is not S:  # a wait on S says nothing about scalar accesses before it
                start[pipe] = begin
            ends[pipe].append(end)
            made |= dict.fromkeys(op.registers_written(), end)
            accesses.append(Access(place, op, begin, end))


# ---- random programs ---------------------------------------------------------------------------------------


def ub(block: int) -> Operand:
    return Operand(Space.UB, isa.F32, 32 * block)


def gm(segment: int, block: int) -> Operand:
    return Operand(Space.GM, isa.F32, 32 * block, segment)


def span(draw: Any) -> tuple[int, int, int]:
    """Return first block, number of blocks and their distance."""
    stride = draw(st.sampled_from([1, 1, 2]))
    count = draw(st.integers(1, 3))
    return draw(st.integers(0, BLOCKS - (count - 1) * stride - 1)), count, stride


@st.composite
def work(draw: Any) -> Any:
    kind = draw(
        st.sampled_from(["load", "load", "store", "store", "fill", "add", "add", "get", "put", "use"])
    )
    first, count, stride = span(draw)
    if kind == "load":
        segment = draw(st.sampled_from([0, 0, 0, 1]))
        source = draw(st.integers(0, BLOCKS - count))
        copy = {"block_count": count, "block_len": 1, "dst_gap": stride - 1}
        return isa.DataCopy(dst=ub(first), src=gm(segment, source), **copy)
    if kind == "store":
        target = draw(st.integers(0, BLOCKS - count))
        copy = {"block_count": count, "block_len": 1, "src_gap": stride - 1}
        return isa.DataCopy(dst=gm(1, target), src=ub(first), **copy)
    if kind == "fill":
        return isa.Duplicate(dst=ub(first), scalar=1.0, repeat=count, dst_repeat=stride)
    if kind == "use":
        return isa.Duplicate(dst=ub(first), scalar=Reg(0), repeat=1)
    if kind == "add":
        blocks = {first + i * stride for i in range(count)}
        free = [
            b for b in range(BLOCKS) if not blocks & {b + i for i in range(count)} and b + count <= BLOCKS
        ]
        if not free or draw(st.booleans()):
            return isa.Adds(
                dst=ub(first), src=ub(first), scalar=1.0, repeat=count, dst_repeat=stride, src_repeat=stride
            )
        source = draw(st.sampled_from(free))
        return isa.Adds(
            dst=ub(first), src=ub(source), scalar=1.0, repeat=count, dst_repeat=stride, src_repeat=1
        )
    word = Operand(Space.UB, isa.F32, 32 * first + 4 * draw(st.integers(0, 7)))
    return isa.GetValue(reg=0, src=word) if kind == "get" else isa.SetValue(dst=word, value=2.0)


@st.composite
def stream(draw: Any, length: int) -> list[Any]:
    """Return work, barriers, and flags that are set before they are waited for; all are waited for."""
    ops: list[Any] = [isa.SetVectorMask(mask=0xFF), isa.ScalarAlu(op=isa.ScalarOp.MOV, reg=0, a=0)]
    if draw(st.integers(0, 3)):  # most programs start with everything written
        ops += [
            isa.DataCopy(dst=ub(0), src=gm(0, 0), block_len=BLOCKS),
            isa.PipeBarrier(on=Pipe.ALL),
        ]
    up: list[Any] = []
    careful = draw(st.booleans())
    for _ in range(draw(st.integers(1, length))):
        what = draw(
            st.sampled_from([*["work"] * 5, *["hand over"] * 3, "ahead", "set", "set", "wait", "barrier"])
        )
        src, dst = draw(st.permutations(PIPES))[:2]
        flag = {"src": src, "dst": dst, "id": draw(st.sampled_from([0, 0, 0, 1]))}
        if what == "work":
            ops.append(draw(work()))
            if careful and draw(st.integers(0, 3)):
                ops.append(isa.PipeBarrier(on=Pipe.ALL))
        elif what == "barrier":
            ops.append(isa.PipeBarrier(on=draw(st.sampled_from([V, MTE2, MTE3, Pipe.ALL]))))
        elif what == "hand over" and flag not in up:
            ops += [isa.SetFlag(**flag), isa.WaitFlag(**flag)]
        elif what == "ahead" and flag not in up and dst is not S:  # the wait comes first in the stream
            between = [draw(work()) for _ in range(draw(st.integers(0, 2)))]
            ops += [isa.WaitFlag(**flag), *between, isa.SetFlag(**flag)]
        elif what == "set" and (flag not in up or draw(st.integers(0, 9)) == 0):
            ops.append(isa.SetFlag(**flag))
            if flag not in up:
                up.append(flag)
        elif up:
            ops.append(isa.WaitFlag(**up.pop(draw(st.integers(0, len(up) - 1)))))
    ops += [isa.WaitFlag(**flag) for flag in up]
    return ops


@st.composite
def one_core(draw: Any) -> list[list[Any]]:
    return [draw(stream(14))]


@st.composite
def two_cores(draw: Any) -> list[list[Any]]:
    """Two vector cores that meet now and then."""
    streams: list[list[Any]] = [[], []]
    for meeting in range(draw(st.integers(1, 2))):
        for part in streams:
            part += draw(stream(4))
            part += [
                isa.CrossCoreSetFlag(
                    group=isa.Group.VECTOR_PAIR, on=draw(st.sampled_from(PIPES)), id=meeting
                ),
                isa.CrossCoreWaitFlag(
                    group=isa.Group.VECTOR_PAIR, on=draw(st.sampled_from(PIPES)), id=meeting
                ),
            ]
    for part in streams:
        part += draw(stream(4))
    return streams


def verdict(streams: list[list[Any]]) -> str | None:
    """Run under all checks and return the message of the refusal, or None where there is none."""

    @program
    def racy(k: Builder) -> None:
        k.input("x", (8 * BLOCKS,), "float32")
        k.workspace("w", (8 * BLOCKS,), "float32")
        k.launch("racy", vector=lambda c: streams[c.core.number], blocks=len(streams))

    try:
        simulate(racy, TOY)
    except HazardError as error:
        return str(error)
    except DeadlockError:
        assume(False)
    return None


def compare(streams: list[list[Any]]) -> str:
    """Compare oracle and checker, and return what they agree on."""
    racing, poison, early = judge(streams)
    message = verdict(streams)
    if message is None:
        assert not racing
        assert not poison
        assert not early
        return "accepted"
    found = re.fullmatch(
        r"#(\d+): core0\.vec(\d): (.*?)"
        r"(?:which (?:core0\.vec(\d) )?\w+ \(\w+, #(\d+)\) (?:reads|writes), .*)?",
        message,
    )
    assert found, message
    number, core, text, other_core, other = found.groups()
    place = (int(core), int(number))
    if "is raised again" in text or "may be raised again" in text:
        assert place in early, message
        return "refused: set too early"
    if "nothing has written" in text:
        assert place in poison or any(place in pair for pair in racing), message
        return "refused: never written"
    pair = (int(other_core or core), int(other)), place
    assert pair in racing or pair[::-1] in racing, message
    return "refused: race"


@settings(max_examples=200, deadline=None, derandomize=True)
@given(one_core())
def test_checker_agrees_with_a_graph_of_starts_and_ends(streams):
    event(compare(streams))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(two_cores())
def test_checker_agrees_with_a_graph_of_starts_and_ends_of_two_cores(streams):
    event(compare(streams))


def test_a_read_is_remembered_when_what_lies_beside_it_is_rewritten():
    """Neither a write beside the read bytes nor cutting what was written together may forget the read."""
    load = isa.DataCopy(dst=ub(0), src=gm(0, 0), block_len=BLOCKS)
    read = isa.Adds(dst=ub(5), src=ub(0), scalar=1.0, repeat=1, dst_repeat=1, src_repeat=1)
    beside = isa.Duplicate(dst=ub(2), scalar=0.0, repeat=1, dst_repeat=1)
    again = isa.DataCopy(dst=ub(0), src=gm(0, 0), block_len=1)
    start = [isa.SetVectorMask(mask=0xFF), load, isa.PipeBarrier(on=Pipe.ALL)]
    assert compare([[*start, read, beside, again]]) == "refused: race"
    assert compare([[*start, read, beside, isa.PipeBarrier(on=Pipe.ALL), again]]) == "accepted"
