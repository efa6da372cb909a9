"""Shipped programs on every chip that has the cores for them, in every state of the cache."""

from __future__ import annotations

import pytest

from npusim import load_chip, simulate
from npusim.config.find import chip_names
from npusim.errors import ConfigError

RUNS = {
    "memcopy": {"n": 5000, "tile": 512},
    "scan_u": {"n": 3000, "s": 32},
    "scan_ul1": {"n": 3000, "s": 32},
    "cumsum_vec": {"n": 600, "s": 16},
    "row_scan": {"n": 3000, "s": 32},
    "block_scan": {"n": 900, "s": 32},
    "complete_rows": {"n": 3000, "s": 32},
    "complete_blocks": {"n": 3000, "s": 32},
    "mcscan": {"n": 3000, "s": 32},
    "mcscan_ul1": {"n": 3072, "s": 32},
    "mmad_repeat": {"count": 4, "m": 32, "k_": 32, "n": 64},
    "load_repeat": {"count": 7, "nbytes": 2048},
    "add_repeat": {"count": 5, "repeat": 8},
    "path_repeat": {"count": 3, "nbytes": 2048},
    "cube_repeat": {"count": 3, "blocks": 4},
    "bus_share": {"count": 5, "nbytes": 2048},
    "launch_empty": {},
    "gemm": {"m": 50, "n": 100, "k": 90, "bm": 32, "bn": 64, "bk": 32, "step_a": 2, "step_b": 1},
    "copy": {"n": 5000, "piece": 1024},
    "cast": {"n": 5000, "piece": 1024},
    "add": {"n": 5000, "piece": 1024},
    "same_address": {"m": 40, "n": 40, "tile_m": 16, "tile_n": 32},
    "read_tiles": {"m": 40, "n": 40, "tile_m": 8, "tile_n": 32, "to": "l1"},
    "split": {"n": 3001, "s": 32, "density": 1},
    "split_ind": {"n": 3001, "s": 32, "density": 0, "generation": "reduce"},
    "compress": {"n": 3001, "s": 32, "density": 1},
    "radix_sort": {"n": 1500, "s": 32, "passes": 2, "generation": "reduce"},
    "seg_scan": {"n": 3001, "s": 32, "segments": 40},
    "seg_sum": {"n": 3001, "s": 32, "segments": 40},
    "spmv": {"rows": 50, "columns": 300, "nonzeros": 1500, "window": 128, "s": 32},
    "sort_vec": {"n": 1500, "chunk": 128},
    "topk_vec": {"n": 1500, "chunk": 128},
    "compress_scalar": {"n": 300, "density": 0.5},
    "topk": {"n": 1100, "top": 100, "s": 32},
    "topp": {"n": 1100, "s": 32},
    "topp_vec": {"n": 1100, "s": 16, "chunk": 128},
    "weighted_sample": {"n": 3001, "s": 32, "generation": "reduce"},
    "scan_batch": {"batch": 5, "length": 300, "s": 16},
    "scan_batch_vec": {"batch": 5, "length": 300, "s": 16},
    "gdn_layer": {
        "heads": 2,
        "key_heads": 1,
        "lengths": "70,5",
        "key_dim": 16,
        "value_dim": 32,
        "fused": True,
    },
    "tri_inv_mxr": {"n": 32, "batch": 3},
    "tri_inv_mch": {"n": 16, "batch": 2},
    "tri_inv_mbh": {"n": 16, "batch": 2},
    "tri_inv_mcs": {"n": 16, "batch": 1},
    "tri_inv_vcs": {"n": 16, "batch": 1},
    "tri_inv_newton": {"n": 16, "batch": 2},
    "tri_inv_dn": {"n": 32, "batch": 1},
    "tri_inv_sub16": {"n": 32, "batch": 1},
}
COUPLED = {"path_repeat", "cube_repeat", "bus_share", "launch_empty", "gemm"}
"""Programs that run on coupled chips, too."""
FIRST_LAUNCH = {"topp": "radix_sort", "topp_vec": "sort_vec", "weighted_sample": "mcscan"}
"""Launches that are not called as their program."""
BY_VALUE = {
    "radix_sort",
    "seg_scan",
    "seg_sum",
    "sort_vec",
    "spmv",
    "topk",
    "topp",
    "topp_vec",
    "weighted_sample",
}
"""Programs that go on as their values tell them; without values they take what they declare."""
CHIPS = sorted(chip_names())


@pytest.mark.parametrize("chip", CHIPS)
def test_right_values_and_no_time_below_a_bound(chip):
    chip = load_chip(chip)
    for name, params in RUNS.items():
        if chip.coupled and name not in COUPLED:
            first = FIRST_LAUNCH.get(name, name)
            with pytest.raises(ConfigError, match=rf"^launch {first}: {chip.name} has coupled cores, so a "):
                simulate(name, chip, **params)
            continue
        if name in ("add_repeat", "tri_inv_sub16") and chip.buffers.ub_kib < 128:
            continue  # made for the unified buffer of a real device
        totals = {}
        for l2 in ("cold", "warm", "dirty"):
            report = simulate(name, chip, l2=l2, **params)
            bounds = report.bounds.model_dump(exclude={"binding"})
            assert report.values.ok, (name, l2)
            assert report.total_cycles >= max(bounds.values()), (name, l2)
            assert bounds[f"{report.bounds.binding}_cycles"] == max(bounds.values())
            for pipe in report.pipes.values():
                assert sum(pipe.model_dump(exclude={"instructions"}).values()) == report.total_cycles
            totals[l2] = report.total_cycles
        assert totals["warm"] <= totals["cold"] <= totals["dirty"], name


@pytest.mark.parametrize("name", RUNS)
def test_values_and_checks_leave_the_time_alone(name):
    full = simulate(name, "ascend-910b4", **RUNS[name])
    alone = simulate(name, "ascend-910b4", timing_only=True, **RUNS[name])
    unchecked = simulate(name, "ascend-910b4", check=False, **RUNS[name])
    assert not alone.values.checked
    assert alone.outputs == {}
    rest = {"values", "run_id"}
    if name not in BY_VALUE:
        assert alone.model_dump(exclude=rest) == full.model_dump(exclude=rest)
    assert unchecked.model_dump(exclude={"run_id"}) == full.model_dump(exclude={"run_id"})
    for output in full.outputs:
        assert unchecked.outputs[output].tobytes() == full.outputs[output].tobytes()
