"""Every distribution of x stays in its dtype, is finite where promised, and hits what it says."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from strategies.caps import as_fp32
from strategies.case import Case
from strategies.dtypes import DTYPES, FORMATS, TORCH, from_bits, ordinal, to_bits
from strategies.values import FINITE, SEAMS, VALUES, domain, literal

CAPS = (2.0**-60, 2.0**-20, 1, 7.3, 30.0, 2.0**20, 2.0**60)
COUNT = 4096


def built(family: str, dtype: str, cap: float, count: int = COUNT) -> Tensor:
    return Case((count,), dtype, cap, values=family, seed=2).x()


def scaled(x: Tensor, cap: float) -> Tensor:
    """|x / cap| in FP64."""
    return x.to(torch.float64).abs() / as_fp32(cap)


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_finite_families_are_finite_and_every_family_is_of_its_dtype(dtype: str, cap: float) -> None:
    for family in VALUES:
        x = built(family, dtype, cap)
        assert x.dtype == TORCH[dtype]
        assert family not in FINITE or bool(x.isfinite().all()), family


# The z of each family, before the one rounding to the dtype.
RANGES = {"linear": (0.0, 0.5), "transition": (0.5, 3.0), "saturation": (3.0, 12.0), "beyond": (12.0, math.inf),
          "tiny": (0.0, 2.0**-12), "constant": (0.5, 3.0), "ramp": (0.0, 12.0)}  # fmt: skip


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", RANGES)
def test_families_stay_in_their_range_of_z_where_the_dtype_has_one(
    family: str, dtype: str, cap: float
) -> None:
    low, high, cap = *RANGES[family], as_fp32(cap)
    largest, spacing = torch.finfo(TORCH[dtype]).max, 2.0 ** (FORMATS[dtype].emin - FORMATS[dtype].digits + 1)
    x = built(family, dtype, cap).to(torch.float64).abs()
    slack = 2.0 ** -FORMATS[dtype].digits
    if low * cap * (1 - slack) > largest:
        assert bool((x == largest).all())
        return
    assert float(x.min()) >= min(low * cap * (1 - slack) - spacing / 2, largest)
    assert float(x.max()) <= max(high * cap * (1 + slack) + spacing / 2, spacing)


@pytest.mark.parametrize("cap", [2.0**-60, 1, 30.0, 2.0**60])
@pytest.mark.parametrize("family", ["linear", "transition", "saturation", "ramp"])
def test_families_fill_their_range_evenly(family: str, cap: float) -> None:
    low, high = RANGES[family]
    x = built(family, "fp32", cap, 3073)  # one period of the ramp
    z = scaled(x, cap)
    counts = torch.histc(z.to(torch.float32), bins=8, min=low, max=high)
    assert float(counts.min()) > 3073 / 8 * 0.7
    negative = float((x < 0).to(torch.float64).mean())
    assert 0.4 < negative < 0.6


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("cap", CAPS)
def test_beyond_and_tiny_reach_the_ends(dtype: str, cap: float) -> None:
    beyond = built("beyond", dtype, cap).abs()
    assert float(beyond.max()) > torch.finfo(TORCH[dtype]).max * 2.0**-3
    assert float(scaled(beyond, cap).min()) < 12 * 2**3
    tiny = built("tiny", dtype, cap).abs()
    assert 0 < float(tiny.min()) < torch.finfo(TORCH[dtype]).smallest_normal
    assert float(scaled(tiny, cap).max()) > 2.0**-15


@pytest.mark.parametrize("dtype", DTYPES)
def test_families_of_patterns(dtype: str) -> None:
    form, top = FORMATS[dtype], (1 << FORMATS[dtype].width) - 1
    assert set(to_bits(built("signed_zeros", dtype, 30)).tolist()) == {0, form.sign}
    subnormal = to_bits(built("subnormals", dtype, 30)) & (form.sign - 1)
    assert int(subnormal.min()) > 0
    assert int(subnormal.max()) < form.smallest_normal
    some = to_bits(built("bits", dtype, 30, 1 << 14))
    assert len(some.unique()) > 10_000
    assert int(some.max()) > top - (top >> 8)
    assert bool(built("bits", dtype, 30).isnan().any())
    exponents = (to_bits(built("finite_bits", dtype, 30)) & (form.sign - 1)) >> (form.digits - 1)
    assert set(exponents.tolist()) == set(range(form.infinity >> (form.digits - 1)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_specials_hold_each_special_value_with_both_signs(dtype: str) -> None:
    form, x = FORMATS[dtype], built("specials", dtype, 30)
    wanted = {0, 1, form.smallest_normal, form.largest, form.infinity, form.quiet_nan}
    assert {sign + bits for sign in (0, form.sign) for bits in wanted} <= set(to_bits(x).tolist())


@pytest.mark.parametrize("cap", [1, 30.0, 7.3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_seams_come_from_both_sides_of_every_point(dtype: str, cap: float) -> None:
    z = scaled(built("seams", dtype, cap), cap)
    for point in SEAMS:
        near = z[(z / point - 1).abs() < 2.0 ** (3 - FORMATS[dtype].digits)]
        assert float(near.min()) < point < float(near.max())


@pytest.mark.parametrize("cap", [1, 20, 30.0, 50.0, 2.0**-60])
def test_the_overflow_of_naive_exponentials_is_crossed(cap: float) -> None:
    x = built("seams", "fp32", cap)
    for factor, limit in ((2.0, 44.36), (1.0, 88.72)):
        near = x[(x / cap / limit - 1).abs() < 1e-3]
        e = torch.exp(factor * (near / cap))
        assert bool(e.isinf().any())
        assert bool(e.isfinite().any())


@pytest.mark.parametrize("dtype", DTYPES)
def test_binades_are_beside_powers_of_two_of_every_exponent(dtype: str) -> None:
    form = FORMATS[dtype]
    fraction = to_bits(built("binades", dtype, 30)) & (form.smallest_normal - 1)
    assert set(fraction.tolist()) == {0, 1, 2, form.smallest_normal - 1, form.smallest_normal - 2}
    exponents = (to_bits(built("binades", dtype, 30)) & (form.sign - 1)) >> (form.digits - 1)
    assert set(range(1, form.infinity >> (form.digits - 1))) <= set(exponents.tolist())


def test_ties_are_beside_midpoints_of_both_narrow_formats() -> None:
    bits = to_bits(built("ties", "fp32", 30.0))
    for dropped in (13, 16):
        low = bits & ((1 << dropped) - 1)
        half = 1 << (dropped - 1)
        for beside in (-1, 0, 1):
            assert int((low == half + beside).sum()) > COUNT // 10


def test_masked_rows_end_in_minus_infinity() -> None:
    rows = built("masked", "bf16", 30.0).view(-1, 32)
    hidden = rows == -math.inf
    assert bool((hidden[:, 1:] >= hidden[:, :-1]).all())
    assert len(set(hidden.sum(-1).tolist())) > 20
    assert bool(rows[~hidden].isfinite().all())


def test_confident_logits_have_one_winner_in_64() -> None:
    z = built("confident", "fp32", 30.0).view(-1, 64) / 30.0
    assert bool(((z >= 0.99).sum(-1) == 1).all())
    assert bool((z.abs() <= 0.5).sum(-1).eq(63).all())
    assert len(set(z.argmax(-1).tolist())) > 20


def test_a_ramp_never_repeats_its_neighbour_and_constant_always_does() -> None:
    ramp = built("ramp", "fp32", 30.0)
    assert bool((ramp[1:] != ramp[:-1]).all())
    assert len(built("constant", "fp32", 30.0).unique()) == 1


def test_mixed_holds_every_finite_family() -> None:
    x = built("mixed", "fp32", 30.0)
    z, bits = scaled(x, 30.0), to_bits(x) & 0x7FFFFFFF
    shares = {
        "linear": (z < 0.5) & (z > 2.0**-12), "transition": (z >= 0.5) & (z < 3), "saturation": (z >= 3) & (z <= 12),
        "tiny": (z < 2.0**-12) & (z > 0), "beyond": z > 12, "zeros": bits == 0,
        "subnormal": (bits > 0) & (bits < 1 << 23),
    }  # fmt: skip
    assert all(0.02 < float(share.to(torch.float64).mean()) < 0.6 for share in shares.values())
    singles = {family: set(to_bits(built(family, "fp32", 30.0)).tolist()) for family in FINITE}
    missed = set(to_bits(x).tolist())
    for patterns in singles.values():
        missed -= patterns
    assert not missed  # each element is the one that some family has in the same place


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_the_domain_is_every_pattern_once(dtype: str) -> None:
    whole = domain(dtype)
    assert to_bits(whole).tolist() == list(range(1 << 16))
    assert torch.equal(to_bits(built("domain", dtype, 30, 1 << 16)), to_bits(whole))


def test_the_domain_of_fp32_is_refused_and_its_walk_is_stratified() -> None:
    with pytest.raises(ValueError, match="'fp32' is not listed: accepted are fp16, bf16"):
        domain("fp32")
    bits = to_bits(built("domain", "fp32", 30, 1 << 13))
    assert set((bits >> 23).tolist()) == set(range(512))
    ends = from_bits(torch.tensor([ordinal(30 * z, "fp32") for z in (2.0**-14, 16.0)]), "fp32").tolist()
    walked = from_bits(bits[2048:], "fp32").abs()
    bend = to_bits(walked[(walked >= ends[0]) & (walked <= ends[1])]).sort().values
    assert len(bend) > 0.6 * len(walked)
    assert int(bend.diff().max()) < 8 * int(bend[-1] - bend[0]) // len(bend)


@pytest.mark.parametrize("cap", [30.0, 17.3, 2.0**-40])
def test_the_walk_over_fp32_begins_with_every_seam_and_power_of_two(cap: float) -> None:
    first = set(to_bits(built("domain", "fp32", cap, 2000)).tolist())
    seams = {ordinal(as_fp32(cap) * z, "fp32") + step for z in SEAMS for step in range(-3, 4)}
    powers = {(exponent << 23) + step for exponent in range(1, 255) for step in (-1, 0, 1)}
    specials = {0, 1, 2, 0x7F800000, 0x7FC00000}
    for magnitudes in (seams, powers, specials):
        assert magnitudes <= first
        assert {magnitude | 0x80000000 for magnitude in magnitudes} <= first


def test_the_walk_over_fp32_does_not_depend_on_its_length() -> None:
    long = built("domain", "fp32", 17.3, 5000)
    assert torch.equal(to_bits(long[:1999]), to_bits(built("domain", "fp32", 17.3, 1999)))


def test_literals_are_the_patterns_given() -> None:
    assert to_bits(literal((0, 65535, 0x8000), "fp16")).tolist() == [0, 65535, 0x8000]
    assert literal((), "fp32").shape == (0,)


def test_every_family_says_what_it_breaks() -> None:
    for family in VALUES.values():
        assert "breaks" in str(family.__doc__).splitlines()[0]
