"""What autograd may be asked: any upstream gradient, a second time, a second order, after a change in place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from invariance.candidate import Map
from invariance.checkers import Pick, checker
from invariance.checkers.accuracy import Args, judged_cap
from invariance.checkers.memory import overlap
from invariance.checkers.views import as_tokens, flat, plain, refused_or
from invariance.judge import Claim
from oracles import fp64
from oracles.formats import FORMATS, cap_as_fp32
from oracles.tolerances import Contract, load_contract
from oracles.truth import Truth
from strategies import dtypes
from strategies.draws import Draw


@checker(
    judgement="invariance",
    passes=("backward",),
    inputs="small",
    bugs=(
        "ROCm/TransformerEngine#623",
        "pytorch/pytorch#194719",
        "fla-org/flash-linear-attention#871",
        "Dao-AILab/flash-attention#355",
    ),
)
def autograd_gradients(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """The gradients that sum, mean, cat, stack and a transpose send give the bits of contiguous ones."""
    x, weight = args[0], plain(args[1])
    for name, loss in _losses(weight, pick("side", 0, 1)).items():
        yield _as_sent(name, f, x, loss)
    if weight.numel():
        x, weight = as_tokens(x), as_tokens(weight)
        yield _as_sent("a sum over tokens", f, x, lambda y: _weighed(y.sum(1), weight[:, 0]))


def _as_sent(name: str, f: Map, x: Tensor, loss: Callable[[Tensor], Tensor]) -> Claim:
    """The claim that the gradient of the loss of y is that of a contiguous copy of what reaches y."""
    sent: list[Tensor] = []
    leaf, y = f.graph(x)
    if y.requires_grad:
        y.register_hook(sent.append)  # type: ignore[no-untyped-call]  # untyped in torch
    total = loss(y)
    got = f.gradient(leaf, total, torch.ones_like(total))
    upstream = plain(sent[0])
    return Claim(f"the gradient of {name}", got=got, want=f(x, upstream), of=(x, upstream))


def _losses(weight: Tensor, side: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """Scalars of y that send `weight`, or less, in other strides: 0, 2, a wider row, another order; NaN beside it."""
    nan = torch.full_like(weight, math.nan)

    def pair(t: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        return (t, other) if side == 0 else (other, t)

    losses: dict[str, Callable[[Tensor], Tensor]] = {
        "sum": lambda y: y.sum(),
        "mean": lambda y: y.mean(),
        "stack": lambda y: _weighed(torch.stack(pair(y, y.detach()), -1), torch.stack(pair(weight, nan), -1)),
    }
    if weight.dim() == 0 or weight.numel() == 0:
        return losses
    losses["cat"] = lambda y: _weighed(torch.cat(pair(y, y.detach()), -1), torch.cat(pair(weight, nan), -1))
    losses["sum of each row"] = lambda y: _weighed(y.sum(-1), weight[..., 0])
    losses["sum of each column"] = lambda y: _weighed(y.sum(0), weight[0])
    if weight.dim() > 1:
        losses["transpose"] = lambda y: _weighed(y.transpose(0, -1), plain(weight.transpose(0, -1)))
    return losses


def _weighed(t: Tensor, weight: Tensor) -> Tensor:
    """A scalar whose gradient at t is `weight`."""
    return (t * weight).sum()


@checker(
    judgement="invariance",
    passes=("backward",),
    inputs="small",
    bugs=("triton-lang/triton#4004", "linkedin/Liger-Kernel#254", "linkedin/Liger-Kernel#1305"),
)
def retained_graph(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Going backward again over a retained graph gives the same bits, also after another gradient was sent."""
    x, grad_y = args
    leaf, y = f.graph(x)
    first = f.gradient(leaf, y, grad_y, retain_graph=True)
    kept = first.clone()
    yield Claim("again", got=f.gradient(leaf, y, grad_y, retain_graph=True), want=kept, of=args)
    other = flat(grad_y).flip(0).reshape(grad_y.shape)
    want = f(x, other)
    second = f.gradient(leaf, y, other, retain_graph=True)
    yield Claim("another gradient", got=second, want=want, of=(x, other))
    yield Claim("the first gradient, after another was sent", got=first, want=kept, of=args)
    yield Claim("the second gradient shares memory with the first", got=overlap(first, second), want=False)
    yield Claim("and again", got=f.gradient(leaf, y, grad_y), want=kept, of=args)
    yield Claim("the first gradient, afterwards", got=first, want=kept, of=args)


