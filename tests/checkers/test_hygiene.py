"""The laws on form, memory, graphs and refusals: good kernels pass, and each law catches a kernel that breaks it."""

from __future__ import annotations

import pytest
import torch

from invariance.candidate import PASSES, CandidateRaised, adapt
from invariance.checkers import LAWS, load_laws
from strategies.case import Case
from strategies.layouts import LAYOUTS
from tests.checkers.faulty import faulty, softcap, verdict
from tests.checkers.good import GOOD, Operator, PlainAutograd, WideOutput

load_laws()

MODULES = {"invariance.checkers." + name for name in ("hygiene", "graphs", "left_alone", "refusals")}
NAMES = sorted(name for name, law in LAWS.items() if law.check.__module__ in MODULES)
CELLS = [(name, pass_) for name in NAMES for pass_ in LAWS[name].passes]
CAPS = (30, 17.3, 1, 2.0**-60, 2.0**60)
SHAPES = ((), (1,), (0,), (2, 0, 3), (2, 3), (5, 33), (300,), (2, 1, 3, 4))


def cases():
    layouts = sorted(LAYOUTS)
    for number in range(len(layouts)):
        knobs = (
            ("grad_layout", layouts[-1 - number]),
            ("grad_values", ("signed", "specials", "large")[number % 3]),
        )
        yield Case(
            SHAPES[number % len(SHAPES)],
            ("fp16", "bf16", "fp32")[number % 3],
            CAPS[number % len(CAPS)],
            layouts[number],
            ("mixed", "specials", "transition")[number % 3],
            number,
            knobs,
        )


@pytest.mark.parametrize(("law", "pass_"), CELLS)
def test_good_kernels_pass(law, pass_):
    for candidate in GOOD:
        for case in cases():
            found = verdict(law, candidate, case, pass_)
            assert found.mismatch is None, (candidate.name, case, found.mismatch)
            assert found.elements > 0


