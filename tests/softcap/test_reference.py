"""The reference's values, gradients and autograd behaviour."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from softcap import NativeFinalLogitSoftcapOp

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def inputs(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 40).to(dtype)


def exact(x: Tensor, softcap: float) -> Tensor:
    return softcap * torch.tanh(x.double() / softcap)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1025,), (2, 3, 7)])
def test_forward_is_fp32_arithmetic_with_one_cast(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = inputs(shape, dtype)
    op = NativeFinalLogitSoftcapOp(20)
    y, y32 = op(x), op.forward_fp32(x)
    assert (y.dtype, y.shape, y32.dtype) == (dtype, x.shape, torch.float32)
    torch.testing.assert_close(y32.double(), exact(x, 20.0), rtol=2e-7, atol=0)
    assert torch.equal(y, y32.to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_is_g_times_slope_in_fp32_with_one_cast(dtype: torch.dtype) -> None:
    x = inputs((513,), dtype).requires_grad_()
    g = inputs((513,)) * 1e-3
    (dx,) = torch.autograd.grad(NativeFinalLogitSoftcapOp(30).forward_fp32(x), x, g)
    t = torch.tanh(x.detach().float() / 30)
    assert dx.dtype == dtype
    assert torch.equal(dx, (g * (1 - t * t)).to(dtype))


def test_the_cap_cancels_where_plain_autograd_overflows() -> None:
    x = torch.zeros(1, requires_grad=True)
    g = torch.full((1,), 3e38)
    (dx,) = torch.autograd.grad(NativeFinalLogitSoftcapOp(30)(x), x, g)
    assert torch.equal(dx, g)


def test_second_derivatives_are_right() -> None:
    x = torch.linspace(-60, 60, 41, dtype=torch.float32, requires_grad=True)
    op = NativeFinalLogitSoftcapOp(30)
    (dx,) = torch.autograd.grad(op(x).square().sum(), x, create_graph=True)
    (ddx,) = torch.autograd.grad(dx.sum(), x)
    z = x.detach().double() / 30
    slope = 1 / torch.cosh(z) ** 2
    want = 2 * slope * (slope - 2 * torch.tanh(z) ** 2)
    torch.testing.assert_close(ddx.double(), want, rtol=1e-4, atol=2e-6)


def test_second_derivative_with_constant_upstream_gradient() -> None:
    x = torch.tensor([15.0], requires_grad=True)
    (dx,) = torch.autograd.grad(NativeFinalLogitSoftcapOp(30)(x).sum(), x, create_graph=True)
    (ddx,) = torch.autograd.grad(dx.sum(), x)
    t = torch.tanh(torch.tensor([0.5], dtype=torch.float64))
    torch.testing.assert_close(ddx.double(), -2 * t * (1 - t * t) / 30, rtol=1e-5, atol=0)


def test_changing_x_between_forward_and_backward_raises() -> None:
    x = inputs((5,)).requires_grad_()
    y = NativeFinalLogitSoftcapOp()(x)
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_changing_y_leaves_the_gradient_right() -> None:
    x = inputs((5,)).requires_grad_()
    op = NativeFinalLogitSoftcapOp()
    (want,) = torch.autograd.grad(op(x).sum(), x)
    y = op(x)
    y.detach().zero_()
    (got,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(got, want)


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # torch's own, in forward mode
def test_jvp_vmap_and_per_sample_gradients() -> None:
    x, v = inputs((3, 4)), torch.ones(3, 4)
    op = NativeFinalLogitSoftcapOp(20)
    slope = 1 - torch.tanh(x / 20) ** 2
    torch.testing.assert_close(torch.func.jvp(op, (x,), (v,))[1], slope)
    assert torch.equal(torch.func.vmap(op)(x), op(x))
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(lambda row: op(row).sum()))(x), slope)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # Dynamo's own doing
def test_dynamo_traces_the_operator_in_one_graph() -> None:
    op = NativeFinalLogitSoftcapOp(20)
    x = inputs((5,), torch.bfloat16).requires_grad_()
    compiled = torch.compile(op.forward, backend="eager", fullgraph=True)
    got = torch.autograd.grad(compiled(x).float().sum(), x)[0]
    assert torch.equal(compiled(x), op(x))
    assert torch.equal(got, torch.autograd.grad(op(x).float().sum(), x)[0])


def test_inference_tensors_are_taken() -> None:
    with torch.inference_mode():
        x = inputs((4,))
    assert torch.equal(NativeFinalLogitSoftcapOp()(x), NativeFinalLogitSoftcapOp()(x.clone()))


def test_the_default_cap_and_its_display() -> None:
    assert repr(NativeFinalLogitSoftcapOp()) == "NativeFinalLogitSoftcapOp(softcap=30.0)"
