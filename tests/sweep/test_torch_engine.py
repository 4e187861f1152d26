"""The torch engine against the oracles on whole 16-bit domains and FP32 blocks, and on answers that are known."""

from __future__ import annotations

import pytest
import torch

from invariance.candidate import CandidateRaised
from invariance.sweep.certificate import Certificate
from invariance.sweep.domain import Domain, encode
from invariance.sweep.settle import Question
from invariance.sweep.subject import key_of
from invariance.sweep.torch_engine import TorchEngine
from oracles.acceptance import accept
from oracles.rounding import from_bits, to_bits
from oracles.tolerances import load_contract
from oracles.truth import Truth
from strategies.dtypes import TORCH
from tests.sweep.subjects import (
    BLOCK,
    Flushing,
    Native,
    Quotient,
    Rounded,
    Sigmoid,
    engine,
    planted,
    planted_gradient,
    seams,
    swept,
)


class Cast(Native):
    """In the dtype of the input, by a cast."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(x.float()).to(x.dtype)


class Wide(Native):
    """FP32 results for any input."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(x.float())


def by_the_oracles(kind: type, cap: float, dtype: str, pass_: str, lo: int, hi: int) -> dict[str, object]:
    """What a certificate must say, the slow way: `accept`, `Truth.rounded`, the exact error of every input."""
    used = engine(kind, cap, dtype, pass_)
    magnitudes = torch.arange(lo, hi)
    x = from_bits(torch.cat([magnitudes, magnitudes + used.domain.sign]), TORCH[dtype])
    y = used.subject.call(x)
    grad = torch.ones_like(x) if pass_ == "backward" else None
    truth = Truth.of(x, cap, grad)
    found = accept("ulp", y, truth, everywhere=True)
    want = truth.rounded(y.dtype)
    same = (to_bits(want) == to_bits(y)) | (want.isnan() & y.isnan())
    if pass_ == "backward":  # ±0 at infinity: the sign is that of grad_y
        same |= x.isinf() & (to_bits(y) == 0)
    special = ~x.isfinite()
    return {
        "violations": int((~found.ok).sum()),
        "flushed": int(found.flushed.sum()),
        "wrong_specials": int((~found.ok & special).sum()),
        "correctly_rounded": int(same.sum()),
        "worst": slow_worst(used.domain, x, y, found.flushed, truth),
    }


