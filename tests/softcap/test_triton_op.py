"""The Triton operator's wrapper, run on CPU tensors through the interpreter tier.

The interpreter's tanh is torch's, so the reference's bits are the ones to expect: what is proved here is the
formula, the masks, the layouts and the autograd behaviour, not a GPU's tanh.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

from invariance.tiers.interpreter import InterpretedTritonOp, interpreted, interpreted_factory
from softcap import NativeFinalLogitSoftcapOp, TritonFinalLogitSoftcapOp
from softcap import triton_op as triton_module

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
SHAPES = ((), (0,), (1,), (1023,), (1024,), (1025,), (2, 3, 7), (3, 0, 2))
LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.mT.contiguous().mT if t.dim() > 1 else t,
    "strided": lambda t: torch.stack([t, torch.full_like(t, torch.nan)], -1)[..., 0],
    "offset": lambda t: torch.cat([t.new_full((1,), torch.nan), t.flatten()])[1:].view(t.shape),
}


def inputs(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(2)) * 40).to(dtype)


def triton_op(softcap: object = 30.0) -> Any:
    return interpreted_factory(TritonFinalLogitSoftcapOp)(softcap=softcap)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("cap", [20, 7.3])
def test_values_and_gradients_are_the_reference_bits(
    cap: float, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    x, g = inputs(shape, dtype), inputs(shape).flip(0) if shape else inputs(shape)
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, want = triton_op(cap)(mine), NativeFinalLogitSoftcapOp(cap).forward_fp32(theirs)
    y.backward(g)
    want.backward(g)
    assert (y.dtype, y.shape, mine.grad.dtype) == (torch.float32, x.shape, dtype)
    assert torch.equal(y, want)
    assert torch.equal(mine.grad, theirs.grad)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1025,), (5, 33)])
def test_layouts_of_x_and_of_the_upstream_gradient(layout: str, shape: tuple[int, ...]) -> None:
    x, g = LAYOUTS[layout](inputs(shape)), LAYOUTS[layout](inputs(shape) / 7)
    want_x = inputs(shape).requires_grad_()
    (want,) = torch.autograd.grad(NativeFinalLogitSoftcapOp()(want_x), want_x, inputs(shape) / 7)
    leaf = x.detach().requires_grad_()
    before, before_g = x.clone(), g.clone()
    y = triton_op()(leaf)
    (got,) = torch.autograd.grad(y, leaf, g)
    assert y.is_contiguous()
    assert torch.equal(got, want)
    assert torch.equal(x, before)
    assert torch.equal(g, before_g)


@pytest.mark.parametrize("stride", [(4, 1), (7, 1), (1, 1)])
def test_a_compiled_graph_is_told_the_strides_that_come(stride: tuple[int, int]) -> None:
    """A side of 1 may have any stride in a contiguous tensor; eager results keep it, and a graph is told of none."""
    x = torch.zeros(16).as_strided((1, 4), stride)
    with interpreted():
        y, dx = triton_module.opaque_forward(x, 30.0), triton_module.opaque_backward(x, x, 30.0)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
        told = triton_module.opaque_forward(fake, 30.0), triton_module.opaque_backward(fake, fake, 30.0)
    assert [t.stride() for t in told] == [y.stride(), dx.stride()]


def test_stride_zero_upstream_gradient_and_lazily_negated_input() -> None:
    x = inputs((6,)).requires_grad_()
    triton_op()(x).sum().backward()
    negated = torch.complex(x.detach(), x.detach()).conj().imag
    slope = 1 - torch.tanh(x.detach() / 30) ** 2
    assert negated.is_neg()
    assert torch.equal(x.grad, slope)
    assert torch.equal(triton_op()(negated), NativeFinalLogitSoftcapOp()(-x.detach()))


def test_a_retained_graph_gives_the_same_bits_twice() -> None:
    x = inputs((1025,)).requires_grad_()
    y = triton_op()(x)
    first = torch.autograd.grad(y.sum(), x, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(y.sum(), x)[0])


def test_no_autograd_node_when_none_is_needed() -> None:
    x = inputs((5,))
    with torch.no_grad():
        assert triton_op()(x.clone().requires_grad_()).grad_fn is None
    assert triton_op()(x).grad_fn is None
    assert triton_op()(x.clone().requires_grad_()).grad_fn is not None


def test_the_candidate_triton_interpreted_is_the_shipped_operator() -> None:
    x = inputs((7,))
    assert InterpretedTritonOp(softcap=20).softcap == 20.0
    assert torch.equal(InterpretedTritonOp(20)(x), triton_op(20)(x))


def test_empty_inputs_launch_nothing() -> None:
    x = torch.empty(3, 0, requires_grad=True)
    with interpreted() as session:
        TritonFinalLogitSoftcapOp()(x).sum().backward()
    assert (session.launches, x.grad.shape) == ([], x.shape)


def test_one_launch_a_pass() -> None:
    x = inputs((1025,)).requires_grad_()
    with interpreted() as session:
        TritonFinalLogitSoftcapOp()(x).sum().backward()
    assert [(launch.kernel, launch.grid) for launch in session.launches] == [
        ("softcap_forward_kernel", (3, 1, 1)),
        ("softcap_backward_kernel", (3, 1, 1)),
    ]


@pytest.mark.parametrize("upstream", ["constant", "dependent"])
def test_second_derivatives_are_an_error(upstream: str) -> None:
    x = inputs((5,)).requires_grad_()
    y = triton_op()(x)
    loss = y.sum() if upstream == "constant" else y.square().sum()
    (dx,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="first-order gradients only"):
        dx.sum().backward()


def test_second_derivatives_are_an_error_through_a_copied_layout() -> None:
    x = inputs((4, 3)).requires_grad_()
    (dx,) = torch.autograd.grad(triton_op()(x.mT).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="first-order gradients only"):
        dx.sum().backward()


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # torch's own, in forward mode
def test_forward_mode_is_an_error_and_not_a_lost_tangent() -> None:
    with pytest.raises(RuntimeError, match="jvp"):
        torch.func.jvp(triton_op(), (inputs((4,)),), (torch.ones(4),))


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")  # Dynamo's and AOTAutograd's own
@pytest.mark.parametrize("cap", [20, 30, 7.3])
def test_compiled_without_a_graph_break_the_bits_are_the_same(cap: float) -> None:
    torch.compiler.reset()
    x, g = inputs((37, 5), torch.bfloat16).mT.requires_grad_(), inputs((5, 37))
    compiled = torch.compile(TritonFinalLogitSoftcapOp(cap).forward, backend="aot_eager", fullgraph=True)
    with interpreted() as session:
        y = compiled(x)
        (got,) = torch.autograd.grad(y, x, g)
    eager = triton_op(cap)(x)
    (want,) = torch.autograd.grad(eager, x, g)
    assert [launch.kernel for launch in session.launches] == [
        "softcap_forward_kernel",
        "softcap_backward_kernel",
    ]
    assert torch.equal(y, eager)
    assert torch.equal(got, want)


def test_the_import_does_not_pull_in_dynamo() -> None:
    code = "import sys, softcap.triton_op; print('torch._dynamo' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_changing_x_between_forward_and_backward_raises() -> None:
    x = inputs((5,)).requires_grad_()
    y = triton_op()(x)
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_cpu_tensor_is_refused_with_advice() -> None:
    with pytest.raises(
        RuntimeError, match="got one on cpu; move it to a GPU or use NativeFinalLogitSoftcapOp"
    ):
        TritonFinalLogitSoftcapOp()(torch.zeros(3))


def test_the_dtype_is_refused_before_the_device() -> None:
    with pytest.raises(TypeError, match=r"torch.float64; accepted"):
        TritonFinalLogitSoftcapOp()(torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("cap", [0, float("nan"), 1e39, True, "30"])
def test_the_cap_is_refused_at_construction(cap: object) -> None:
    with pytest.raises(ValueError, match="softcap must be"):
        TritonFinalLogitSoftcapOp(cap)
