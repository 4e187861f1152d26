"""Every element against the exact value: good kernels pass at any judged cap, small and rare errors do not."""

from __future__ import annotations

import pytest
import torch

from invariance.candidate import PASSES, adapt
from invariance.checkers import LAWS, NotApplicable, load_laws
from invariance.checkers.accuracy import outside_judged_domain
from strategies.case import Case
from tests.checkers.faulty import bumped, faulty, softcap, verdict
from tests.checkers.good import GOOD

load_laws()

CAPS = (30, 17.3, 1, 2.0**-60, 2.0**60)


def cases(dtype):
    yield Case((257,), dtype, 30, values="domain", knobs=(("grad_values", "hashed"),))
    for number, cap in enumerate(CAPS):
        knobs = (("grad_layout", "stride_zero"), ("grad_values", ("large", "specials", "small")[number % 3]))
        yield Case((2, 33), dtype, cap, "transposed", ("mixed", "bits")[number % 2], number, knobs)
    yield Case((0, 3), dtype, 30)
    yield Case((), dtype, 30)


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("law", ["exact_value", "specification"])
def test_good_kernels_pass(law, pass_):
    for candidate in GOOD:
        for case in (case for dtype in ("fp16", "bf16", "fp32") for case in cases(dtype)):
            found = verdict(law, candidate, case, pass_)
            assert found.mismatch is None, (candidate.name, case, found.mismatch)
            assert found.elements > 0


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("pass_", PASSES)
def test_one_wrong_pattern_of_65536_is_found(pass_, dtype):
    case = Case((1 << 16,), dtype, 30, values="domain", knobs=(("grad_values", "hashed"),))
    at = 0x3C01  # an ordinary number in both dtypes, where one step is more than the tolerance

    def one_step(out, args):
        return bumped(out, torch.arange(1 << 16) == at)

    found = verdict("exact_value", faulty(one_step, pass_), case, pass_)
    assert found.mismatch is not None
    assert found.mismatch.index == (at,)
    assert found.mismatch.wrong == 1


def sigmoid_form(x, cap):
    return (cap * (2 * torch.sigmoid(2 * x.float() / cap) - 1)).to(x.dtype)


def exponential_quotient(x, cap):
    e = torch.exp(2 * x.float() / cap)
    return (cap * (e - 1) / (e + 1)).to(x.dtype)


def identity(x, cap):
    return x * 1.0 if cap else x


def hard_coded(x, cap):
    return softcap(x, 30.0 if cap else cap)


def sixteen_bits_inside(x, cap):
    return cap * torch.tanh((x.float() / cap).bfloat16()).float()


WRONG = [
    (sigmoid_form, ("forward", "inference")),  # its derivative 4s(1-s) is right
    (exponential_quotient, PASSES),
    (identity, PASSES),
    (hard_coded, PASSES),
    (sixteen_bits_inside, PASSES),
]


@pytest.mark.parametrize(("kernel", "passes"), WRONG)
def test_known_wrong_formulas_fail(kernel, passes):
    case = Case((4096,), "fp32", 17.3, values="domain")
    for pass_ in passes:
        assert verdict("exact_value", adapt("wrong", kernel), case, pass_).mismatch is not None


def test_the_specification_refuses_what_its_rows_refuse():
    def slightly_high(out, args):
        return out * 1.0001 + 2e-5

    case = Case((256,), "fp32", 30, values="transition")
    for pass_ in PASSES:
        assert verdict("specification", faulty(slightly_high, pass_), case, pass_).mismatch is not None


def test_a_candidate_that_writes_into_its_input_does_not_move_the_truth():
    def in_place(x, cap):
        with torch.no_grad():
            x.fill_(0.0)
        return softcap(x, cap)

    case = Case((64,), "fp32", 30, values="transition")
    assert verdict("exact_value", adapt("overwriting", in_place), case, "inference").mismatch is not None


@pytest.mark.parametrize("cap", [2.0**-61, 2.0**61])
def test_outside_the_judged_domain_the_laws_say_so(cap):
    case = Case((8,), "fp32", cap, values="transition")
    for law in (law for law in LAWS.values() if law.judgement == "accuracy"):
        with pytest.raises(NotApplicable, match="outside the judged domain: caps from"):
            verdict(law.id, GOOD[0], case, law.passes[0])
    assert "outside the judged domain" in (outside_judged_domain(cap) or "")


def test_a_law_without_one_judged_gradient_says_so():
    case = Case((2,), "fp32", 30, values="transition", knobs=(("grad_bits", (1, 2)),))
    for law in ("exact_value", "specification"):
        with pytest.raises(NotApplicable, match="every upstream gradient"):
            verdict(law, GOOD[1], case, "backward")


@pytest.mark.parametrize("cap", [30, 2.0**-60, 2.0**60, 2**60 + 1])
def test_inside_it_there_is_no_reason(cap):
    assert outside_judged_domain(cap) is None


def test_the_laws_take_whole_domains_and_all_passes():
    for name in ("exact_value", "specification"):
        assert LAWS[name].inputs == "domain"
        assert LAWS[name].passes == PASSES
        assert LAWS[name].judgement == "accuracy"