def wrong(forward=None, backward=None, save=None):
    """A softcap whose forward, backward or choice of what to save is replaced."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, cap):
            ctx.cap = cap
            (save or (lambda ctx, x: ctx.save_for_backward(x)))(ctx, x)
            y = cap * torch.tanh(x.float() / cap)
            return y if forward is None else forward(x, y, cap)

        @staticmethod
        def backward(ctx, grad_y):
            x = ctx.saved_tensors[0] if ctx.saved_tensors else ctx.kept
            dx = (grad_y * (1 - torch.tanh(x.float() / ctx.cap) ** 2)).to(x.dtype)
            return (dx if backward is None else backward(x, grad_y, dx)), None

    class Wrong(Operator):
        def value(self, x):
            return Function.apply(x, self.cap)

    return adapt("wrong", Wrong)


def writes_into_its_input(x, y, cap):
    if x.numel():
        x.select(-1, 0).fill_(0.0) if x.dim() else x.fill_(0.0)
    return y


def writes_behind_its_input(x, y, cap):
    room = x.untyped_storage().nbytes() // x.element_size()
    after = x.storage_offset() + x.numel()
    if after < room:
        x.as_strided((1,), (1,), after).fill_(2.0)
    return y


def reads_behind_its_input(x, y, cap):
    room = x.untyped_storage().nbytes() // x.element_size()
    after = x.storage_offset() + x.numel()
    return torch.where(x.as_strided((1,), (1,), after) > 0, y + 1, y) if after < room else y


def writes_into_the_gradient(x, grad_y, dx):
    return grad_y.copy_(dx.to(grad_y.dtype)).to(x.dtype)


_static = {}


def into_a_static_buffer(x, y, cap):
    buffer = _static.setdefault(tuple(y.shape), torch.empty_like(y))
    return buffer.copy_(y).view_as(buffer)


def leaves_the_end_unwritten(x, y, cap):
    out = torch.empty(y.shape)
    whole = y.numel() // 8 * 8
    out.view(-1)[:whole] = y.reshape(-1)[:whole]
    return out


def flat_read(x, grad_y, dx):
    count = min(grad_y.numel(), grad_y.untyped_storage().nbytes() // grad_y.element_size())
    flat = torch.zeros(grad_y.numel())
    flat[:count] = grad_y.as_strided((count,), (1,), 0)
    return (flat.view(x.shape) * (1 - torch.tanh(x.float() / 30) ** 2)).to(x.dtype)


def counting():
    calls = [0]

    def backward(x, grad_y, dx):
        calls[0] += 1
        return dx + calls[0] * 2.0**-10

    return backward


def in_fp64(x, y, cap):
    return y.double()


def no_zero_dim(x, y, cap):
    return y.reshape(-1) if y.dim() == 0 else y


def refuses_empty(x, y, cap):
    if x.numel() == 0:
        raise ValueError("empty")
    return y


class Unchecked(PlainAutograd):
    def __init__(self, softcap):
        self.cap = softcap

    def __call__(self, x):
        return self.value(x)


class RoundedCap(WideOutput):
    def value(self, x):
        cap = torch.tensor(self.cap).bfloat16().item()
        return cap * torch.tanh(x.float() / cap)


class LastBitOfTheCap(WideOutput):
    def value(self, x):
        cap = torch.nextafter(torch.tensor(self.cap), torch.tensor(0.0)).item()
        return cap * torch.tanh(x.float() / cap)


class HardCoded(WideOutput):
    def value(self, x):
        return 30 * torch.tanh(x.float() / 30)


class MetaShape(PlainAutograd):
    def value(self, x):
        return torch.zeros(1) if x.is_meta else super().value(x)


def kept_past_autograd(ctx, x):
    ctx.kept = x.detach()


class OverwrittenY(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cap):
        y = cap * torch.tanh(x / cap)
        ctx.kept, ctx.cap = y.detach(), cap
        return y

    @staticmethod
    def backward(ctx, grad_y):
        t = ctx.kept / ctx.cap
        return grad_y * (1 - t * t), None


class SavesYPastAutograd(Operator):
    def value(self, x):
        return OverwrittenY.apply(x.float(), self.cap)


class ConstantSlope(torch.autograd.Function):
    """A backward that autograd differentiates through grad_y and not through x, as around a raw kernel."""

    @staticmethod
    def forward(ctx, x, cap):
        ctx.cap = cap
        ctx.save_for_backward(x)
        return cap * torch.tanh(x / cap)

    @staticmethod
    def backward(ctx, grad_y):
        (x,) = ctx.saved_tensors
        return grad_y * (1 - torch.tanh(x.detach() / ctx.cap) ** 2), None


class SilentlyFirstOrder(Operator):
    def value(self, x):
        return ConstantSlope.apply(x.float(), self.cap)


class Replacing(PlainAutograd):
    """A right softcap with what a subclass does to x and y."""

    def value(self, x):
        return self.spoil(x, super().value(x))


class Odd(Replacing):
    def spoil(self, x, y):
        return y.transpose(0, -1).contiguous().transpose(0, -1) if y.dim() > 1 else y


class Lapped(Replacing):
    def spoil(self, x, y):
        return y[:1].expand(y.shape) if y.dim() and x.stride(0) == 0 else y


class Reshapes(Replacing):
    def spoil(self, x, y):
        x.detach_().unsqueeze_(0)
        return y


class Writes(Replacing):
    def spoil(self, x, y):
        with torch.no_grad():
            x.neg_().neg_()
        return y


class Marks(Replacing):
    def spoil(self, x, y):
        x.requires_grad_(not x.requires_grad)
        return y


class Drops(Replacing):
    def spoil(self, x, y):
        if x.is_leaf:
            x.grad = None
        return y


class InferenceTensors(PlainAutograd):
    def value(self, x):
        with torch.inference_mode(not torch.is_grad_enabled()):
            return super().value(x)


class Learning(PlainAutograd):
    def value(self, x):
        with torch.enable_grad():
            return super().value(x) + torch.zeros((), requires_grad=True)


class Held(torch.autograd.Function):
    """Holds y and a buffer for dx where autograd does not look; `spoil(y, buffer, dx)` is the gradient sent."""

    @staticmethod
    def forward(ctx, x, cap, spoil):
        y = cap * torch.tanh(x.float() / cap)
        ctx.y, ctx.buffer, ctx.cap, ctx.spoil = y.detach(), torch.empty(x.shape), cap, spoil
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, grad_y):
        (x,) = ctx.saved_tensors
        dx = grad_y * (1 - torch.tanh(x.float() / ctx.cap) ** 2)
        return ctx.spoil(ctx.y, ctx.buffer, dx).to(x.dtype), None, None


def holding(spoil):
    class Holding(Operator):
        def value(self, x):
            return Held.apply(x, self.cap, spoil)

    return adapt("holding", Holding)


def spoils_y(y, buffer, dx):
    y.zero_()
    return dx


class BrokenByRefusal(PlainAutograd):
    def __call__(self, x):
        try:
            return super().__call__(x)
        except TypeError:
            self.cap *= 2
            raise


Renamed = type("Tensor", (torch.Tensor,), {})  # a class of another library may have the name

FORWARDS = ("forward", "inference")
FAULTS = [
    ("result_form", adapt("odd", Odd), FORWARDS),
    ("inputs_unmodified", adapt("reshapes", Reshapes), ("inference",)),
    ("inputs_unmodified", adapt("writes", Writes), ("inference",)),
    ("inputs_unmodified", adapt("marks", Marks), ("inference",)),
    ("accumulation", adapt("drops", Drops), PASSES),
    ("result_form", adapt("inference tensors", InferenceTensors), ("inference",)),
    ("result_form", adapt("learning", Learning), ("inference",)),
    ("result_form", adapt("of another class", lambda x, cap: softcap(x, cap).as_subclass(Renamed)), FORWARDS),
    ("no_aliasing", holding(lambda y, buffer, dx: y.copy_(dx)), ("backward",)),
    ("no_aliasing", holding(spoils_y), ("backward",)),
    ("retained_graph", holding(lambda y, buffer, dx: buffer.copy_(dx).detach()), ("backward",)),
    ("bad_dtypes", adapt("broken by refusal", BrokenByRefusal), FORWARDS),
    *(("process_left_alone", faulty(lambda out, args: (torch.rand(1), out)[1], p), (p,)) for p in PASSES),
    ("result_form", wrong(forward=in_fp64), FORWARDS),
    ("result_form", adapt("detached", lambda x, cap: softcap(x.detach(), cap)), ("backward",)),
    ("inputs_unmodified", wrong(forward=writes_into_its_input), PASSES),
    ("inputs_unmodified", wrong(backward=writes_into_the_gradient), ("backward",)),
    ("no_aliasing", wrong(forward=into_a_static_buffer), FORWARDS),
    ("no_aliasing", wrong(backward=lambda x, grad_y, dx: grad_y), ("backward",)),
    ("guard_bands", wrong(forward=writes_behind_its_input), PASSES),
    ("guard_bands", wrong(forward=reads_behind_its_input), FORWARDS),
    ("freed_memory", wrong(forward=leaves_the_end_unwritten), FORWARDS),
    ("freed_memory", wrong(backward=lambda x, g, dx: leaves_the_end_unwritten(x, dx, 1)), ("backward",)),
    ("empty_and_scalar", wrong(forward=no_zero_dim), FORWARDS),
    ("empty_and_scalar", wrong(forward=refuses_empty), PASSES),
    ("autograd_gradients", wrong(backward=flat_read), ("backward",)),
    ("retained_graph", wrong(backward=counting()), ("backward",)),
    ("changed_in_place", wrong(save=kept_past_autograd), ("backward",)),
    ("changed_in_place", adapt("y", SavesYPastAutograd), ("backward",)),
    ("double_backward", adapt("silent", SilentlyFirstOrder), ("backward",)),
    ("cap_used", adapt("rounded", RoundedCap), PASSES),
    ("cap_used", adapt("last bit", LastBitOfTheCap), FORWARDS),
    ("cap_used", adapt("hard-coded", HardCoded), PASSES),
    ("bad_caps", adapt("unchecked", Unchecked), ("forward",)),
    ("bad_dtypes", adapt("unchecked", Unchecked), FORWARDS),
    ("wrong_device", adapt("meta", MetaShape), ("inference",)),
]


@pytest.mark.parametrize(("law", "candidate", "passes"), FAULTS)
def test_each_law_catches_its_fault(law, candidate, passes):
    case = Case((5, 33), "fp32", 30, seed=2, values="transition")
    for pass_ in passes:
        assert caught(law, candidate, case, pass_), pass_


def caught(law, candidate, case, pass_):
    """Whether the law finds the fault; that a candidate raises where it has to return is a finding too."""
    try:
        return verdict(law, candidate, case, pass_).mismatch is not None
    except CandidateRaised:
        return True


def test_every_law_has_a_fault_in_each_of_its_passes():
    caught = {(law, pass_) for law, _, passes in FAULTS for pass_ in passes}
    assert caught == set(CELLS)


@pytest.mark.parametrize(
    ("factor", "label"), [(2, "where x has a gradient"), (1, "x.grad, after 2 of .backward()")]
)
def test_a_gradient_that_is_there_already_is_added_to_exactly(factor, label):
    calls = []

    def backward(x, grad_y, dx):
        if x.grad is None:
            return dx
        calls.append(0)
        return factor * dx if len(calls) < 3 else 2 * dx

    found = verdict("accumulation", wrong(backward=backward), Case((5, 33), "fp32", 30), "backward").mismatch
    assert found is not None
    assert found.label == label


def test_a_result_that_is_several_elements_in_one_place_is_no_result():
    case = Case((5, 33), "fp32", 30, "stride_zero", seed=2)
    found = verdict("result_form", adapt("lapped", Lapped), case, "inference")
    assert found.mismatch is not None
    assert found.mismatch.label == "two elements in one place"


def test_a_view_that_a_function_made_takes_no_mask():
    case = Case((5, 33), "fp32", 30, seed=2)
    viewed = wrong(forward=lambda x, y, cap: y.contiguous().view(-1).view(x.shape))
    found = verdict("result_form", viewed, case, "forward").mismatch
    assert found is not None
    assert found.label == "with a graph, masked in place"
    assert verdict("result_form", viewed, case, "inference").mismatch is None


def test_a_result_with_the_strides_of_overlapping_rows_is_no_result():
    def forward(x, y, cap):
        return y.as_strided(y.shape, x.stride()) if y.dim() and x.stride() == (1, 1) else y

    found = verdict("result_form", wrong(forward=forward), Case((5, 33), "fp32", 30), "inference")
    assert found.mismatch is not None
    assert found.mismatch.label == "of rows that overlap, two elements in one place"


@pytest.mark.parametrize(
    "name", ["stack", "cat", "transpose", "sum of each row", "sum of each column", "sum", "a sum over tokens"]
)
def test_autograd_really_sends_strided_gradients(name):
    strides = []

    def watched(out, args):
        strides.append(args[1].stride())
        return out

    case = Case((3, 5), "fp32", 30)
    candidate = faulty(watched, "backward")
    f = candidate.map(30, "backward")
    x, weight = case.x(), case.grad_y(torch.float32)
    from_law = LAWS["autograd_gradients"].check(f, (x, weight), case.pick)
    seen = {claim.label: strides[-2] for claim in from_law}
    assert seen[f"the gradient of {name}"] not in {(5, 1), (15, 5, 1)}


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_memory_around_a_view_is_watched(dtype):
    case = Case((4, 6), dtype, 30, "padded_vocabulary")

    def forward(x, y, cap):
        x.as_strided((4, 1), (64, 1), x.storage_offset() + 6).fill_(1.0)
        return y

    found = verdict("inputs_unmodified", wrong(forward=forward), case, "inference")
    assert found.mismatch is not None
    assert found.mismatch.label == "the memory of x"


class UnsentSlope(torch.autograd.Function):
    """The gradient, whose own derivative takes what it is sent for ones."""

    @staticmethod
    def forward(ctx, x, grad_y, cap):
        ctx.cap = cap
        ctx.save_for_backward(x, grad_y)
        return grad_y * (1 - torch.tanh(x / cap) ** 2)

    @staticmethod
    def backward(ctx, h):
        x, grad_y = ctx.saved_tensors
        t = torch.tanh(x / ctx.cap)
        return grad_y * (-2 * t * (1 - t * t) / ctx.cap), 1 - t * t, None


def test_a_second_derivative_is_sent_both_signs():
    unsent = wrong(backward=lambda x, grad_y, dx: UnsentSlope.apply(x, grad_y, 30.0))
    found = verdict("double_backward", unsent, Case((5, 33), "fp32", 30, seed=2), "backward").mismatch
    assert found is not None
    assert found.label.startswith("sent both signs, off by")


def test_a_second_derivative_that_raises_or_is_right_passes():
    case = Case((64,), "fp32", 30)
    for candidate in GOOD:
        assert verdict("double_backward", candidate, case, "backward").mismatch is None
    assert {"SavedY", "PlainAutograd"} <= {
        candidate.name for candidate in GOOD
    }  # the one raises, the other is right
