"""Tensors on a device that is not the current one; where there is one device only, on that one."""

from __future__ import annotations

import pytest
import torch

from softcap import TritonFinalLogitSoftcapOp

pytestmark = pytest.mark.gpu


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every device that is not the current one; on a machine with one device, that device itself."""
    count = torch.cuda.device_count()
    metafunc.parametrize("index", range(1, count) if count > 1 else [0])


def test_a_tensor_is_worked_on_where_it_is(index: int) -> None:
    device, current = torch.device("cuda", index), torch.cuda.current_device()
    x = torch.linspace(-90, 90, 4099, device=device)
    leaf = x.clone().requires_grad_()
    op = TritonFinalLogitSoftcapOp(30)
    y = op(leaf)
    (grad_x,) = torch.autograd.grad(y, leaf, torch.ones_like(y))
    assert (y.device, grad_x.device, torch.cuda.current_device()) == (device, device, current)
    here = x.to(f"cuda:{current}").requires_grad_()
    want = op(here)
    (want_grad,) = torch.autograd.grad(want, here, torch.ones_like(want))
    assert torch.equal(y.cpu(), want.cpu())
    assert torch.equal(grad_x.cpu(), want_grad.cpu())
