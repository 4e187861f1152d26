"""`verify` and `law_tests` refuse what nobody can have meant, in words, before anything is judged."""

from __future__ import annotations

import math

import pytest

from invariance import verify
from invariance.testing import law_tests

ASK = (verify, law_tests)


@pytest.mark.parametrize("ask", ASK)
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"softcap": [0]}, "0 is no cap"),
        ({"softcap": [30.0, -1.0]}, "-1.0 is no cap"),
        ({"softcap": ["a"]}, "'a' is no cap"),
        ({"softcap": [math.nan]}, "nan is no cap"),
        ({"softcap": [1e300]}, "1e.300 is no cap"),
        ({"softcap": [True]}, "True is no cap"),
        ({"dtype": ["fp8"]}, "no dtype fp8: there are"),
        ({"profile": "slow"}, "no profile 'slow': there are"),
        ({"seed": "x"}, "seed 'x' is not a whole number"),
        ({"seed": -1}, "seed -1 is not a whole number"),
        ({"timeout": -1}, "timeout -1 is not a number of seconds"),
        ({"law": ["slicin"]}, r"no law slicin: near it: slicing.*; there are"),
    ],
)
def test_a_mistake_is_an_error_and_no_verdict(ask, given, says):
    with pytest.raises(ValueError, match=says):
        ask("native", device="cpu", **given)


@pytest.mark.parametrize("ask", ASK)
@pytest.mark.parametrize("candidate", [len, None, 5])
def test_a_candidate_is_an_import_path(ask, candidate):
    with pytest.raises(TypeError, match=r"an import path such as 'my_pkg.kernels:MySoftcap'.* was given"):
        ask(candidate, device="cpu")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"jobs": 0}, "jobs 0 is not a whole number"),
        ({"rounding": "twice"}, "no rounding 'twice': there are once, chain"),
    ],
)
def test_what_only_verify_takes_is_read_as_well(given, says):
    with pytest.raises(ValueError, match=says):
        verify("native", device="cpu", **given)
