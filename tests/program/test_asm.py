"""Assembly text: every instruction and every program survives printing and parsing."""

from __future__ import annotations

import shutil
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npusim import load_chip
from npusim.errors import ConfigError, NpusimError
from npusim.isa.dtype import BY_CODE, F16, F32, DType
from npusim.isa.fields import FieldSpec
from npusim.isa.instruction import REGISTRY, OriginKind
from npusim.isa.operand import Imm, Operand, Reg, Space
from npusim.isa.text import parse_instruction
from npusim.program.asm import asm_text
from npusim.program.assemble import parse_asm
from npusim.program.discover import find_program
from npusim.program.inputs import make_inputs
from npusim.program.program import Program, ProgramMaker
from npusim.report.checked import streams_of
from npusim.report.simulate import run

TINY = Path(__file__).parents[1] / "cli" / "tiny.py"
TOY = load_chip("toy")


# ---- instructions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", REGISTRY.values(), ids=REGISTRY)
def test_every_example_survives(cls: Any) -> None:
    op = cls.example()
    assert parse_instruction(str(op)) == op
    assert str(parse_instruction(str(op))) == str(op)


def _value(spec: FieldSpec) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw the integers of a field."""
    number = st.integers(-(2**70), 2**70) | st.integers(0, 300)
    if spec.form == "operand":
        gm = st.tuples(st.just(0), st.sampled_from(list(BY_CODE)), st.integers(0, 99), st.integers(-9, 2**40))
        local = st.tuples(
            st.integers(1, len(Space) - 1), st.sampled_from(list(BY_CODE)), st.just(0), st.integers(-9, 2**40)
        )
        return gm | local | (st.just((-1, 0, 0, 0)) if spec.optional else st.nothing())
    if spec.form == "scalar":
        return st.tuples(st.just(1), st.integers(-1, 99)) | st.tuples(st.just(0), number)
    if spec.form == "dtype":
        return st.sampled_from([(code,) for code in BY_CODE])
    if spec.form == "enum":
        assert spec.enum is not None
        return st.integers(0, len(spec.enum) - 1).map(lambda i: (i,))
    if spec.form == "bool":
        return st.sampled_from([(0,), (1,)])
    if spec.form == "ints":
        return st.lists(number, max_size=5).map(lambda v: (len(v), *v))
    return number.map(lambda n: (n,))


ENCODINGS = {
    name: st.tuples(*map(_value, cls.spec)).map(lambda parts: tuple(i for part in parts for i in part))
    for name, cls in REGISTRY.items()
}


@pytest.mark.parametrize("name", REGISTRY)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_encoding_survives(name: str, data: st.DataObject) -> None:
    flat = data.draw(ENCODINGS[name])
    op = REGISTRY[name].decode(flat)
    again = parse_instruction(str(op))
    assert again == op
    assert again.encode() == flat


def test_fields_may_come_in_any_order_and_form() -> None:
    text = "  Adds   scalar=1.5 src=ub:f16@256   dst=ub:f16@0x0 repeat=0x2 "
    op = parse_instruction(text)
    assert str(op) == "Adds repeat=2 dst=ub:f16@0x0 src=ub:f16@0x100 scalar=0x3e00"
    assert op.scalar == Imm.of(1.5, F16)
    assert parse_instruction("Adds dst=ub:s32@0 src=ub:s32@0 scalar=-1").scalar == Imm(0xFFFFFFFF)
    assert parse_instruction("Adds dst=ub:f32@0 src=ub:f32@0 scalar=r7").scalar == Reg(7)
    spaced = parse_instruction(str(REGISTRY["TransDataTo5HD"].example()).replace(",", ", "))
    assert spaced == REGISTRY["TransDataTo5HD"].example()


def test_numbers_become_the_nearest_element() -> None:
    for text, dtype in (("nan", F32), ("-inf", F32), ("1e-3", F16), ("3", F16)):
        op = parse_instruction(f"Adds dst=ub:{dtype.short}@0 src=ub:{dtype.short}@0 scalar={text}")
        assert op.scalar == Imm.of(float(text), dtype)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "instruction '' is not known"),
        ("adds", "instruction 'adds' is not known; did you mean Adds?"),
        ("Brumm x=1", "instruction 'Brumm' is not known"),
        ("SetFlag src=MTE2 dst=V", "SetFlag: field id is missing"),
        ("SetFlag", "SetFlag: fields src dst id are missing"),
        ("SetFlag src=MTE2 dst=V id=0 idd=1", "SetFlag: no field idd; did you mean id?; fields: src dst id"),
        ("ResetMask x=1", "ResetMask: no field x; fields: none"),
        ("SetFlag src=MTE2 dst=V id=0 id=1", "SetFlag: field id is given twice"),
        ("SetFlag src=MTE2 V id=0", "SetFlag: 'V' is no field; fields are written name=value"),
        ("SetFlag src=MTE2 dst=V id=", "SetFlag: 'id=' is no field; fields are written name=value"),
        ("SetFlag src=MTE5 dst=V id=0", "SetFlag: src=MTE5: name 'MTE5' is not known; did you mean MTE3?"),
        (
            "SetFlag src=Q dst=V id=0",
            "SetFlag: src=Q: name 'Q' is not known; one of S V M MTE1 MTE2 MTE3 FIX ALL",
        ),
        ("SetFlag src=V dst=S id=x", "SetFlag: id=x: must be a whole number"),
        ("SetFlag src=V dst=S id=1.0", "SetFlag: id=1.0: must be a whole number"),
        ("SetFlag src=V dst=S id=none", "SetFlag: id=none: must be a whole number"),
        (
            "Abs dst=ub:f32 src=ub:f32@0x0",
            "Abs: dst=ub:f32: must be MEMORY:TYPE@ADDRESS, as ub:f32@0x100 or gm0:f16@0x0",
        ),
        ("Abs dst=ubb:f32@0 src=ub:f32@0", "Abs: dst=ubb:f32@0: memory 'ubb' is not known; did you mean ub?"),
        (
            "Abs dst=ub:f23@0 src=ub:f32@0",
            "Abs: dst=ub:f23@0: element type 'f23' is not known; did you mean f32?",
        ),
        ("Abs dst=ub:f32@zz src=ub:f32@0", "Abs: dst=ub:f32@zz: must be a whole number"),
        (
            "Abs dst=gm:f32@0 src=ub:f32@0",
            "Abs: dst=gm:f32@0: must name a segment of global memory by its number, as gm0",
        ),
        (
            "Abs dst=none src=ub:f32@0",
            "Abs: dst=none: must be MEMORY:TYPE@ADDRESS, as ub:f32@0x100 or gm0:f16@0x0",
        ),
        (
            "Adds dst=ub:f32@0 src=ub:f32@0 scalar=one",
            "Adds: scalar=one: must be a register (r0), bits (0x1) or a number",
        ),
        (
            "Adds dst=ub:s32@0 src=ub:s32@0 scalar=1.5",
            "Adds: scalar=1.5: must be a register (r0), bits (0x1) or a whole number",
        ),
        ("Adds dst=ub:s16@0 src=ub:s16@0 scalar=40000", "Adds: scalar=40000: does not fit s16"),
        ("Adds dst=ub:s16@0 src=ub:s16@0 scalar=0xzz", "Adds: scalar=0xzz: must be a whole number"),
        (
            "Mmad dst=l0c:f32@0 a=l0a:f16@0 b=l0b:f16@0 m=1 k=1 n=1 init=yes",
            "Mmad: init=yes: switch 'yes' is not known; one of true false",
        ),
        (
            "TransDataTo5HD dst=[1,x] src=[0] dtype=f16",
            "TransDataTo5HD: dst=[1,x]: must be a whole number",
        ),
        (
            "TransDataTo5HD dst=1 src=[0] dtype=f16",
            "TransDataTo5HD: dst=1: must be whole numbers in brackets, as [1,2]",
        ),
    ],
)
def test_instruction_errors(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_instruction(text)
    assert str(caught.value) == message


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("ABSdfgu01x=[],:@ .-r#\n\t\0é"), max_size=60), st.sampled_from(list(REGISTRY)))
def test_nonsense_is_an_error_of_ours(rest: str, mnemonic: str) -> None:
    try:
        op = parse_instruction(f"{mnemonic} {rest}")
    except ConfigError as error:
        message = str(error)
    else:
        message = f"{mnemonic}: fine"
        assert parse_instruction(str(op)) == op
    assert message.startswith(f"{mnemonic}: ")


# ---- programs ----------------------------------------------------------------------------------------------


def _tiny(name: str) -> ProgramMaker:
    return find_program(f"{TINY}:{name}")


def _text(program: Program, **kwargs: bool) -> str:
    streams = [streams for _, streams in streams_of(program, TOY)]
    return asm_text(program, streams, **kwargs)


SHIPPED = [
    ("memcopy", {"n": 5000, "tile": 1000}),
    ("memcopy", {"n": 300, "dtype": "int8", "buffers": 1}),
    ("scan_u", {"n": 700, "s": 32, "dtype": "int8"}),
    ("scan_ul1", {"n": 700, "s": 32}),
    ("cumsum_vec", {"n": 700, "s": 32}),
]
TINIES = [("copy", {}), ("counted", {}), ("two words", {}), ("wide", {"blocks": 2}), ("noisy", {})]


@pytest.mark.parametrize(("name", "params"), [*SHIPPED, *TINIES])
def test_programs_survive(name: str, params: dict[str, Any]) -> None:
    maker = _tiny(name) if (name, params) in TINIES else find_program(name)
    program = maker.build(TOY, params)
    text = _text(program)
    again = parse_asm(text, "again.asm").build(TOY)
    assert _text(again) == text
    assert again.name == program.name
    assert again.params == program.params
    assert [(s.name, s.dtype, s.shape, s.role) for s in again.segments] == [
        (s.name, s.dtype, s.shape, s.role) for s in program.segments
    ]
    arrays = make_inputs(program, 7)
    given = {s.name: arrays[s.name] for s in program.inputs}
    first, second = run(program, TOY, inputs=given), run(again, TOY, inputs=given)
    assert first.total_cycles == second.total_cycles
    assert first.pipes == second.pipes
    assert first.gm == second.gm
    for output in first.outputs:
        assert first.outputs[output].tobytes() == second.outputs[output].tobytes()
    assert second.values.checked is False
    if params:
        assert first.values.ok is True


def test_origins_are_comments() -> None:
    program = find_program("memcopy").build(TOY, {"n": 300})
    text = _text(program, origins=True)
    assert "SetFlag src=MTE2 dst=MTE3 id=0  # queue programs/memcopy.py:" in text
    assert "WaitFlag src=MTE3 dst=MTE2 id=0  # pipe_end\n" in text
    assert _text(parse_asm(text).build(TOY)) == _text(program)


def test_a_parsed_stream_has_the_lines_of_its_text() -> None:
    program = _tiny("copy").build(TOY, {"n": 64})
    text = _text(program)
    first = text.splitlines().index("SetFlag src=MTE2 dst=MTE3 id=0") + 1
    lines = [line for line in text.splitlines() if "Flag" not in line]
    racy = parse_asm("\n".join(lines) + "\n", "racy.asm").build(TOY)
    with pytest.raises(NpusimError) as caught:
        run(racy, TOY)
    assert str(caught.value).startswith(
        f"racy.asm:{first}: core0.vec0: DataCopy (MTE3) reads ub bytes 0 to 128"
    )


def test_equal_lines_share_one_instruction() -> None:
    text = HEAD + FOOT + "ResetMask\n  ResetMask\nResetMask # other words\n"
    (streams,) = [s for _, s in streams_of(parse_asm(text).build(TOY), TOY)]
    first, second, third = streams[0].ops
    assert first is second
    assert first == third


def test_inputs_are_small_integers_and_constants_keep_their_content() -> None:
    program = parse_asm(_text(_tiny("two words").build(TOY))).build(TOY)
    arrays = make_inputs(program, 1)
    np.testing.assert_array_equal(arrays["table"], np.arange(64, dtype=np.float32))
    assert set(np.unique(arrays["y"])) <= set(range(-4, 5))


def test_parameters_of_a_text_are_fixed() -> None:
    maker = parse_asm(_text(_tiny("copy").build(TOY)))
    with pytest.raises(ConfigError) as caught:
        maker.build(TOY, {"n": 5})
    assert str(caught.value) == "copy: no parameter n; parameters: none"


def test_the_chip_must_start_the_cores_of_the_text() -> None:
    maker = parse_asm(_text(_tiny("wide").build(TOY, {"blocks": 2})), "wide.asm")
    with pytest.raises(ConfigError) as caught:
        maker.build(load_chip("toy", overrides=["cores.vector_per_cube=1", "cores.cube=2"]))
    assert str(caught.value) == (
        "wide.asm:16: core0.vec1 does not take part in launch wide, which starts core0.vec0 to core1.vec0 "
        "on toy"
    )
    with pytest.raises(ConfigError) as caught:
        maker.build(load_chip("ascend-310"))
    assert str(caught.value) == (
        "launch wide: ascend-310 has coupled cores, so a vector launch does not fit it"
    )


HEAD = ".schema npusim.asm/1\n.program p\n.segment 0 x f32 8 input\n"
FOOT = ".launch go vector 1\n.core core0.vec0\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.asm:1: the text is empty; it starts with .schema npusim.asm/1"),
        ("# nothing\n\n", "f.asm:2: the text is empty; it starts with .schema npusim.asm/1"),
        (".program p\n", "f.asm:1: the first line, and no other, must be .schema npusim.asm/1"),
        (
            HEAD + ".schema npusim.asm/1",
            "f.asm:4: the first line, and no other, must be .schema npusim.asm/1",
        ),
        (".schema npusim.asm/2", "f.asm:1: schema must be npusim.asm/1, not npusim.asm/2"),
        (".schema", "f.asm:1: write it as .schema ID"),
        (HEAD, "f.asm:3: the text has no .launch, so nothing would run"),
        (HEAD + ".segmnt 1", "f.asm:4: directive '.segmnt' is not known; did you mean .segment?"),
        (HEAD + ".program q", "f.asm:4: the program has a name already, p"),
        (HEAD + ".segment 1 y f32 8", "f.asm:4: write it as .segment INDEX NAME TYPE SHAPE ROLE"),
        (HEAD + ".segment 2 y f32 8 input", "f.asm:4: segments are numbered in order; this is 1, not 2"),
        (HEAD + ".segment 1 x f32 8 input", "f.asm:4: segment x is declared twice"),
        (
            HEAD + ".segment 1 y f33 8 input",
            "f.asm:4: element type 'f33' is not known; did you mean f32?",
        ),
        (HEAD + ".segment 1 y f32 0 input", "f.asm:4: extent must be a whole number from 1 on, not 0"),
        (HEAD + ".segment 1 y f32 8x-2 input", "f.asm:4: extent must be a whole number from 1 on, not -2"),
        (
            HEAD + ".segment 1 y f32 999999999999x999999 input",
            "f.asm:4: segment y of shape 999999999999x999999 is larger than any memory",
        ),
        (
            HEAD + ".segment 1 y f32 8 inputs",
            "f.asm:4: role 'inputs' is not known; did you mean input?",
        ),
        (
            HEAD + ".segment 1 y f32 8 array",
            "f.asm:4: role 'array' is not known; one of input output inout constant workspace",
        ),
        (
            HEAD + ".data 0 eNo=",
            "f.asm:4: segment 0 is no constant declared above; only constants have .data",
        ),
        (
            HEAD + ".data 7 eNo=",
            "f.asm:4: segment 7 is no constant declared above; only constants have .data",
        ),
        (HEAD + ".segment 1 c f32 2 constant\n" + FOOT, "f.asm:4: constant c has no .data"),
        (
            HEAD + ".segment 1 c f32 2 constant\n.data 1 eNpjYGBgAAAABAAB\n" + FOOT,
            "f.asm:4: constant c needs 8 bytes of .data, not 4",
        ),
        (
            HEAD + ".segment 1 c s8 2 constant\n.data 1 eNpjYGBgAAAABAAB\n" + FOOT,
            "f.asm:4: constant c needs 2 bytes of .data, not more than 2",
        ),
        (
            HEAD + ".segment 1 c f32 2 constant\n.data 1 ***\n" + FOOT,
            "f.asm:4: the .data of constant c cannot be read: Only base64 data is allowed",
        ),
        (HEAD + ".param", "f.asm:4: write it as .param NAME JSON"),
        (HEAD + ".param a {", "f.asm:4: not JSON: {"),
        (HEAD + ".param a 1 2", "f.asm:4: not JSON: 1 2"),
        (HEAD + '.launch "go', 'f.asm:4: no word can be read at "go'),
        (HEAD + ".launch go vec 1", "f.asm:4: launch kind 'vec' is not known; did you mean vector?"),
        (HEAD + ".launch go vector x", "f.asm:4: blocks must be a whole number from 1 on, not x"),
        (HEAD + ".core core0.vec0", "f.asm:4: a .core stands below the .launch it takes part in"),
        (
            HEAD + FOOT + ".core vec0",
            "f.asm:6: core 'vec0' must be written as core0.cube0, core0.vec1 or core0.ai0",
        ),
        (HEAD + FOOT + ".core core0.vec0", "f.asm:6: core0.vec0 is in launch go already"),
        (
            HEAD + ".launch go vector 1\nResetMask",
            "f.asm:5: an instruction stands below the .core of its core, not above: ResetMask",
        ),
        (HEAD + FOOT + ".segment 1 y f32 8 input", "f.asm:6: segments stand before the first .launch"),
        (
            HEAD + FOOT + "ResetMask\nResetMusk # x",
            "f.asm:7: instruction 'ResetMusk' is not known; did you mean ResetMask?",
        ),
    ],
)
def test_text_errors(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_asm(text, "f.asm")
    assert str(caught.value) == message


def test_build_errors() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_asm(HEAD + ".launch go mix_1_2 1\n.core core0.vec0\n", "f.asm").build(TOY)
    assert str(caught.value) == (
        "f.asm: launch go starts core0.cube0 on toy, which has no .core line; add one, even for a core that "
        "does nothing"
    )
    with pytest.raises(ConfigError) as caught:
        parse_asm(HEAD.replace(" x ", ' "x y" ') + FOOT, "f.asm").build(TOY)
    assert str(caught.value) == "p: segment x y: a name must be a word of letters, digits and underscores"


_WORDS = [
    ".schema",
    ".segment",
    ".launch",
    ".core",
    ".data",
    ".param",
    "npusim.asm/1",
    "0",
    "x",
    "f32",
    "8",
    "input",
]
_WORDS += [
    "constant",
    "vector",
    "1",
    "core0.vec0",
    "ResetMask",
    "SetFlag",
    "src=MTE2",
    "#",
    '"',
    "\n",
    "eNo=",
    "{}",
    "-1",
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(_WORDS), max_size=12), st.integers(0, 6), st.booleans())
def test_broken_texts_are_errors_of_ours(words: list[str], cut: int, after: bool) -> None:
    lines = (HEAD + FOOT).splitlines()
    text = "\n".join([*lines[:cut], " ".join(words), *(lines[cut:] if after else [])])
    try:
        program = parse_asm(text, "f.asm").build(TOY)
        run(program, TOY, timing_only=True)
    except NpusimError:
        return


def test_every_field_form_is_covered() -> None:
    forms = {f.form for cls in REGISTRY.values() for f in cls.spec}
    assert forms == {"operand", "scalar", "int", "bool", "enum", "dtype", "ints"}
    assert any(f.optional and f.default is not MISSING for cls in REGISTRY.values() for f in cls.spec)
    assert {o.value for o in OriginKind} == {"explicit", "queue", "autosync", "expansion", "pipe_end"}
    assert len({d.short for d in DType}) == len(BY_CODE)
    assert str(Operand(Space.GM, F32, 16, 3)) == "gm3:f32@0x10"


def test_the_file_runs_alone(tmp_path: Path) -> None:
    file = tmp_path / "copy.asm"
    file.write_text(_text(_tiny("copy").build(TOY)))
    shutil.copy(TINY, tmp_path)
    report = run(find_program(str(file)).build(TOY), TOY)
    assert report.program == "copy"
    assert report.outputs["y"].shape == (256,)
