"""Races: what the checker accepts and refuses in random programs, against a graph of starts and ends."""

from __future__ import annotations

import re
from typing import Any

import hypothesis.strategies as st
from hypothesis import event, given, settings
from small import TOY

from npusim import Builder, Operand, Pipe, Reg, Space, isa, program, simulate
from npusim.errors import HazardError

S, V, MTE2, MTE3 = Pipe.S, Pipe.V, Pipe.MTE2, Pipe.MTE3
PIPES = (S, V, MTE2, MTE3)
BLOCKS = 6
"""Blocks of 32 bytes of the unified buffer and of each array that the programs touch."""


# ---- the oracle --------------------------------------------------------------------------------------------


class Graph:
    """Instructions of all cores with the order of their starts and ends, as reachability between numbers."""

    def __init__(self) -> None:
        self.before: list[set[int]] = []

    def node(self, *before: int) -> int:
        """Add a point in time that comes after others, which are closed under what comes before them."""
        closed = set(before)
        for earlier in before:
            closed |= self.before[earlier]
        self.before.append(closed)
        return len(self.before) - 1

    def ordered(self, first: int, second: int) -> bool:
        return first in self.before[second]


class Line:
    """One core while the oracle walks its list of instructions."""

    def __init__(self, graph: Graph, ops: list[Any]) -> None:
        self.ops = ops
        self.at = 0
        self.issue = graph.node()
        self.start = {p: graph.node() for p in PIPES}
        """Latest start of the pipe."""
        self.ends: dict[Pipe, list[int]] = {p: [] for p in PIPES}
        self.raised: dict[Any, int] = {}
        self.waited: dict[Any, int] = {}
        self.heard: list[list[int]] = []
        """Raised cross-core flags of each core, in order."""
        self.heard_at = 0
        self.made: dict[int, int] = {}
        """End of the instruction that set a register."""


def touched(accesses: Any) -> set[tuple[int, int, int]]:
    return {
        (int(a.space), a.segment, byte // 4)
        for a in accesses
        for start, stop in a.runs()
        for byte in range(start, stop, 4)
    }


def judge(streams: list[list[Any]]) -> tuple[set[tuple[Any, Any]], set[Any], set[Any]]:
    """Return the pairs of accesses that nothing orders, the reads of what nobody wrote, and the sets that are
    too early, each as (core, position).
    """
    graph = Graph()
    lines = [Line(graph, ops) for ops in streams]
    for line in lines:
        line.heard = [[] for _ in lines]
    accesses: list[Any] = []
    early: set[Any] = set()
    moved = True
    while moved:
        moved = False
        for core, line in enumerate(lines):
            while line.at < len(line.ops) and _step(graph, lines, core, accesses, early):
                moved = True
    assert all(line.at == len(line.ops) for line in lines), "deadlock"
    racing, poison = set(), set()
    for n, (place, start, end, reads, writes, pipe) in enumerate(accesses):
        known = {w for other in accesses for w in other[4] if graph.ordered(other[2], start)}
        if not all(
            (space == Space.GM and segment == 0) or (space, segment, word) in known
            for space, segment, word in reads
        ):
            poison.add(place)
        for other, begin, stop, other_reads, other_writes, other_pipe in accesses[:n]:
            if graph.ordered(stop, start) or graph.ordered(end, begin):
                continue
            same = pipe == other_pipe and place[0] == other[0]
            if same and pipe is S:
                continue
            if writes & other_writes or reads & other_writes or (writes & other_reads and not same):
                racing.add((other, place))
    return racing, poison, early


def _step(graph: Graph, lines: list[Line], core: int, accesses: list[Any], early: set[Any]) -> bool:
    line = lines[core]
    op, place = line.ops[line.at], (core, line.at)
    pipe = op.pipe
    if isinstance(op, isa.CrossCoreWaitFlag):
        if any(len(raised) <= line.heard_at for raised in line.heard):
            return False
        _wait(graph, line, pipe, [raised[line.heard_at] for raised in line.heard])
        line.heard_at += 1
    elif isinstance(op, isa.CrossCoreSetFlag):
        raised = graph.node(line.issue, line.start[pipe], *line.ends[pipe])
        for other in lines:
            other.heard[core].append(raised)
    elif isinstance(op, isa.SetFlag):
        key = (op.src, op.dst, op.id)
        start = graph.node(line.issue, line.start[pipe])
        line.start[pipe] = start
        if key in line.raised or (key in line.waited and not graph.ordered(line.waited[key], start)):
            early.add(place)
        line.raised[key] = graph.node(start, *line.ends[pipe])
    elif isinstance(op, isa.WaitFlag):
        key = (op.src, op.dst, op.id)
        line.waited[key] = _wait(graph, line, pipe, [line.raised.pop(key)])
    elif isinstance(op, isa.PipeBarrier):
        if op.on is Pipe.ALL:
            line.issue = graph.node(line.issue, *(n for p in PIPES for n in (line.start[p], *line.ends[p])))
        else:
            line.start[pipe] = graph.node(line.issue, line.start[pipe], *line.ends[pipe])
    elif op.kind is isa.ResetMask.kind:
        pass
    else:
        made = [line.made[r] for r in op.registers_read()]
        start = graph.node(line.issue, line.start[pipe], *made, *(line.ends[pipe] if pipe is S else ()))
        end = graph.node(start)
        if pipe is not S:  # a wait on S says nothing about scalar accesses before it
            line.start[pipe] = start
        line.ends[pipe].append(end)
        for register in op.registers_written():
            line.made[register] = end
        state = isa.State(mask=0xFF)
        reads, writes = touched(op.reads(state)), touched(op.writes(state))
        local = {(space, core if space != Space.GM else segment, word) for space, segment, word in reads}
        there = {(space, core if space != Space.GM else segment, word) for space, segment, word in writes}
        accesses.append((place, start, end, local, there, pipe))
    line.at += 1
    return True


def _wait(graph: Graph, line: Line, pipe: Pipe, flags: list[int]) -> int:
    done = graph.node(line.issue, line.start[pipe], *flags)
    if pipe is S:
        line.issue = done
    line.start[pipe] = done
    return done


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
        what = draw(st.sampled_from(["work"] * 5 + ["hand over"] * 3 + ["set", "set", "wait", "barrier"]))
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
