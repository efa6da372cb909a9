"""Numerics of the cube and the vector unit: one answer, bit for bit, on every host, BLAS and thread count.

All functions take and return plain NumPy arrays, raise `ValueError` or `TypeError` for misuse, return *new*
arrays and never write to their operands. They expect the caller to hold `np.errstate(all="ignore")` once
around a run (nothing here enters it per call); results do not depend on it. Element types are
`npusim.isa.dtype.DType`.

    profile  NumericsProfile(name, cube: CubeRules, vector: VectorNumerics, saturate, saturate_int, ...)
             .cube_rule("f16" | "bf16" | "f32" | "hf32" | "hf32_away" | "s8" | "s4") -> CubeNumerics
             .to_dict()    PROFILES    DEFAULT_PROFILE ("ascend-a2")    get_profile(name)
    cube     matmul(rule, a, b, acc, *, saturate) -> (m, n) float32, or int32 for integer operands
             prepare(rule, x, side="left" | "right") -> Prepared, to cache with an L0A or L0B tile
    vector   add sub mul(a, b, dtype, *, saturate)               div(a, b, dtype, rules, *, saturate)
             maximum minimum(a, b, dtype, rules, *, saturate)    muladd(a, b, c, dtype, *, saturate)
             abs_(x, dtype, *, saturate)                         relu(x, dtype, rules, *, saturate)
             exp ln sqrt rsqrt rec(x, dtype, rules, *, saturate)
             shift_left(x, count, dtype)    shift_right(x, count, dtype, *, round_half=False)
             and_ or_(a, b)  not_(x)        compare("LT" | "GT" | "EQ" | "LE" | "GE" | "NE", a, b) -> bool
    cast     RoundMode  CAST_MODES[(src, dst)] -> frozenset[RoundMode]
             cast(x, src, dst, mode, *, saturate)      dequant_s32_f16(x, scale, *, saturate)
             requant_b8(x, scale, offset, dst)         scale_1_8_10(scale)
    reduce   tree_sum(x, dtype, *, mask=None, saturate)
             tree_max tree_min(x, dtype, rules, *, mask=None) -> (values, lanes)

`rules` is `profile.vector`. `saturate` is the run-time control state, not the profile: CTRL[48] = 0 for the
cube and for float16, CTRL[53] = 1 for integer vector arithmetic; float32 vector arithmetic ignores it and
keeps infinities and NaN. A profile gives the reset values (`saturate`, `saturate_int`). NaN results are
always the one canonical NaN of the format, and the cube writes +0 for every zero.
"""
