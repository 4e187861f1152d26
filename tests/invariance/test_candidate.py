"""Import paths lead to candidates, or to one line that says why not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from invariance.candidate import (
    CandidateNotLoadable,
    CandidateRaised,
    GraphLost,
    adapt,
    display_name,
    load,
)

KERNELS = """
from functools import lru_cache, partial

import torch

class Op:
    def __init__(self, softcap=30.0):
        self.softcap = softcap
    def __call__(self, x):
        return self.softcap * torch.tanh(x.float() / self.softcap)
    def doubled(self, x):
        return 2 * self(x)

def function(x, cap):
    return cap * torch.tanh(x.float() / cap)

def factory(softcap=30.0):
    return Op(softcap)

def made(softcap, mode):
    return Op(softcap)

class Factory:
    def __call__(self, softcap):
        return Op(softcap)

partial_factory = partial(made, mode="fast")
partial_class = partial(Op)
cached_factory = lru_cache(factory)
object_factory = Factory()
partial_function = partial(function, cap=17.0)
instance = Op(17.0)
number = 3

def capless(x):
    return x

def cap_first(c, x):
    return function(x, c)

def keyword(x, *, cap):
    return function(x, cap)

def keyword_with_a_default(x, *, softcap=30.0):
    return function(x, softcap)

def keyword_of_another_name(x, *, logit_softcapping_value):
    return function(x, logit_softcapping_value)

def configured(x):
    return function(x, 17.0)
configured.softcap = 17.0

def misspelt(x, cap):
    return torch.no_such_function(x)

class Positional:
    def __init__(self, c):
        self.c = c
    def __call__(self, x):
        return self.c * torch.tanh(x.float() / self.c)
"""


@pytest.fixture
def kernels(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return path


X = torch.tensor([-40.0, -1.0, 0.5, 100.0])


@pytest.mark.parametrize(
    ("attribute", "convention"),
    [
        ("Op", "operator"),
        ("factory", "operator"),
        ("Positional", "operator"),
        ("function", "function"),
        ("partial_factory", "operator"),
        ("partial_class", "operator"),
        ("cached_factory", "operator"),
        ("object_factory", "operator"),
        ("partial_function", "instance"),
        ("instance", "instance"),
    ],
)
def test_each_convention_is_called_as_its_author_means(kernels, attribute, convention):
    candidate = load(f"{kernels}:{attribute}")
    assert candidate.convention == convention
    cap = candidate.fixed_cap or 20.0
    assert torch.equal(candidate.map(cap, "inference")(X), cap * torch.tanh(X / cap))


def test_an_instance_is_judged_at_its_own_cap(kernels):
    assert load(f"{kernels}:instance").fixed_cap == 17.0


@pytest.mark.parametrize("name", ["keyword", "keyword_with_a_default", "keyword_of_another_name", "configured"])
def test_a_cap_may_be_a_keyword_or_an_attribute_of_a_function(kernels, name):
    candidate = load(f"{kernels}:{name}")
    cap = candidate.fixed_cap or 20.0
    assert torch.equal(candidate.map(cap, "inference")(X), cap * torch.tanh(X / cap))


def test_what_a_candidate_raises_comes_with_the_line_that_raised(kernels):
    line = 1 + Path(kernels).read_text().splitlines().index("    return torch.no_such_function(x)")
    with pytest.raises(CandidateRaised, match=rf"AttributeError: .*no_such_function.* \(kernels\.py:{line}\)"):
        load(f"{kernels}:misspelt").map(20.0, "inference")(X)


def test_a_dotted_attribute_is_a_method_of_the_constructed_object(kernels):
    candidate = load(f"{kernels}:Op.doubled")
    assert torch.equal(candidate.map(20.0, "forward")(X), 40.0 * torch.tanh(X / 20.0))


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("nonsense", "neither"),
        ("no.such.module:Op", "no.such.module"),
        ("missing.py:Op", "missing.py does not exist"),
        ("{kernels}:Absent", "has no 'Absent'; it has"),
        ("{kernels}:number", "int"),
        ("{kernels}:capless", "takes no cap"),
        ("{kernels}:cap_first", r"takes the cap first and needs more: a function is called as f\(x, c\)"),
    ],
)
def test_what_cannot_be_loaded_says_why(kernels, spec, says):
    with pytest.raises(CandidateNotLoadable, match=says):
        load(spec.format(kernels=kernels))


def test_a_module_that_raises_on_import_is_not_loadable(tmp_path):
    (tmp_path / "broken.py").write_text("raise RuntimeError('no licence')")
    with pytest.raises(CandidateNotLoadable, match="RuntimeError: no licence"):
        load(f"{tmp_path / 'broken.py'}:Op")


def test_reports_hold_no_absolute_path_of_a_candidate(kernels):
    assert display_name(f"{kernels}:Op") == "kernels.py:Op"
    assert display_name("pkg.mod:Op") == "pkg.mod:Op"


def test_the_three_passes_of_a_map(kernels):
    f = load(f"{kernels}:Op").map(20.0, "forward")
    y = f(X)
    assert not y.requires_grad
    assert torch.equal(f.under("inference")(X), y)
    g = torch.tensor([1.0, -2.0, 3.0, 0.5])
    expected = g * (1 - torch.tanh(X / 20.0) ** 2)
    torch.testing.assert_close(f.under("backward")(X, g), expected)
    assert X.requires_grad is False
    assert X.grad is None


def test_what_the_author_raises_is_told_apart_from_the_suites_own_faults():
    def raises(x, cap):
        raise MemoryError("no room")

    with pytest.raises(CandidateRaised, match="MemoryError: no room"):
        adapt("raises", raises).map(1.0, "forward")(X)


def test_a_lost_graph_is_named():
    def detached(x, cap):
        return (cap * torch.tanh(x / cap)).detach()

    with pytest.raises(GraphLost, match="does not require grad"):
        adapt("detached", detached).map(1.0, "backward")(X, X)


def test_a_result_that_is_no_tensor_is_a_raise():
    with pytest.raises(CandidateRaised, match="returned list, not a tensor"):
        adapt("lists", lambda x, cap: [x]).map(1.0, "inference")(X)