@checker(
    judgement="invariance",
    passes=("backward",),
    inputs="small",
    bugs=("linkedin/Liger-Kernel#254", "NVIDIA/Megatron-LM#1594", "triton-lang/triton#4004"),
)
def changed_in_place(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Changing x or y in place between forward and backward raises, or the gradient stays right."""
    want = f(*args)
    for name in ("x", "y"):
        leaf, y = f.graph(plain(args[0]))
        try:
            with torch.no_grad():
                (leaf if name == "x" else y).fill_(0.7 * cap_as_fp32(f.cap))
        except RuntimeError:  # refused at once: y is a view, or expanded
            yield Claim(f"{name} changed", got="raised", want="raised")
            continue
        yield refused_or(f"{name} changed", partial(f.gradient, leaf, y, args[1]), want, args)


@checker(
    judgement="invariance",
    each_cap=False,
    inputs="small",
    bugs=("linkedin/Liger-Kernel#254", "linkedin/Liger-Kernel#1305", "triton-lang/triton#4004"),
)
def accumulation(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """A gradient that x already has moves no bit and stays as it is; .backward() adds to it exactly."""
    want = f(*args)
    x = plain(args[0]).requires_grad_()
    there = plain(args[-1]).to(x.dtype)
    x.grad = there
    kept = plain(there)
    yield Claim("where x has a gradient", got=f.of_object(x, *args[1:]), want=want, of=args)
    yield Claim("x.grad is the tensor that it was", got=x.grad is there, want=True)
    yield Claim("x.grad, after a call", got=there, want=kept)
    if len(args) == 1:
        return
    for number in range(2):
        kept = kept + want
        torch.autograd.backward(f.recorded(x), args[1])
        yield Claim("x.grad is the tensor that it was", got=x.grad is there, want=True)
        yield Claim(f"x.grad, after {number + 1} of .backward()", got=there, want=kept, of=args)


@checker(
    judgement="invariance",
    passes=("backward",),
    inputs="kept",
    bugs=("triton-lang/triton#4004", "pytorch/pytorch#104040"),
)
def double_backward(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """A gradient with a graph raises or is right; a second one raises, or is within 2^-5 of the largest exact one."""
    # Of its own, that is: where a graph is asked for, a kernel may take a slower path that has one.
    first = _with_a_graph(f, *args)
    want = first if isinstance(first, str) else Truth.of(args[0], judged_cap(f), args[1])
    yield Claim("the gradient, with create_graph=True", got=first, want=want, within="ulp")
    cap = cap_as_fp32(f.cap)
    x = _bent(args[0], cap)
    slope, t = fp64.sech2(x, cap), fp64.forward(x, cap) / cap
    exact = (
        2.0 * slope * (1.0 - 3.0 * t * t)
    )  # of (y²)' = 2 y y', once more: 2 (y'² + y y'') with y'' = -2 t y' / c
    where = _second_order_domain(x, cap, f.out_dtype(x.dtype, x.device), load_contract())
    ones, signed = x.new_ones(()).expand(x.shape), _of_both_signs(x, pick("sent", 0, 1 << 20))
    for sent, h in {"ones": ones, "both signs": signed}.items():
        got = _second_derivative(f, x, h)
        if isinstance(got, str):
            yield Claim("the second derivative", got=got, want=got)
            return
        if got is None:
            yield Claim("the second derivative", got="left x.grad empty", want="reaches x or raises")
            return
        yield Claim("the shape of the second derivative", got=tuple(got.shape), want=tuple(x.shape))
        if bool(where.any()):
            due = h.to(torch.float64) * exact
            off = float((got.to(torch.float64) - due)[where].abs().max() / due[where].abs().max())
            bound = load_contract().double_backward_bound
            label = f"sent {sent}, off by {off:.3g} of the largest exact value, where {bound:g} is allowed"
            yield Claim(label, got=off <= bound, want=True)


def _of_both_signs(x: Tensor, seed: int) -> Tensor:
    """Random numbers from 1/2 to 1 for the elements of x, with either sign."""
    draw = Draw(torch.arange(x.numel(), device=x.device).view(x.shape), seed, dtypes.name(x.dtype), 1.0, role="h")
    size = draw.uniform(0.5, 1.0)
    return torch.where(draw.bits("sign", 1) == 1, -size, size).to(x.dtype)


def _bent(x: Tensor, cap: float) -> Tensor:
    """x with |x/c| spread evenly over the contract's range, the signs kept; fresh and contiguous."""
    low, high = load_contract().double_backward_z
    z = torch.linspace(low, high, x.numel(), dtype=torch.float64, device=x.device).view(x.shape)
    return torch.copysign(z * cap, x.to(torch.float64)).to(x.dtype)


def _with_a_graph(f: Map, x: Tensor, grad_y: Tensor) -> Tensor | str:
    """The gradient, of which a graph is asked for, or that it raised."""
    leaf, y = f.graph(x)
    try:
        (dx,) = torch.autograd.grad(y, leaf, grad_y, create_graph=True)
    except Exception:  # noqa: BLE001 - whatever a candidate raises here is a refusal
        return "raised"
    return dx.detach()


def _second_derivative(f: Map, x: Tensor, h: Tensor) -> Tensor | str | None:
    """x.grad after the backward of the sum of h times a gradient, or that it raised."""
    leaf, y = f.graph(x)
    try:
        (dx,) = torch.autograd.grad((y * y).sum(), leaf, create_graph=True)
        torch.autograd.backward(dx, h)
    except Exception:  # noqa: BLE001 - whatever a candidate raises here is a refusal
        return "raised"
    return leaf.grad


def _second_order_domain(x: Tensor, cap: float, out: torch.dtype, contract: Contract) -> Tensor:
    """Where |x/c| is in the contract's range after its rounding, y is normal in its dtype, and 2y is judged."""
    low, high = contract.double_backward_z
    z, y = fp64.scaled(x, cap).abs(), fp64.forward(x, cap).abs()
    limits = torch.finfo(out if out in FORMATS else torch.float32)
    inside = (z >= low) & (z <= high) & (y >= limits.smallest_normal) & (2.0 * y <= limits.max)
    return inside & contract.judges(cap, 2.0 * y)