def slow_worst(
    domain: Domain, x: torch.Tensor, y: torch.Tensor, flushed: torch.Tensor, truth: Truth
) -> object:
    question = Question(domain.cap, domain.pass_, domain.dtype, y.dtype, 2.0**-24)
    z = x.double().abs() / domain.cap
    counted = (z >= 2.0**-126) & x.isfinite() & ~flushed
    rough = (y.double() - truth.value).abs()
    if domain.pass_ == "forward":
        rough /= truth.value.abs().clamp_min(2.0**-126)
    rough = torch.where(rough.isfinite(), rough, torch.inf)
    tops = torch.where(counted, rough, -1.0).topk(min(60, x.numel())).indices.tolist()
    ends = counted.nonzero().flatten()
    tops += ends[:10].tolist() + ends[-10:].tolist() + ends[:: max(1, ends.numel() // 40)].tolist()
    mask, out = 2 * domain.sign - 1, (1 << (8 * y.element_size())) - 1
    rows = [(int(to_bits(x[i])) & mask, int(to_bits(y[i])) & out) for i in tops if bool(counted[i])]
    errors = {pattern: question.error(pattern, got) for pattern, got in rows}
    return max(errors.values(), default=None)


def check(kind: type, cap: float, dtype: str, pass_: str, lo: int, hi: int) -> Certificate:
    found, want = swept(kind, cap, dtype, pass_, lo, hi), by_the_oracles(kind, cap, dtype, pass_, lo, hi)
    for name, value in want.items():
        if name != "worst":
            assert found.count(name) == value, name
    if found.worst is not None and isinstance(want["worst"], float):
        assert found.worst.error >= want["worst"]
    return found


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("pass_", ["forward", "backward"])
@pytest.mark.parametrize("kind", [Cast, Wide, Sigmoid, Quotient])
def test_whole_16_bit_domains_agree_with_the_oracles(dtype: str, pass_: str, kind: type) -> None:
    check(kind, 7.3, dtype, pass_, 0, 1 << 15)


@pytest.mark.parametrize("pass_", ["forward", "backward"])
@pytest.mark.parametrize("kind", [Native, Flushing, Sigmoid])
@pytest.mark.parametrize("cap", [30.0, 1.0])
def test_fp32_blocks_at_the_seams_agree_with_the_oracles(pass_: str, kind: type, cap: float) -> None:
    for lo in seams(cap, pass_):
        check(kind, cap, "fp32", pass_, lo, lo + BLOCK)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize(("pass_", "cap"), [("forward", 30.0625), ("backward", 30.0), ("forward", 2.0**-60)])
def test_the_correctly_rounded_function_is_that(dtype: str, pass_: str, cap: float) -> None:
    """30.0625 is a rounding midpoint of BF16: the saturated results lie just below it."""
    found = swept(Rounded, cap, dtype, pass_)
    assert found.count("correctly_rounded") == found.inputs == 65536
    assert found.complete
    assert found.ok
    assert found.worst is not None
    if pass_ == "forward":
        assert found.worst.error <= 0.5


def test_the_correctly_rounded_function_in_fp32() -> None:
    for pass_ in ("forward", "backward"):
        for lo in seams(30.0, pass_):
            found = swept(Rounded, 30.0, "fp32", pass_, lo, lo + BLOCK)
            assert found.count("correctly_rounded") == found.inputs == 2 * BLOCK
            assert found.worst is None or found.worst.error <= 0.5


@pytest.mark.parametrize("x", [2.0**-130, 1e-20, 3.0, 250.0, 3e5])
@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("steps", [1, 8])
def test_one_result_off_is_found_and_named(x: float, negative: bool, steps: int) -> None:
    pattern = encode(-x if negative else x, torch.float32)
    lo = (pattern & 0x7FFFFFFF) // BLOCK * BLOCK
    clean = swept(Rounded, 30.0, "fp32", "forward", lo, lo + BLOCK)
    found = swept(planted(Rounded, pattern, steps), 30.0, "fp32", "forward", lo, lo + BLOCK)
    judged = steps == 8 and x > 1e-30  # below, c * 2**-149 alone allows 30 steps
    assert found.count("correctly_rounded") == clean.count("correctly_rounded") - 1
    assert found.counts["oddness_breaks"].first == (pattern & 0x7FFFFFFF,)
    assert found.fingerprints != clean.fingerprints
    assert found.count("violations") == judged
    if judged:
        assert found.counts["violations"].first == (pattern,)
    worst = found.worst if x > 1e-30 else found.below.worst
    assert worst is not None
    assert worst.pattern == pattern
    if x > 1e-30:
        assert steps - 0.5 <= worst.error <= steps + 0.5


@pytest.mark.parametrize("x", [1e-20, 3.0, 250.0, 3e5])
def test_one_gradient_off_is_found_and_named(x: float) -> None:
    pattern = encode(-x, torch.float32)
    lo = (pattern & 0x7FFFFFFF) // BLOCK * BLOCK
    found = swept(planted_gradient(Rounded, pattern, 1), 30.0, "fp32", "backward", lo, lo + BLOCK)
    assert found.count("correctly_rounded") == found.inputs - 1
    assert found.counts["oddness_breaks"].first == (pattern & 0x7FFFFFFF,)
    assert found.ok


def test_specials_are_judged() -> None:
    class Finite(Cast):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return super().__call__(torch.nan_to_num(x))

    found = swept(Finite, 30.0, "fp16", "forward")
    assert found.count("wrong_specials") == 2 * 1023
    assert found.count("violations") == 2 * 1023
    assert found.counts["wrong_specials"].first[:2] == (0x7C01, 0xFC01)


def test_nan_payloads_do_not_count() -> None:
    class Payload(Cast):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            y = super().__call__(x)
            return torch.where(x.isnan(), from_bits(torch.tensor(0x7C01), torch.float16), y)

    assert (
        swept(Payload, 30.0, "fp16", "forward").fingerprints
        == swept(Cast, 30.0, "fp16", "forward").fingerprints
    )


def test_the_bound_and_the_order_are_counted() -> None:
    class Wrong(Cast):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return torch.where(x == 100, x, super().__call__(x))

    found = swept(Wrong, 30.0, "bf16", "forward")
    pattern = encode(100.0, torch.bfloat16)
    assert found.counts["bound_breaks"].first == (pattern,)
    assert found.counts["monotonicity_breaks"].first == (pattern,)
    assert found.count("bound_breaks") == found.count("monotonicity_breaks") == 1


def test_an_inversion_across_blocks_and_shards_is_seen_once() -> None:
    pattern = 0x41F00000
    candidate = planted(Native, pattern, -40)
    left = swept(candidate, 30.0, "fp32", "forward", pattern - BLOCK, pattern)
    right = swept(candidate, 30.0, "fp32", "forward", pattern, pattern + BLOCK)
    assert left.counts["monotonicity_breaks"].first == (pattern - 1,)
    assert right.count("monotonicity_breaks") == 0
    whole = swept(candidate, 30.0, "fp32", "forward", pattern - BLOCK, pattern + BLOCK)
    assert whole == left.merge(right)


def test_a_block_that_spans_fingerprints_is_refused() -> None:
    subject = engine(Native, 30.0, "fp32", "forward").subject
    with pytest.raises(ValueError, match="power of two up to 1048576"):
        TorchEngine(subject, load_contract(), 1 << 22)


def test_a_kernel_that_flushes_passes_and_says_so() -> None:
    found = swept(Flushing, 30.0, "fp32", "forward", 1 << 20, (1 << 20) + BLOCK)
    assert found.ok
    assert found.count("flushed") == found.inputs
    assert found.worst is None
    assert found.below.count == found.inputs
    assert found.below.worst is not None
    assert found.below.worst.error == pytest.approx(((1 << 20) + BLOCK - 1) / 30, rel=2.0**-40)


def test_a_result_of_another_dtype_is_refused() -> None:
    class Double(Native):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return super().__call__(x).double()

    with pytest.raises(CandidateRaised, match="float64"):
        swept(Double, 30.0, "fp32", "forward", 0, BLOCK)


class WritesItsInput(Native):
    """Rounds x to three bits in place, and is right for that."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x.detach().copy_(x.detach().to(torch.float8_e5m2))
        return super().__call__(x)


def test_a_result_is_judged_by_the_input_that_was_given_not_by_what_the_candidate_made_of_it() -> None:
    found = swept(WritesItsInput, 30.0, "bf16", "forward")
    assert found.count("violations") > 30_000
    assert found.fingerprints != swept(Native, 30.0, "bf16", "forward").fingerprints


class Flushes(Native):
    """Leaves the flushing of subnormals on, and is wrong where that hides it."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        torch.set_flush_denormal(True)
        y = super().__call__(x)
        bits = x.detach().float().view(torch.int32)
        tiny = ((bits & 0x7FFFFFFF) < 0x00800000) & ((bits & 0x7FFFFFFF) != 0)
        return torch.where(tiny, (bits ^ 0x00400000).view(torch.float32), y.float()).to(x.dtype)


def test_a_candidate_cannot_make_the_judge_flush() -> None:
    assert swept(Flushes, 1.0, "bf16", "forward").count("violations") == 252
    assert torch.tensor([1.0], dtype=torch.float64) * 2.0**-1070 != 0


class Apart(Native):
    """NaN at one positive input and at a smaller negative one of the same binade."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where((x == 1.75) | (x == -1.25), torch.nan, super().__call__(x))


@pytest.mark.parametrize("block", [None, 256])
def test_of_equal_errors_the_smallest_magnitude_is_published_whatever_its_sign_and_the_block(
    block: int | None,
) -> None:
    subject = engine(Apart, 32.0, "fp16", "forward").subject
    used = TorchEngine(subject, load_contract(), block)
    worst = used.sweep(key_of(subject, 32.0, load_contract()), 0, used.domain.size).worst
    assert worst is not None
    assert worst.pattern == encode(-1.25, torch.float16)
