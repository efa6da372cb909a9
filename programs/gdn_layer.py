"""The chunked Gated DeltaNet layer in six stages (arXiv 2605.21325; facts on megagdn-pto@3a59190)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, Macro, isa, program
from npusim.errors import ConfigError
from npusim.isa.dtype import float_limits

from ._gdn import Across, Down, Layer, Shape, Stage, lengths_of
from ._gdn_h import Recurrence
from ._gdn_inverse import Inverse, Method
from ._gdn_kkt import KeyProducts
from ._gdn_o import Output
from ._gdn_prepare import Prepare
from ._gdn_reference import recurrent
from ._gdn_wy import Weighted
from ._tri import Overflow, keep_infinities

Size = Literal[16, 32, 64, 128]
Stream = Callable[[Kernel], Iterator[isa.Instruction | Macro]]


@program
def gdn_layer(
    k: Builder,
    *,
    heads: PositiveInt = 4,
    key_heads: PositiveInt = 2,
    sequences: PositiveInt = 2,
    length: PositiveInt = 160,
    lengths: str = "",
    chunk: Literal[64, 128] = 64,
    key_dim: Size = 128,
    value_dim: Size = 128,
    dtype: Literal["float16", "bfloat16"] = "float16",
    gate: bool = True,
    inverse: Method = "mxr",
    reuse: bool = False,
    fused: bool = False,
    down: Down = "copies",
    across: Across = "blocks",
    overflow: Overflow = "ieee",
) -> None:
    """Run a Gated DeltaNet layer over packed sequences, chunk by chunk, in six stages on all cores.

    S = exp(g) S + k (beta (v - exp(g) S^T k))^T and o = S^T q for every token, head and sequence, from S = 0;
    value heads share key heads evenly; without `gate` it is DeltaNet. Stages: sums of gates and transposes;
    A = strict lower part of beta K K^T with decay; T = (I + A)^-1; W and U from T; the state from chunk to
    chunk, one head of a sequence a core; O. They are launches of their own, or one launch in which all cores
    meet between them (`fused`). Mapping and order of steps are those of the published kernels; `down` and
    `across` say how vector cores spread a row and a column over a tile.
    """
    most = (k.chip.hbm.size_gib << 30) // (2 * heads * value_dim)
    shape = Shape(
        lengths_of("gdn_layer", sequences, length, lengths, most), heads, key_heads, chunk, key_dim, value_dim
    )
    shape.check("gdn_layer")
    layer = Layer(k, shape, dtype, gate=gate, down=down, across=across)
    inversion = Inverse(k, layer, inverse, reuse, overflow)
    after: list[Stage] = [Weighted(layer), Recurrence(layer), Output(layer)]
    prepare = Prepare(layer, k.chip.cores.vector_per_cube)
    stages: list[Stage] = [prepare, KeyProducts(layer), inversion, *after]
    launch = _launch_together if fused else _launch_apart
    launch(k, layer, overflow, stages)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        unit = float(float_limits(layer.dtype.np).eps) / 2
        return recurrent(inputs, shape, unit, gate=gate)


def _launch_apart(k: Builder, layer: Layer, overflow: Overflow, stages: list[Stage]) -> None:
    """Launch one stage after the other, each on the kinds of cores that have a part in it."""
    for stage in stages:
        cube, vector = _alone(stage.cube, overflow), _alone(stage.vector, overflow)
        if stage.on == "both":
            k.launch(stage.name, cube=cube, vector=vector, blocks=layer.cores)
        elif stage.on == "cube":
            k.launch(stage.name, cube=stage.cube, blocks=layer.cores)  # switches by itself
        else:
            k.launch(stage.name, vector=vector, blocks=layer.cores * k.chip.cores.vector_per_cube)


def _alone(stream: Stream, overflow: Overflow) -> Stream:
    """Return a stream that starts with the switch to IEEE arithmetic, where it is asked for."""

    def whole(c: Kernel) -> Iterator[isa.Instruction | Macro]:
        yield from keep_infinities(overflow)
        yield from stream(c)

    return whole


def _launch_together(k: Builder, layer: Layer, overflow: Overflow, stages: list[Stage]) -> None:
    """Launch all stages at once; all cores meet between two of them, and each starts with empty memories."""

    def whole(c: Kernel, streams: list[Stream]) -> Iterator[isa.Instruction | Macro]:
        yield from keep_infinities(overflow)
        for number, stream in enumerate(streams):
            if number:
                yield from c.sync_all()
            yield from stream(Kernel(c.chip, c.core, c.block, c.launch))

    k.launch(
        "gdn_layer",
        cube=lambda c: whole(c, [stage.cube for stage in stages]),
        vector=lambda c: whole(c, [stage.vector for stage in stages]),
        blocks=layer.cores,
    )


@gdn_layer.from_inputs
def sizes(inputs: Mapping[str, np.ndarray], given: Mapping[str, Any]) -> dict[str, object]:
    """Return the parameters that the arrays decide; how tokens make sequences must be said.

    Raises `ConfigError` where the sequences that are given have not the tokens of the arrays.
    """
    tokens = {inputs[name].shape[0] for name in ("q", "k", "v", "beta", "g") if name in inputs}
    found = _sequences(tokens.pop(), given) if len(tokens) == 1 else {}
    if "k" in inputs:
        found |= {"key_heads": inputs["k"].shape[1], "key_dim": inputs["k"].shape[2]}
        found["dtype"] = inputs["k"].dtype.name
    if "v" in inputs:
        found |= {"heads": inputs["v"].shape[1], "value_dim": inputs["v"].shape[2]}
    return found


def _sequences(tokens: int, given: Mapping[str, Any]) -> dict[str, object]:
    """Return what is left to decide of `sequences` of `length` tokens where one of both is given."""
    number, length = (str(given.get(n, gdn_layer.parameters()[n][1])) for n in ("sequences", "length"))
    if not number.isdecimal() or not length.isdecimal() or int(number) * int(length) == 0:
        return {}  # refused for itself
    if given.get("lengths"):
        shown = f"lengths={given['lengths']}"
        words = str(given["lengths"]).split(",")
        there = sum(int(word) for word in words) if all(w.strip().isdecimal() for w in words) else tokens
    else:
        shown, there = f"sequences={number} of length={length}", int(number) * int(length)
        if "sequences" in given and "length" not in given and tokens % int(number) == 0:
            return {"length": tokens // int(number)}
        if "length" in given and "sequences" not in given and tokens % int(length) == 0:
            return {"sequences": tokens // int(length)}
    if there != tokens:
        raise ConfigError(
            f"gdn_layer: the inputs have {tokens} tokens, but {shown} have {there}; "
            f"give lengths={tokens} for one sequence"
        )
    return {}
