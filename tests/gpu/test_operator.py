"""The Triton operator on a device: values, gradients, layouts, refusals. A missing device or Triton fails them."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from oracles.acceptance import accept
from oracles.rounding import to_bits
from oracles.truth import Truth
from softcap import NativeFinalLogitSoftcapOp, OpBackend, TritonFinalLogitSoftcapOp, kernel_registry
from softcap.triton_op import BLOCK, ENABLE_FP_FUSION, NUM_WARPS
from strategies.case import Case
from strategies.dtypes import TORCH
from strategies.layouts import LAYOUTS

pytestmark = pytest.mark.gpu

DTYPES = ("fp16", "bf16", "fp32")
CAPS = (20, 30.0, 7.3, 0.1)
SHAPES = ((), (1,), (7,), (1023,), (1024,), (1025,), (3, 5), (2, 3, 1003), (70001,), (2, 3, 262144))


def same_bits(got: Tensor, want: Tensor) -> bool:
    """One dtype, one shape and the same bits; NaN is NaN."""
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return False
    return bool(((to_bits(got) == to_bits(want)) | (got.isnan() & want.isnan())).all())


def gradient(op: TritonFinalLogitSoftcapOp, x: Tensor, grad_y: Tensor) -> Tensor:
    leaf = x.detach().requires_grad_()
    (grad_x,) = torch.autograd.grad(op(leaf), leaf, grad_y)
    return grad_x


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator("cuda").manual_seed(seed)
    return (torch.randn(shape, device="cuda", generator=generator) * 40).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cap", CAPS)
def test_outputs_and_gradients_are_right_at_every_shape(cap: float, dtype: str) -> None:
    op = TritonFinalLogitSoftcapOp(cap)
    for shape in SHAPES:
        case = Case(shape, dtype, cap, values="mixed", seed=3)
        x, grad_y = case.x("cuda"), case.grad_y(torch.float32, "cuda")
        y, grad_x = op(x), gradient(op, x, grad_y)
        assert (y.dtype, y.shape, grad_x.dtype, grad_x.shape) == (torch.float32, x.shape, x.dtype, x.shape)
        assert accept("ulp", y, Truth.of(x, cap)).all_ok, (shape, "forward")
        assert accept("ulp", grad_x, Truth.of(x, cap, grad_y)).all_ok, (shape, "gradient")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_layout_gives_the_bits_of_contiguous_memory(layout: str, dtype: str) -> None:
    op = TritonFinalLogitSoftcapOp(30)
    case = Case((4, 3, 5, 130), dtype, 30, layout=layout).with_knobs(grad_layout=layout)
    x, grad_y = case.x("cuda"), case.grad_y(torch.float32, "cuda")
    assert same_bits(op(x), op(x.contiguous()))
    assert same_bits(gradient(op, x, grad_y), gradient(op, x.contiguous(), grad_y.contiguous()))


@triton.jit
def hard_coded_forward(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + offsets, 30.0 * libdevice.tanh(tl.div_rn(x, 30.0)), mask=mask)


@triton.jit
def hard_coded_backward(x_ptr, grad_y_ptr, grad_x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    t = libdevice.tanh(tl.div_rn(x, 30.0))
    grad_x = tl.load(grad_y_ptr + offsets, mask=mask, other=0.0) * (1.0 - t * t)
    tl.store(grad_x_ptr + offsets, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_cap_of_30_has_the_bits_of_a_kernel_with_30_written_in(dtype: str) -> None:
    case = Case((1 << 16,), dtype, 30, values="domain").with_knobs(grad_values="hashed")
    x, grad_y = case.x("cuda"), case.grad_y(torch.float32, "cuda")
    y, grad_x = torch.empty_like(x, dtype=torch.float32), torch.empty_like(x)
    options = {"BLOCK": BLOCK, "num_warps": NUM_WARPS, "enable_fp_fusion": ENABLE_FP_FUSION}
    grid = (x.numel() // BLOCK,)
    hard_coded_forward[grid](x, y, x.numel(), **options)
    hard_coded_backward[grid](x, grad_y, grad_x, x.numel(), **options)
    op = TritonFinalLogitSoftcapOp(30)
    assert same_bits(op(x), y)
    assert same_bits(gradient(op, x, grad_y), grad_x)


def test_the_tail_past_2_31_elements_is_right() -> None:
    n = 2**31 + 4099
    pattern = torch.arange(1 << 16, device="cuda").to(torch.int16).view(torch.bfloat16)
    x = pattern.repeat(-(-n // pattern.numel()))[:n]
    op = TritonFinalLogitSoftcapOp(30)
    with torch.no_grad():
        y = op(x)
        assert same_bits(y[-4099:], op(x[-4099:].clone()))
        assert same_bits(y[: 1 << 16], op(pattern))


def test_the_registry_takes_triton_and_passes_nothing_over() -> None:
    found = kernel_registry.resolve("final_logit_softcap", device="cuda")
    assert found.backend is OpBackend.TRITON
    assert found.op_class is TritonFinalLogitSoftcapOp
    assert found.rejected == ()


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_empty_inputs_give_empty_results(shape: tuple[int, ...]) -> None:
    op, x = TritonFinalLogitSoftcapOp(), torch.empty(shape, device="cuda", dtype=torch.bfloat16)
    y, grad_x = op(x), gradient(op, x, torch.empty(shape, device="cuda"))
    assert (y.shape, y.dtype, y.device) == (x.shape, torch.float32, x.device)
    assert (grad_x.shape, grad_x.dtype) == (x.shape, torch.bfloat16)


def test_training_and_inference_have_the_same_bits() -> None:
    op, x = TritonFinalLogitSoftcapOp(20), randn(3, 4099, dtype=torch.bfloat16)
    recorded = op(x.clone().requires_grad_())
    with torch.no_grad():
        assert same_bits(op(x), recorded.detach())
    with torch.inference_mode():
        assert same_bits(op(x.clone()).clone(), recorded.detach())


def test_a_gradient_of_stride_zero_is_read_right() -> None:
    op, x = TritonFinalLogitSoftcapOp(), randn(5, 1025)
    leaf = x.clone().requires_grad_()
    op(leaf).sum().backward()
    assert same_bits(leaf.grad, gradient(op, x, torch.ones_like(x)))


def test_second_order_gradients_are_refused() -> None:
    x = randn(64).requires_grad_()
    y = TritonFinalLogitSoftcapOp()(x)
    (grad_x,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="first-order gradients only"):
        grad_x.sum().backward()


def test_an_input_changed_between_forward_and_backward_is_refused() -> None:
    x = randn(64).requires_grad_()
    leaf = x * 1.0
    y = TritonFinalLogitSoftcapOp()(leaf)
    with torch.no_grad():
        leaf.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_dtypes_and_devices_are_refused_in_words() -> None:
    op = TritonFinalLogitSoftcapOp()
    with pytest.raises(TypeError, match="float64"):
        op(torch.zeros(3, device="cuda", dtype=torch.float64))
    with pytest.raises(RuntimeError, match="needs a CUDA or ROCm tensor"):
        op(torch.zeros(3))


@pytest.mark.filterwarnings("ignore")  # the compiler's own, about precision and deprecations
def test_compiled_calls_have_the_same_bits_at_many_caps() -> None:
    x = randn(3, 1025, dtype=torch.bfloat16)
    compiled = torch.compile(lambda t, op: op(t))
    for cap in (20, 30, 7.3, 50):
        op = TritonFinalLogitSoftcapOp(cap)
        leaf = x.clone().requires_grad_()
        y = compiled(leaf, op)
        grad_y = torch.full_like(y, 0.37)
        (grad_x,) = torch.autograd.grad(y, leaf, grad_y)
        assert same_bits(y.detach(), op(x))
        assert same_bits(grad_x, gradient(op, x, grad_y))


@pytest.mark.parametrize("dtype", DTYPES)
def test_it_agrees_with_the_reference_to_the_specified_tolerance(dtype: str) -> None:
    x = randn(4, 4099, dtype=TORCH[dtype])
    want = NativeFinalLogitSoftcapOp(30).forward_fp32(x)
    torch.testing.assert_close(TritonFinalLogitSoftcapOp(30)(x), want, atol=1e-5, rtol=1e-5)
