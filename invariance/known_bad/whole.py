"""Wrong where a whole tensor or row is alike, and at sizes and caps of models that small tests do not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from invariance.known_bad.entry import wrong
from invariance.known_bad.kernel import Gradient, Kernel, capped, gradient, nudged

_SPECIAL = ("special_values", "zeros", "neighbours")


@wrong(bugs=(55,), must={"special_values"}, laws=_SPECIAL)
def no_work_for_a_zero_gradient(softcap: float) -> Kernel:
    """A grad_y without any number but zero is handed back: where x is NaN, dx has to be NaN."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        return gradient(x, g, c) if g.any() else torch.copysign(torch.zeros_like(x), g)

    return Kernel(softcap, backward=backward)


@wrong(bugs=(55,), must={"special_values"}, laws=_SPECIAL)
def no_work_for_masked_rows(softcap: float) -> Kernel:
    """Rows without a gradient, as of padded tokens, are skipped: where x is NaN, dx has to be NaN."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        if x.dim() < 2:
            return gradient(x, g, c)
        asked = (g != 0).any(-1, keepdim=True)
        return torch.where(asked, gradient(x, g, c), torch.copysign(torch.zeros_like(x), g.to(x.dtype)))

    return Kernel(softcap, backward=backward)


@wrong(bugs=(55,), must={"special_values"}, laws=_SPECIAL)
def masked_batch_is_zero(softcap: float) -> Kernel:
    """A batch that is masked throughout gives 0, and not -c."""

    def forward(x: Tensor, c: float) -> Tensor:
        masked = x.numel() > 1 and bool((x == -torch.inf).all())
        return torch.zeros_like(capped(x, c)) if masked else capped(x, c)

    return Kernel(softcap, forward)


@wrong(bugs=(55,), must={"special_values"}, laws=_SPECIAL)
def rows_of_one_value(softcap: float) -> Kernel:
    """A row that holds one value throughout, as of padding, is answered from a table of few digits."""

    def forward(x: Tensor, c: float) -> Tensor:
        y = capped(x, c)
        alike = x.dim() > 1 and x.shape[-1] > 8 and bool((x == x[..., :1]).all(-1).any())
        return torch.where((x == x[..., :1]).all(-1, keepdim=True), y * 1.001, y) if alike else y

    return Kernel(softcap, forward)


def _sized(softcap: float, wrong_at: Any) -> Kernel:
    """The right kernel, one ulp lower in the last column of the sizes named."""

    def forward(x: Tensor, c: float) -> Tensor:
        y = capped(x, c)
        if x.dim() == 0 or not wrong_at(x):
            return y
        last = torch.arange(x.shape[-1], device=x.device) == x.shape[-1] - 1
        return nudged(y, last.expand_as(y))

    return Kernel(softcap, forward)


_MODELS: dict[str, Any] = {"laws": ("splitting", "repeat"), "profile": "default", "dtypes": ("bf16",)}


@wrong(bugs=(28,), must={"splitting"}, elements=1 << 18, **_MODELS)
def last_column_of_the_widest_vocabulary(softcap: float) -> Kernel:
    """Column 262,143 of a vocabulary of 262,144 is another function, as a row that its tiles do not hold gives."""
    return _sized(softcap, lambda x: x.shape[-1] >= 1 << 18)


@wrong(bugs=(79,), must={"splitting"}, elements=1 << 22, **_MODELS)
def past_two_million(softcap: float) -> Kernel:
    """From 2^21 elements on another path is taken, whose rows end in another function."""
    return _sized(softcap, lambda x: x.numel() > 1 << 21)


@wrong(
    bugs=(60,),
    must={"layout"},
    laws=("layout", "repeat"),
    profile="default",
    dtypes=("bf16",),
    elements=1 << 18,
)
def large_transposed(softcap: float) -> Kernel:
    """Large matrices that are transposed take a kernel of tiles, whose last column is another function."""
    return _sized(softcap, lambda x: x.dim() == 2 and x.numel() > 70_000 and x.t().is_contiguous())


@wrong(
    bugs=(79,), must={"reshaping"}, may={"splitting"}, laws=("reshaping", "splitting"), profile="default",
    dtypes=("bf16",), elements=1 << 18,
)  # fmt: skip
def one_token_at_a_time(softcap: float) -> Kernel:
    """A decode step over a vocabulary past 40,000, (1, 1, vocabulary), takes a kernel that is another function."""

    def forward(x: Tensor, c: float) -> Tensor:
        return nudged(capped(x, c), x.dim() == 3 and x.shape[:2] == (1, 1) and x.shape[2] > 40_000)

    return Kernel(softcap, forward)


@wrong(
    bugs=(67,), must={"inputs_unmodified"}, laws=("inputs_unmodified", "repeat"), profile="default",
    elements=1 << 18,
)  # fmt: skip
def large_gradients_in_place(softcap: float) -> Kernel:
    """From 70,000 elements on, FP32 gradients are computed in the memory of grad_y."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        dx = gradient(x, g, c)
        if x.numel() > 70_000 and g.is_contiguous() and g.dtype == x.dtype:
            g.data.copy_(dx)
        return dx

    return Kernel(softcap, backward=backward)


