"""Families of strictly triangular matrices, as the tests and benchmarks of triangular inverses make them.

    make("correlated", generator, 8, 64)        8 strictly upper triangular 64 x 64 matrices in float64

The constructions are those of the kernels' tests and of the accuracy notebook of arXiv 2605.21325; the layer
families are what chunked delta-rule layers invert: strictly triangular (beta K K^T) times gates.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from npusim.errors import ConfigError, did_you_mean

Array = np.ndarray[Any, Any]

Family = Literal[
    "uniform", "zeros", "ones", "block_ones", "block_uniform", "keys", "gated_keys", "correlated_keys"
]
FAMILIES: tuple[str, ...] = get_args(Family)
BLOCK = 16
"""Side of the diagonal blocks of the block families."""
KEY_LENGTH = 128
_SHARED = 0.4
"""Mean cosine between two correlated keys."""


def make(family: str, generator: np.random.Generator, count: int, n: int, scale: float = 0.1) -> Array:
    """Return `count` strictly upper triangular n x n matrices in float64, as a (count, n, n) array.

    `uniform` and `block_uniform` are `scale` times uniform numbers from 0 to 1; the `block` families are zero
    outside diagonal blocks of 16. The `keys` families are beta_i (k_i . k_j) for i > j, transposed, with
    normalised keys of 128 normal numbers and beta = sigmoid(normal); `gated_keys` multiplies by the decay
    from j to i under gates logsigmoid(normal), and in `correlated_keys` two keys have a cosine of about 0.4.

    Raises `ConfigError` for an unknown family and for extents below 1.
    """
    if family not in FAMILIES:
        raise ConfigError(
            f"triangular inputs: no family {family}{did_you_mean(family, list(FAMILIES))}; families: "
            f"{' '.join(FAMILIES)}"
        )
    if count < 1 or n < 1:
        raise ConfigError(f"triangular inputs: count={count} n={n}: both must be 1 or more")
    if family.endswith("keys"):
        return _keys(family, generator, count, n)
    if family in ("uniform", "block_uniform"):
        full = scale * generator.random((count, n, n))
    else:
        full = np.full((count, n, n), 0.0 if family == "zeros" else 1.0)
    if family.startswith("block"):
        block = np.arange(n) // BLOCK
        full = full * (block[:, None] == block[None, :])
    return np.triu(full, 1)


def _keys(family: str, generator: np.random.Generator, count: int, n: int) -> Array:
    keys = generator.standard_normal((count, n, KEY_LENGTH))
    if family == "correlated_keys":
        common = generator.standard_normal((count, 1, KEY_LENGTH))
        keys = keys + np.sqrt(_SHARED / (1 - _SHARED)) * common
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    beta = 1 / (1 + np.exp(-generator.standard_normal((count, n))))
    lower = beta[:, :, None] * (keys @ keys.transpose(0, 2, 1))
    if family == "gated_keys":
        decay = np.cumsum(-np.log1p(np.exp(-generator.standard_normal((count, n)))), axis=1)
        lower *= np.exp(np.minimum(decay[:, :, None] - decay[:, None, :], 0))
    return np.triu(lower.transpose(0, 2, 1), 1)
