"""The interpreter tier: it computes what a GPU would, sees what a GPU would not tell, and leaves nothing behind."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from invariance.tiers import interpreter, patches, repairs, selftest
from invariance.tiers.interpreter import (
    OutOfBounds,
    interpreted,
    interpreted_factory,
    self_test,
    virtual_tensor,
)
from softcap import kernels

Mutate = Callable[..., ModuleType]
BLOCK = kernels.BLOCK
FAR = 2**31 // BLOCK  # the first program past 2**31 elements

INT32_OFFSETS = ("tl.program_id(0).to(tl.int64) * BLOCK", "tl.program_id(0) * BLOCK")
NO_LOAD_MASK = ("tl.load(x_ptr + offsets, mask=mask, other=0.0)", "tl.load(x_ptr + offsets)")
NO_STORE_MASK = ("_capped(x, c, reciprocal), mask=mask)", "_capped(x, c, reciprocal))")
LOOSE_MASK = ("mask = offsets < n", "mask = offsets <= n")


def launch(kernel: Any, x: Tensor, y: Tensor, n: int | None = None) -> None:
    n = x.numel() if n is None else n
    kernel[(-(-n // BLOCK),)](x, y, 20.0, n, BLOCK=BLOCK)


@pytest.mark.parametrize("n", [1, 1023, 1024, 1025])
def test_the_shipped_forward_kernel_stays_inside(n: int) -> None:
    x, y = torch.linspace(-60, 60, n), torch.zeros(n)
    with interpreted() as session:
        launch(kernels.softcap_forward_kernel, x, y)
    assert torch.equal(y, 20 * torch.tanh(x / 20))
    assert session.launches == [
        interpreter.Launch("softcap_forward_kernel", (-(-n // BLOCK), 1, 1), -(-n // BLOCK))
    ]


def test_the_shipped_kernels_reach_past_two_to_the_31_elements() -> None:
    n = 2**31 + 1000
    x, g = virtual_tensor(n, torch.bfloat16), virtual_tensor(n, torch.float32)
    y, dx = virtual_tensor(n, torch.float32), virtual_tensor(n, torch.bfloat16)
    x[-1000:], g[-1000:] = 10.0, 2.0
    with interpreted(program_ids=[FAR]):
        launch(kernels.softcap_forward_kernel, x, y)
        kernels.softcap_backward_kernel[(FAR + 1,)](x, g, dx, 20.0, n, BLOCK=BLOCK)
    t = torch.tanh(torch.tensor(0.5))
    assert torch.equal(y[-1000:], (20 * t).expand(1000))
    assert torch.equal(dx[-1000:], (2 * (1 - t * t)).to(torch.bfloat16).expand(1000))
    assert y[2**31 - 1 - BLOCK] == 0


@pytest.mark.parametrize(
    ("edit", "what", "lanes", "offset"),
    [(NO_LOAD_MASK, "load", 1023, 1025), (NO_STORE_MASK, "store", 1023, 1025), (LOOSE_MASK, "load", 1, 1025)],
)
def test_mask_mistakes_are_seen(
    edit: tuple[str, str], what: str, lanes: int, offset: int, mutate: Mutate
) -> None:
    x, y = torch.ones(1025), torch.zeros(1025)
    with interpreted(), pytest.raises(OutOfBounds) as caught:
        launch(mutate(edit).softcap_forward_kernel, x, y)
    error = caught.value
    tensor = {"load": "x_ptr", "store": "y_ptr"}[what]
    assert (error.what, error.tensor, error.lanes, error.offset) == (what, tensor, lanes, offset)
    assert error.program == (1, 0, 0)
    assert re.search(
        rf"{what}: {lanes} of \d+ active lanes outside {tensor} .* offset {offset} in", str(error)
    )
    assert "0x" not in str(error)  # an address is another one in each process


def test_an_int32_offset_past_two_to_the_31_elements_is_seen(mutate: Mutate) -> None:
    n = 2**31 + BLOCK
    x, y = virtual_tensor(n, torch.bfloat16), virtual_tensor(n, torch.float32)
    with interpreted(program_ids=[FAR]), pytest.raises(OutOfBounds) as caught:
        launch(mutate(INT32_OFFSETS).softcap_forward_kernel, x, y)
    assert caught.value.offset == -(2**31)


def test_a_view_is_checked_by_what_it_reaches(mutate: Mutate) -> None:
    storage = torch.ones(2 * BLOCK)
    with interpreted(), pytest.raises(OutOfBounds):
        launch(mutate(NO_LOAD_MASK).softcap_forward_kernel, storage[:1025], torch.zeros(1025))


def test_an_access_into_another_tensor_of_the_launch_is_seen(mutate: Mutate) -> None:
    storage = torch.ones(4 * BLOCK)
    x, y = storage[:1025], storage[1025:2050]
    with interpreted(), pytest.raises(OutOfBounds):
        launch(mutate(NO_LOAD_MASK).softcap_forward_kernel, x, y)


def test_thirty_written_into_the_kernel_gives_the_bits_of_thirty_passed(mutate: Mutate) -> None:
    x = torch.linspace(-200, 200, 4097)
    passed, written = torch.zeros(4097), torch.zeros(4097)
    hard_coded = mutate(("c = tl.cast(softcap, tl.float32)", "c = tl.cast(30.0, tl.float32)"))
    with interpreted():
        kernels.softcap_forward_kernel[(5,)](x, passed, 30.0, 4097, BLOCK=BLOCK)
        hard_coded.softcap_forward_kernel[(5,)](x, written, 7.0, 4097, BLOCK=BLOCK)
    assert torch.equal(passed, written)


@pytest.mark.parametrize("cap", [2.0**-140, 1e-30, 1.0, 3e38])
def test_a_float_is_an_fp32_argument_whatever_its_size(cap: float) -> None:
    x, y = torch.tensor([cap, 0.0, -cap]), torch.zeros(3)
    with interpreted():
        kernels.softcap_forward_kernel[(1,)](x, y, cap, 3, BLOCK=BLOCK)
    assert torch.equal(y, cap * torch.tanh(x / cap))


def test_everything_is_undone_also_after_an_error() -> None:
    before = (libdevice.tanh, tl.load, tl.tensor.__add__, torch.cuda.device, dict(vars(kernels)))
    with pytest.raises(OutOfBounds), interpreted():
        launch(kernels.softcap_forward_kernel, torch.ones(3), torch.ones(2))
    assert (libdevice.tanh, tl.load, tl.tensor.__add__, torch.cuda.device, dict(vars(kernels))) == before
    assert not torch.zeros(1).is_cuda


def test_wrappers_see_a_gpu() -> None:
    with interpreted(), torch.cuda.device(torch.device("cpu")):
        assert torch.zeros(1).is_cuda


def test_a_context_in_a_context_is_the_same_one() -> None:
    with interpreted() as outer, interpreted() as inner:
        assert outer is inner
        with pytest.raises(RuntimeError, match="already active"), interpreted(program_ids=[0]):
            pass


def test_the_self_test_passes_here() -> None:
    self_test()
    assert selftest.failures(interpreted) == []


@pytest.mark.parametrize(
    ("owner", "repair", "fault"),
    [
        (repairs, "_repair_rounding", "round to nearest even"),
        (repairs, "_repair_bf16_arithmetic", "BF16 arithmetic"),
        (repairs, "fill_masked_lanes", "masked lanes are zeros"),
        (interpreter, "check_accesses", "unmasked load past the end"),
    ],
)
def test_the_self_test_names_a_repair_that_is_missing(
    owner: ModuleType, repair: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, repair, lambda *_: None)
    self_test.cache_clear()
    with pytest.raises(patches.PatchError, match=fault):
        interpreted_factory(lambda softcap: softcap)
    self_test.cache_clear()


def test_a_patch_of_what_does_not_exist_is_an_error() -> None:
    with patches.Patches() as several, pytest.raises(patches.PatchError, match="no_such_function"):
        several.set(torch, "no_such_function", None)


def test_many_names_of_a_module_are_replaced_and_restored_or_none_is() -> None:
    module = ModuleType("several")
    module.one, module.two = 1, 2  # type: ignore[attr-defined]
    with patches.Patches() as several:
        several.update(module, {"one": 10, "two": 20})
        several.set(module, "one", 100)
        assert (module.one, module.two) == (100, 20)
        with pytest.raises(patches.PatchError, match="cannot replace four, three of"):
            several.update(module, {"two": 3, "three": 3, "four": 4})
        assert (module.one, module.two) == (100, 20)
    assert (module.one, module.two) == (1, 2)


def test_a_libdevice_function_without_substitute_says_so(mutate: Mutate) -> None:
    mutant = mutate(("c * libdevice.tanh(", "c * libdevice.erfinv("))
    with interpreted(), pytest.raises(NotImplementedError, match="erfinv"):
        launch(mutant.softcap_forward_kernel, torch.ones(3), torch.zeros(3))


def test_a_function_imported_by_name_is_substituted_too(mutate: Mutate) -> None:
    mutant = mutate(
        ("from triton.language.extra import libdevice", "from triton.language.extra.libdevice import tanh"),
        ("return grad_y * (1.0 - t * t)", "return grad_y"),
        ("    t = libdevice.tanh(_quotient(x.to(tl.float32), c, reciprocal))\n", ""),
        ("c * libdevice.tanh(", "c * tanh("),
    )  # fmt: skip
    x, y = torch.linspace(-60, 60, 9), torch.zeros(9)
    with interpreted():
        launch(mutant.softcap_forward_kernel, x, y)
    assert torch.equal(y, 20 * torch.tanh(x / 20))


def test_the_standard_library_of_triton_can_be_called(mutate: Mutate) -> None:
    mutant = mutate(
        ("c * libdevice.tanh(_quotient(x.to(tl.float32), c, reciprocal))", "tl.sigmoid(x.to(tl.float32) / c)")
    )
    x, y = torch.linspace(-60, 60, 9), torch.zeros(9)
    with interpreted():
        launch(mutant.softcap_forward_kernel, x, y)
    torch.testing.assert_close(y, torch.sigmoid(x / 20))


def test_bf16_values_are_rounded_for_every_upper_half() -> None:
    upper = torch.arange(-(2**15), 2**15, dtype=torch.int32) << 16
    for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        x = (upper + low).view(torch.float32)
        got = torch.from_numpy(repairs.round_to_bf16(x.numpy()).view("int16"))
        want = x.to(torch.bfloat16)
        same = got == want.view(torch.int16)
        assert bool((same | (want.isnan() & got.view(torch.bfloat16).isnan())).all())


def test_an_operator_that_launches_nothing_shows_it() -> None:
    with interpreted() as session:
        assert torch.equal(torch.tanh(torch.zeros(2)), torch.zeros(2))
    assert session.launches == []