class _TwiceWhereLarge(Gradient):
    @staticmethod
    def backward(ctx: Any, h: Tensor) -> tuple[Tensor, Tensor, None]:
        by_x, by_g, _ = Gradient.backward(ctx, h)
        return by_x, by_g * 2 if h.numel() > 5000 else by_g, None


@wrong(
    bugs=(69,),
    must={"double_backward"},
    laws=("double_backward", "repeat"),
    profile="default",
    elements=1 << 18,
)
def second_derivative_of_large_tensors(softcap: float) -> Kernel:
    """From 5,000 elements on, the derivative of the gradient is twice too large."""
    return Kernel(softcap, backward=_TwiceWhereLarge.apply)


class _Workspace:
    """Under no_grad results of the sizes named share one buffer a shape."""

    def __init__(self, softcap: float, shared: Callable[[Tensor], bool]) -> None:
        self.kernel = Kernel(softcap)
        self.shared = shared
        self.buffers: dict[object, Tensor] = {}

    def __call__(self, x: Tensor) -> Tensor:
        y = self.kernel(x)
        if torch.is_grad_enabled() or not self.shared(x):
            return y
        return self.buffers.setdefault((y.shape, y.device), torch.empty_like(y)).copy_(y)


@wrong(
    bugs=(92,),
    must={"no_aliasing"},
    laws=("no_aliasing", "repeat"),
    profile="default",
    dtypes=("bf16",),
    elements=1 << 18,
)
def workspace_for_large_results(softcap: float) -> Any:
    """From 100,000 elements on, a second call writes over the result of the first."""
    return _Workspace(softcap, lambda x: x.numel() >= 100_000)


@wrong(
    bugs=(92,), must={"no_aliasing"}, laws=("no_aliasing", "repeat"), profile="default", dtypes=("bf16",),
    elements=1 << 19,
)  # fmt: skip
def workspace_for_larger_results(softcap: float) -> Any:
    """From 2^18 elements on, a second call writes over the result of the first."""
    return _Workspace(softcap, lambda x: x.numel() >= 1 << 18)


@wrong(
    bugs=(92,), must={"no_aliasing"}, laws=("no_aliasing", "repeat"), profile="default", dtypes=("bf16",),
    elements=1 << 18,
)  # fmt: skip
def static_output_of_a_decode_step(softcap: float) -> Any:
    """Rows of 8,192 and more, as a captured graph decodes them, share one output."""
    return _Workspace(softcap, lambda x: x.dim() > 1 and x.shape[-1] >= 8192)


@wrong(
    bugs=(79, 90), must={"batch"}, may={"reshaping", "splitting"}, laws=("batch", "repeat", "splitting"),
    profile="default", elements=1 << 14,
)  # fmt: skip
def band_of_rows(softcap: float) -> Kernel:
    """For 65 to 128 rows of ordinary width another tile is chosen, whose results are an ulp off."""

    def forward(x: Tensor, c: float) -> Tensor:
        return nudged(
            capped(x, c), x.dim() > 1 and x.shape[-1] >= 64 and 64 < x.numel() // x.shape[-1] <= 128
        )

    return Kernel(softcap, forward)


class _Remembering:
    """The last large input is kept, for a backward that never asks for it."""

    def __init__(self, softcap: float, least: int) -> None:
        self.kernel, self.least = Kernel(softcap), least
        self.last: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        self.last = x.detach() if x.numel() >= self.least else None
        return self.kernel(x)


@wrong(
    bugs=(107,), must={"memory_released"}, laws=("memory_released", "repeat"), profile="default", dtypes=("bf16",),
    elements=1 << 18,
)  # fmt: skip
def large_input_kept(softcap: float) -> Any:
    """From 100,000 elements on, the last input stays in memory for as long as the operator."""
    return _Remembering(softcap, 100_000)


@wrong(
    bugs=(107,), must={"memory_released"}, laws=("memory_released", "repeat"), profile="default", dtypes=("bf16",),
    elements=1 << 19,
)  # fmt: skip
def larger_input_kept(softcap: float) -> Any:
    """From 2^18 elements on, the last input stays in memory for as long as the operator."""
    return _Remembering(softcap, 1 << 18)


@wrong(bugs=(7, 15), must={"cap_used"}, laws=("cap_used", "exact_value"))
def tuned_to_one_model(softcap: float) -> Kernel:
    """At 50, the cap of one model's attention, a rational function stands in for tanh."""

    def forward(x: Tensor, c: float) -> Tensor:
        z = (x.to(torch.float32) / c).clamp(-3, 3)
        return c * (z * (27 + z * z) / (27 + 9 * z * z)) if c == 50 else capped(x, c)

    return Kernel(softcap, forward)


class _Marked(Tensor):
    pass


@wrong(bugs=(111,), must={"result_form"}, laws=("result_form", "repeat"))
def results_of_another_class(softcap: float) -> Any:
    """A result is a tensor of the library's own class, through which all that is computed of it dispatches."""
    kernel = Kernel(softcap)
    return lambda x: kernel(x).as_subclass(_Marked)
