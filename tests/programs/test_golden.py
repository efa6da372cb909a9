"""Cycles by cause of every pipe for the shipped programs: a change here is a change of the model.

Rewrite the files with `pytest tests/programs/test_golden.py --force-regen`, raise `MODEL_REVISION`, and give
the reason in the same commit.
"""

from __future__ import annotations

import pytest

from npusim import simulate
from npusim.program.discover import shipped_programs

RUNS = {
    "memcopy": ("toy", {"n": 1000, "tile": 256}),
    "scan_u": ("toy", {"n": 600, "s": 16}),
    "scan_ul1": ("toy", {"n": 600, "s": 16}),
    "cumsum_vec": ("toy", {"n": 600, "s": 16}),
    "row_scan": ("toy", {"n": 600, "s": 16}),
    "block_scan": ("toy", {"n": 600, "s": 16}),
    "complete_rows": ("toy", {"n": 600, "s": 16}),
    "complete_blocks": ("toy", {"n": 600, "s": 16}),
    "mcscan": ("toy", {"n": 600, "s": 16}),
    "mcscan_ul1": ("toy", {"n": 768, "s": 16}),
    "mmad_repeat": ("toy", {"count": 4, "m": 32, "k_": 32, "n": 64}),
    "load_repeat": ("toy", {"count": 7, "nbytes": 2048}),
    "add_repeat": ("ascend-910b4", {"count": 5, "repeat": 8, "place": "sources"}),
    "path_repeat": ("toy", {"count": 3, "nbytes": 2048}),
    "cube_repeat": ("toy", {"count": 3, "blocks": 4}),
    "bus_share": ("toy", {"count": 5, "nbytes": 2048}),
    "launch_empty": ("toy", {}),
    "gemm": ("toy", {"m": 50, "n": 100, "k": 90, "bm": 32, "bn": 64, "bk": 32, "step_a": 2, "step_b": 1}),
    "copy": ("toy", {"n": 3000, "piece": 512}),
    "cast": ("toy", {"n": 3000, "piece": 512}),
    "add": ("toy", {"n": 3000, "piece": 512}),
    "same_address": ("toy", {"m": 40, "n": 40, "tile_m": 16, "tile_n": 32}),
    "read_tiles": ("toy", {"m": 40, "n": 40, "tile_m": 8, "tile_n": 32, "to": "l1"}),
    "split": ("toy", {"n": 3001, "s": 32}),
    "split_ind": ("toy", {"n": 3001, "s": 32, "generation": "reduce"}),
    "compress": ("toy", {"n": 3001, "s": 32, "density": 0.25}),
    "radix_sort": ("toy", {"n": 1500, "s": 32, "passes": 3}),
    "seg_scan": ("toy", {"n": 3001, "s": 32, "segments": 40}),
    "seg_sum": ("toy", {"n": 3001, "s": 32, "segments": 40}),
    "spmv": ("toy", {"rows": 50, "columns": 300, "nonzeros": 1500, "window": 128, "s": 32}),
    "sort_vec": ("toy", {"n": 1500, "chunk": 128}),
    "topk_vec": ("toy", {"n": 1500, "chunk": 128}),
    "compress_scalar": ("toy", {"n": 300, "density": 0.5}),
    "topk": ("toy", {"n": 1500, "top": 100, "s": 32}),
    "topp": ("toy", {"n": 1100, "s": 32}),
    "topp_vec": ("toy", {"n": 1100, "s": 16, "chunk": 128}),
    "weighted_sample": ("toy", {"n": 3001, "s": 32}),
    "scan_batch": ("toy", {"batch": 3, "length": 600, "s": 16}),
    "scan_batch_vec": ("toy", {"batch": 3, "length": 300, "s": 16}),
    "gdn_layer": ("toy", {"heads": 2, "key_heads": 1, "lengths": "70,5", "key_dim": 16, "value_dim": 32}),
    "tri_inv_mxr": ("toy", {"n": 32, "batch": 3}),
    "tri_inv_mch": ("toy", {"n": 32, "batch": 2}),
    "tri_inv_mbh": ("toy", {"n": 32, "batch": 2}),
    "tri_inv_mcs": ("toy", {"n": 16, "batch": 2}),
    "tri_inv_vcs": ("toy", {"n": 16, "batch": 3}),
    "tri_inv_newton": ("toy", {"n": 32, "batch": 2}),
    "tri_inv_dn": ("toy", {"n": 32, "batch": 2}),
    "tri_inv_sub16": ("ascend-910b4", {"n": 32, "batch": 3}),
}


def test_every_shipped_program_has_a_golden_report():
    assert set(RUNS) == set(shipped_programs())


@pytest.mark.parametrize("name", RUNS)
def test_cycles_by_cause(name, data_regression):
    chip, params = RUNS[name]
    report = simulate(name, chip, **params)
    assert report.values.ok
    pipes = {}
    for pipe, part in report.pipes.items():
        cycles = part.model_dump(exclude={"instructions"})
        assert sum(cycles.values()) == report.total_cycles
        if part.instructions:
            pipes[pipe] = {cause: count for cause, count in cycles.items() if count}
    data_regression.check({"chip": chip, "total_cycles": report.total_cycles, "cycles_by_cause": pipes})
