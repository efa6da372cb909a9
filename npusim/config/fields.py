"""The types of a chip's numbers and the words that key its tables."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt, Strict

from npusim.errors import did_you_mean

Cycles = Annotated[int, Field(ge=0)]
Nanoseconds = Annotated[float, Field(ge=0)]
Rate = Annotated[tuple[PositiveInt, PositiveInt, PositiveInt], Strict(False)]
CubeType = Literal["f16", "bf16", "f32", "hf32", "s8", "s4"]
COST_CLASSES = (
    *("two_source", "one_source", "approx", "transcendental", "div", "muladd_dst", "compare", "select"),
    *("cast", "gather_mask", "reduce_block", "reduce_repeat", "reduce_pair", "transpose", "brcb", "gather"),
    *("gather_block", "sort", "merge", "fill", "copy"),
)
VECTOR_TYPES = ("default", "f16", "bf16", "f32", "s4", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")


def _one_of(what: str, known: tuple[str, ...]) -> AfterValidator:
    def check(word: str) -> str:
        if word not in known:
            raise ValueError(f"unknown {what}{did_you_mean(word, known)}")
        return word

    return AfterValidator(check)


CostClass = Annotated[
    str, _one_of("cost class", COST_CLASSES), Field(json_schema_extra={"enum": list(COST_CLASSES)})
]
VectorType = Annotated[
    str, _one_of("element type", VECTOR_TYPES), Field(json_schema_extra={"enum": list(VECTOR_TYPES)})
]
