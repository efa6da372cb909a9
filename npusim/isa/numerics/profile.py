"""Numerics profiles: frozen records that say, without naming an implementation, what the cube and the vector
unit compute bit for bit.

Two rules that compare equal give equal bits on every input, every host and every BLAS (the `float64` rule
excepted, which says so). A profile is named in every report and goes into the run id through `to_dict()`.

Confidence: `H` vendor documentation or recorded hardware output, `M` one indirect measurement or a consistent
inference, `L` a guess.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

from npusim.errors import ConfigError, OperandError, did_you_mean

Summation = Literal["integer", "sequential", "tree", "fused-exact", "fused-aligned", "float64"]
Rounding = Literal["rne", "rz", "rd", "ru", "rna", "odd"]
"""Nearest even, toward zero, down, up, nearest with ties away from zero, to odd."""


@dataclass(frozen=True, kw_only=True)
class CubeNumerics:
    """What `acc + a @ b` means for one operand type. Products are always exact.

    A rule that names an option its summation does not have raises `ValueError`: no field is ever ignored.
    """

    summation: Summation
    """How the products of one block of `k0` and the accumulator are combined:

    - `fused-exact`: all added in real arithmetic, then rounded once.
    - `fused-aligned`: each term, the accumulator included, truncated to `align_frac` fraction bits below
      the largest exponent among them, added, rounded once (the tensor-core rule of arXiv 2511.10909).
    - `sequential`: one float32 FMA per product, k ascending (`k0` is 1).
    - `tree`: products rounded to float32, a balanced tree of float32 adds over adjacent pairs, then one
      float32 add of the accumulator.
    - `float64`: the whole K in float64 BLAS, one cast. Fast; the last bit may differ between hosts (`k0` 0).
    - `integer`: exact, saturating to int32 once per Mmad (`k0` 0: no grouping can be seen in the result).
    """
    k0: int
    """Products reduced together between two writes of the accumulator."""
    rounding: Rounding = "rne"
    """Rounding of the accumulator; only the two `fused` rules can take another than `rne`."""
    align_frac: int | None = None
    """`fused-aligned`: fraction bits kept below the largest exponent."""
    align_min_exp: int | None = None
    """`fused-aligned`: the lowest exponent the alignment uses, if it has one."""
    subnormals: Literal["keep", "flush"] = "keep"
    """`flush`: subnormal operands and accumulators are read as 0, and each write of one stores 0."""
    input_frac: int | None = None
    """float32 operands: fraction bits they are rounded to first (HF32, TF32)."""
    input_rounding: Rounding = "rne"
    """How `input_frac` rounds: `rne`, `rna` or `rz`."""
    confidence: str = "L"
    sources: str = ""

    def __post_init__(self) -> None:
        whole_k = self.summation in ("integer", "float64")
        aligned, fused = self.summation == "fused-aligned", self.summation.startswith("fused")
        expected_k0 = {"sequential": self.k0 == 1, "integer": self.k0 == 0, "float64": self.k0 == 0}
        rules = {
            f"summation must be one of {', '.join(get_args(Summation))}": self.summation
            in get_args(Summation),
            "k0 must be 1 for sequential, 0 for integer and float64, else at least 1": expected_k0.get(
                self.summation, self.k0 >= 1
            ),
            "rounding must be rne unless the summation is fused": fused or self.rounding == "rne",
            "k0 must be at most 1024": self.k0 <= 1024,
            "k0 must be a power of two for tree": self.summation != "tree" or self.k0 & (self.k0 - 1) == 0,
            "align_frac goes with fused-aligned": aligned == (self.align_frac is not None),
            "align_frac must be 1 to 40": self.align_frac is None or 1 <= self.align_frac <= 40,
            "align_min_exp goes with fused-aligned": aligned or self.align_min_exp is None,
            "input_rounding must be rne, rna or rz": self.input_rounding in ("rne", "rna", "rz"),
            "input_rounding goes with input_frac": self.input_frac is not None
            or self.input_rounding == "rne",
            "input_frac must be 1 to 22": self.input_frac is None or 1 <= self.input_frac <= 22,
            "subnormals must be keep for integer and float64": not whole_k or self.subnormals == "keep",
        }
        for rule, holds in rules.items():
            if not holds:
                raise ValueError(f"cube rule: {rule}, not {self}")


@dataclass(frozen=True, kw_only=True)
class CubeRules:
    """One `CubeNumerics` per operand type of the cube; `None` where the engine does not have the type.

    `hf32` and `hf32_away` are float32 operands with HF32 mode on, rounding modes 0 and 1.
    """

    f16: CubeNumerics | None = None
    bf16: CubeNumerics | None = None
    f32: CubeNumerics | None = None
    hf32: CubeNumerics | None = None
    hf32_away: CubeNumerics | None = None
    s8: CubeNumerics | None = None
    s4: CubeNumerics | None = None


@dataclass(frozen=True, kw_only=True)
class VectorNumerics:
    """What the vector unit may decide where IEEE 754 leaves room.

    Add, Sub, Mul and the fused multiply-adds are correctly rounded with subnormals and have no option
    (vendor accuracy table: 0 ulp). Exp, Ln, Sqrt, Rsqrt, Rec and Div return the correctly rounded result of
    the (flushed) input, which lies inside the documented 1 ulp.
    """

    daz: bool = True
    """Exp, Ln, Sqrt, Rsqrt, Rec, Div: subnormal inputs are read as 0."""
    ftz: bool = True
    """Exp, Ln, Sqrt, Rsqrt, Rec, Div: subnormal results are written as 0 of the same sign."""
    rec_bits_f16: int | None = None
    """Rec and Rsqrt: significant bits the correctly rounded float16 result is rounded to once more. A stress
    option: the A2 instructions are documented to be worse than 1 ulp, but not how."""
    rec_bits_f32: int | None = None
    """The same for float32 results."""
    nan: Literal["number", "propagate"] = "number"
    """Max, Min, Relu and their reductions: a number wins over NaN, or NaN wins."""
    confidence: str = "M"
    sources: str = ""

    def __post_init__(self) -> None:
        for name, bits, most in (("f16", self.rec_bits_f16, 11), ("f32", self.rec_bits_f32, 24)):
            if bits is not None and not 2 <= bits <= most:
                raise ValueError(f"vector rule: rec_bits_{name} must be 2 to {most}, not {bits}")
        if self.nan not in ("number", "propagate"):
            raise ValueError(f"vector rule: nan must be number or propagate, not {self.nan}")


@dataclass(frozen=True, kw_only=True)
class NumericsProfile:
    """The numerics of one machine: cube rules, vector rules, and reset values of the saturation controls."""

    name: str
    cube: CubeRules
    vector: VectorNumerics = VectorNumerics()
    saturate: bool
    """Reset state of float saturation (CTRL[48] = 0): infinities become the largest number and NaN becomes 0,
    in the cube and in float16 vector arithmetic."""
    saturate_int: bool = False
    """Reset state of saturation in integer vector arithmetic (CTRL[53])."""
    confidence: str
    sources: str

    def cube_rule(self, key: str) -> CubeNumerics:
        """The rule for operand type `key`, a field of `CubeRules`; `OperandError` if the cube lacks it."""
        rule: CubeNumerics | None = getattr(self.cube, key, None)
        if rule is None:
            known = [k for k, r in vars(self.cube).items() if r is not None]
            raise OperandError(
                f"numerics {self.name}: the cube has no rule for {key}; it has {', '.join(known)}"
            )
        return rule

    def to_dict(self) -> dict[str, Any]:
        """The profile as plain JSON types, in field order."""
        return asdict(self)


_CUBE_TABLE = "asc-devkit Cube指令理论性能汇总.md (m, n, k per cycle)"
_FUSED_WHY = (
    f"k0 {_CUBE_TABLE}; one rounding to nearest inferred from the float32 error figures of Jittor PR 18025 "
    "and pypto PR 2326"
)
_HF32_WHY = "ATC --allow_hf32 page (11 bits); asc-devkit HF32.md (10 bits on 950); pto-isa mad.md (ties away)"
_INT_WHY = "asc-devkit Mmad.md: integers only saturate"
_MMA_SIM = "MMA-Sim arXiv 2511.10909; checked bit for bit against the MATLAB-tensor-core recorded vectors"


def _fused(k0: int, confidence: str, **options: Any) -> CubeNumerics:
    why = _HF32_WHY if "input_frac" in options else _FUSED_WHY
    return CubeNumerics(summation="fused-exact", k0=k0, confidence=confidence, sources=why, **options)


def _aligned(k0: int, frac: int, min_exp: int | None, **options: Any) -> CubeNumerics:
    return CubeNumerics(
        summation="fused-aligned", k0=k0, align_frac=frac, align_min_exp=min_exp, rounding="rz",
        confidence="H", sources=_MMA_SIM, **options,
    )  # fmt: skip


def _same_for_floats(rule: CubeNumerics) -> CubeRules:
    def hf32(rounding: Rounding) -> CubeNumerics:
        fields = {**vars(rule), "input_frac": 11, "input_rounding": rounding}
        return CubeNumerics(**fields)

    return CubeRules(
        f16=rule, bf16=rule, f32=rule, hf32=hf32("rne"), hf32_away=hf32("rna"), s8=_INTEGER, s4=_INTEGER
    )


_INTEGER = CubeNumerics(summation="integer", k0=0, confidence="H", sources=_INT_WHY)
_VECTOR = VectorNumerics(
    confidence="M",
    sources="asc-devkit Reg矢量计算接口精度标准汇总.md (950; taken over for A2); max, min: pto-spec ADR-0050",
)
_PRESETS = (
    NumericsProfile(
        name="ascend-a2",
        cube=CubeRules(
            f16=_fused(16, "M"),
            bf16=_fused(16, "M"),
            f32=_fused(4, "M"),
            hf32=_fused(8, "M", input_frac=11),
            hf32_away=_fused(8, "L", input_frac=11, input_rounding="rna"),
            s8=_INTEGER,
            s4=_INTEGER,
        ),
        vector=_VECTOR,
        saturate=True,
        confidence="M",
        sources="Atlas A2 and A3: see each rule; saturation: asc-devkit Mmad.md, asc_set_ctrl.md",
    ),
    NumericsProfile(
        name="ascend-950",
        cube=CubeRules(
            f16=_fused(16, "L"),
            bf16=_fused(16, "L"),
            f32=_fused(1, "L"),
            hf32=_fused(8, "L", input_frac=10),
            hf32_away=_fused(8, "L", input_frac=10, input_rounding="rna"),
            s8=_INTEGER,
        ),
        vector=_VECTOR,
        saturate=True,
        confidence="L",
        sources="950: block sizes as documented, one rounding by analogy with A2; no int4",
    ),
    NumericsProfile(
        name="ascend-a1",
        cube=CubeRules(f16=_fused(16, "L"), s8=_INTEGER),
        vector=_VECTOR,
        saturate=True,
        confidence="L",
        sources="910A, 310, 310P: block sizes as documented, one rounding by analogy with A2",
    ),
    NumericsProfile(
        name="ieee-sequential-fp32",
        cube=_same_for_floats(
            CubeNumerics(summation="sequential", k0=1, confidence="H", sources="pto-spec ADR-0047")
        ),
        vector=_VECTOR,
        saturate=False,
        confidence="H",
        sources="exact by definition; a formal specification, not a measured machine",
    ),
    NumericsProfile(
        name="tree16-fp32",
        cube=_same_for_floats(
            CubeNumerics(summation="tree", k0=16, confidence="L", sources="the pairwise class of MMA-Sim")
        ),
        vector=_VECTOR,
        saturate=False,
        confidence="L",
        sources="an alternative hypothesis for what-if runs",
    ),
    NumericsProfile(
        name="nvidia-hopper-like",
        cube=CubeRules(
            f16=_aligned(16, 25, -133),
            bf16=_aligned(16, 25, -133),
            f32=_aligned(8, 25, -133, input_frac=10, input_rounding="rz"),
            s8=_INTEGER,
        ),
        vector=_VECTOR,
        saturate=False,
        confidence="H",
        sources=f"{_MMA_SIM}; float32 operands as TF32",
    ),
    NumericsProfile(
        name="nvidia-ampere-like",
        cube=CubeRules(
            f16=_aligned(8, 24, -132),
            bf16=_aligned(8, 24, -132),
            f32=_aligned(4, 24, -132, input_frac=10, input_rounding="rz"),
            s8=_INTEGER,
            s4=_INTEGER,
        ),
        vector=_VECTOR,
        saturate=False,
        confidence="H",
        sources=f"{_MMA_SIM}; float32 operands as TF32",
    ),
    NumericsProfile(
        name="nvidia-volta-like",
        cube=CubeRules(f16=_aligned(4, 23, None)),
        vector=_VECTOR,
        saturate=False,
        confidence="H",
        sources=_MMA_SIM,
    ),
    NumericsProfile(
        name="fast",
        cube=_same_for_floats(
            CubeNumerics(summation="float64", k0=0, confidence="L", sources="float64 BLAS, one cast per Mmad")
        ),
        vector=_VECTOR,
        saturate=True,
        confidence="L",
        sources="for big timing runs; float results are not bit-exact between hosts",
    ),
)

PROFILES: dict[str, NumericsProfile] = {p.name: p for p in _PRESETS}
"""The presets by name; `DEFAULT_PROFILE` is the one for A2 and A3 chips."""

DEFAULT_PROFILE = PROFILES["ascend-a2"]


@lru_cache(maxsize=64)
def get_profile(name: str) -> NumericsProfile:
    """The preset called `name`; `ConfigError` with the closest known name otherwise."""
    try:
        return PROFILES[name]
    except KeyError:
        raise ConfigError(f"numerics {name}: unknown profile{did_you_mean(name, PROFILES)}") from None
