"""What an autotuner does to the tensors of a launch before the configuration that it chose runs."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from invariance.known_bad import stranger_kernels as kernels
from invariance.plan import Settings, cells
from invariance.run import judge_cell
from invariance.tiers.interpreter import interpreted
from invariance.verdict import FAIL, PASS


@triton.jit
def adding_kernel(y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(y + at, 1.0, mask=at < n)


def adding(**how):
    configurations = [triton.Config({"B": size}) for size in (16, 32, 64)]
    return triton.autotune(configs=configurations, key=["n"], **how)(adding_kernel)


def added(kernel, *, launches: int = 1, **how) -> tuple[float, int]:
    """What stands in y after launches on zeros, and how many ran."""
    y = torch.zeros(40)
    with interpreted(**how) as session:
        for _ in range(launches):
            kernel[lambda meta: (triton.cdiv(40, meta["B"]),)](y, 40)
    assert bool((y == y[0]).all())
    return float(y[0]), len(session.launches)


def test_others_run_before_on_the_same_tensors():
    assert added(adding()) == (1.0, 1)
    assert added(adding(), measured=True) == (3.0, 3)
    assert added(adding(), measured=True, configuration=2) == (3.0, 3)


def test_only_the_first_launch_of_a_kernel_is_measured():
    assert added(adding(), launches=2, measured=True) == (4.0, 4)


@pytest.mark.parametrize("how", ["restore_value", "reset_to_zero"])
def test_what_the_author_has_restored_is_restored(how):
    assert added(adding(**{how: ["y"]}), measured=True) == (1.0, 3)


def test_hooks_of_the_author_are_called_as_in_a_measurement():
    called = []
    kernel = adding(
        pre_hook=lambda arguments, reset_only=False: called.append(("before", arguments["B"], reset_only)),
        post_hook=lambda arguments, exception: called.append(("after", arguments["B"], exception)),
    )
    added(kernel, measured=True)
    assert called == [
        ("before", 32, False), ("after", 32, None), ("before", 64, False), ("after", 64, None), ("before", 64, True),
    ]  # fmt: skip
    assert kernel.nargs is None


def test_one_configuration_is_not_measured():
    kernel = triton.autotune(configs=[triton.Config({"B": 16})], key=["n"])(adding_kernel)
    assert added(kernel, measured=True) == (1.0, 1)


def test_a_kernel_in_place_shows_it_unless_its_tensor_is_restored():
    x = torch.linspace(-60, 60, 300)
    want = 30 * torch.tanh(x / 30)
    for restored in (True, False):
        y = torch.zeros(300)
        with interpreted(measured=True):
            kernels.autotuned_in_place(x, y, 30.0, restored=restored)
        assert torch.equal(y, want) == restored


@pytest.mark.parametrize(("name", "status"), [("measured_in_place", FAIL), ("measured_and_restored", PASS)])
def test_the_law_about_configurations_measures(name, status):
    spec = f"invariance.known_bad.strangers:{name}"
    settings = Settings(caps=(17.3,), dtypes=("fp32",), profile="quick", laws=("every_configuration",))
    (cell,) = [one for one in cells(spec, settings) if one.pass_ == "inference"]
    verdict = judge_cell(spec, cell, settings, shrinks=2)
    assert verdict.status == status
    if status == FAIL:
        assert verdict.mismatch is not None
        assert "the autotuner runs several" in verdict.mismatch.label
