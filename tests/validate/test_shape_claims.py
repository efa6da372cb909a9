"""The shapes of the scan paper (arXiv 2505.15112): orders, ratios and crossovers, from the kept results where
they have the lengths, and from runs of their own where not.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import npusim
from npusim.validation.page import shipped_validation

MILLION = 1e6


@pytest.fixture(scope="module")
def curves():
    """Return device time in us by length, for every curve of the 910B4 that was published in this form."""
    found: dict[str, dict[int, float]] = {}
    for result in shipped_validation().results:
        name, _, length = result.id.rpartition("-")
        if length.isdigit():
            found.setdefault(name, {})[int(length)] = result.device_us
    return found


def timed(program, n=None, **params):
    size = {} if n is None else {"n": n}
    report = npusim.simulate(program, "ascend-910b4", l2="dirty", timing_only=True, **size, **params)
    return report.time_us


def gb_per_s(curve, nbytes):
    return {n: nbytes * n / us / 1000 for n, us in sorted(curve.items())}


def slope(curve, low, high):
    """Return the marginal time in us per million elements between two lengths, by least squares."""
    chosen = [(n / MILLION, us) for n, us in curve.items() if low <= n / MILLION <= high]
    assert len(chosen) >= 3
    return np.polyfit(*zip(*chosen, strict=True), 1)[0]


def test_larger_tiles_are_faster(curves):
    """Section 4.2: 105 GB/s with s=32, 305 with s=128, between them s=64."""
    n = 2621440
    s16, s32, s64, s128 = (timed("mcscan", n, s=s) for s in (16, 32, 64, 128))
    assert s16 > s32 > s64 > s128
    small = gb_per_s({n: us for n, us in curves["mcscan_s32-fig61"].items() if n > 2 * MILLION}, 6)
    assert all(85 < rate < 125 for rate in small.values())  # saturates early
    large = gb_per_s(curves["mcscan_s128-l2"], 6)
    assert all(b > a * 0.98 for a, b in pairwise(large.values()))  # keeps climbing
    assert large[max(large)] == pytest.approx(305, rel=0.1)


def test_all_cores_against_one(curves):
    """Section 4.3: about 15 times, not 20: shared memory, a barrier, and a second read of the input."""
    n = 5242880
    ratio = timed("scan_u", n, s=128) / timed("mcscan", n, s=128)
    assert 10 < ratio < 18
    kept = next(r for r in shipped_validation().results if r.id == "scan_u-over-mcscan")
    assert 12 < kept.simulated < 18


@pytest.mark.parametrize("n", [5570560, 10813440])
def test_whole_tiles_beat_rows(n):
    """Section 4.4: MCScanUL1 is ahead from 5 M on, though its first phase alone is a little slower."""
    assert timed("mcscan_ul1", n) < timed("mcscan", n)
    rows, blocks = timed("row_scan", n), timed("block_scan", n)
    assert rows < blocks < 1.5 * rows


def test_l2_splitting(curves):
    """Section 4.5: of no use while input and output fit, ahead from 21 M on, 30 % at 100 M; without it the
    bandwidth has its peak near 25 M.
    """
    split, whole = curves["mcscan_s128-l2"], curves["mcscan_nosplit-l2"]
    for n in sorted(split):
        if n < 16 * MILLION:
            assert split[n] >= 0.995 * whole[n], n
        if n > 27 * MILLION:
            assert split[n] < whole[n], n
    assert 1.2 < whole[99942400] / split[99942400] < 1.45
    rates = gb_per_s(whole, 6)
    best = max(rates, key=lambda n: rates[n])
    assert 16 * MILLION < best < 32 * MILLION
    assert rates[99942400] < 0.95 * rates[best]
    assert rates[99942400] == pytest.approx(233, rel=0.12)


def knee(curve, edge):
    """Return where the lines through the points below and above an edge meet, in million elements."""
    below = [(n / MILLION, us) for n, us in curve.items() if 0.3 * edge < n / MILLION < 0.95 * edge]
    above = [(n / MILLION, us) for n, us in curve.items() if 1.1 * edge < n / MILLION]
    (a, b), (c, d) = (np.polyfit(*zip(*part, strict=True), 1) for part in (below, above))
    return (d - b) / (a - c)


def test_the_knee_of_copies(curves):
    """Section 4.6: a copy of halves bends where its 4 bytes an element fill L2 (25.2 M), a cast at 6."""
    copy = curves["copy-fp16-fig62"]
    assert knee(copy, 25.2) == pytest.approx(25.2, abs=1.5)
    assert slope(copy, 8, 24) == pytest.approx(1.5 * slope(copy, 30, 100), rel=0.05)
    rates = gb_per_s(copy, 4)
    assert rates[max(rates)] == pytest.approx(562, rel=0.03)
    shoulder = [rate for n, rate in rates.items() if 18 * MILLION < n < 25 * MILLION]
    assert all(380 < rate < 430 for rate in shoulder)
    cast = {n: timed("cast", n) for n in (6000000, 9000000, 12000000, 20000000, 26000000, 32000000)}
    assert knee(cast, 16.8) == pytest.approx(16.8, abs=1.5)


def test_bytes_against_halves():
    """Section 4.7: int8 is ahead for small inputs and not above 50 M, where every stretch is padded."""
    assert timed("mcscan", 10813440, dtype="int8") < timed("mcscan", 10813440)
    assert timed("mcscan", 52756480, dtype="int8") >= 0.97 * timed("mcscan", 52756480)


def test_batched_scans(curves):
    """Section 4.8: rows of 65,536 are the faster the larger s, and s=128 beats MCScan of one long row."""
    large, small = (gb_per_s(curves[f"scan_batch_s{s}-fig67"], 6) for s in (128, 32))
    assert all(b > a * 0.99 for a, b in pairwise(large.values()))
    assert min(large.values()) > 2 * max(small.values())
    single = gb_per_s(curves["mcscan_s128-l2"], 6)
    assert large[99942400] > 1.2 * single[99942400]
    assert all(140 < rate < 170 for n, rate in small.items() if n > 20 * MILLION)  # flat


def ahead(batch, length):
    """Return which form of the batched scan is ahead."""
    forms = ("scan_u", "scan_ul1")
    return min(forms, key=lambda form: timed("scan_batch", batch=batch, length=length, algorithm=form))


@pytest.mark.parametrize("batch", [19, 24, 64])
@pytest.mark.parametrize("length", [300, 2500, 4096])
def test_many_short_rows_are_for_scan_u(batch, length):
    """Section 4.9: the whole published region, more than 18 rows of at most 4096 elements."""
    assert ahead(batch, length) == "scan_u"


@pytest.mark.parametrize("batch", [2, 5, 8, 13, 17])
@pytest.mark.parametrize("length", [6144, 16384, 65536])
def test_few_long_rows_are_for_scan_ul1(batch, length):
    """Section 4.9: fewer than 18 rows of more than 4096 elements, where the model's border may be at 1.5
    times that length. A single row is left out: its border is near 10,000 elements.
    """
    assert ahead(batch, length) == "scan_ul1"


def test_compress(curves):
    """Section 4.10: about 160 GB/s of 4 bytes in, one for the mask and next to nothing out."""
    rates = gb_per_s(curves["compress-sep17"], 5.004)
    assert rates[max(rates)] == pytest.approx(160, rel=0.2)


def test_radix_sort(curves):
    """Section 4.11: fastest for each element near 5.6 M, where L2 holds it all; and its time goes with the
    number of passes.
    """
    each = {n: us / n for n, us in curves["radix_sort-fig66"].items()}
    assert min(each, key=lambda n: each[n]) == 5570560
    assert each[327680] > 2 * each[5570560]
    assert each[max(each)] > 1.6 * each[5570560]
    all_, half = (timed("radix_sort", 65536, passes=passes) for passes in (16, 8))
    assert 1.85 < all_ / half < 2.05


def test_where_radix_sort_overtakes_a_sort_by_merging(curves):
    """Section 4.11: behind below 0.4 M elements, ahead above 0.5 M."""
    assert curves["radix_sort-fig66"][327680] > timed("sort_vec", 327680)
    for n in (32768, 163840, 393216):
        assert timed("radix_sort", n) > timed("sort_vec", n), n
    assert timed("radix_sort", 589824) < timed("sort_vec", 589824)
