"""What `torch.func` makes of an operator: a batch of its calls, its gradient, its tangent. It may refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from invariance.candidate import CandidateRaised, GraphLost, Map, Operator
from invariance.checkers import Pick, checker
from invariance.checkers.accuracy import judged_cap
from invariance.checkers.views import Args, each, plain, refused_or, through
from invariance.judge import Claim
from oracles.truth import Truth

Way = Callable[[Operator, Tensor], Tensor]


def _rows(x: Tensor) -> Tensor:
    """Two dimensions or more: of a 16-bit 0-d sample torch's vmap rounds the number that it is multiplied by."""
    return x if x.dim() > 1 else x.reshape(-1, 1)


def _vmapped(op: Operator, x: Tensor, in_dim: int = 0, out_dim: int = 0) -> Tensor:
    """All of x by vmap over one dimension, the results stacked along another."""
    y = _tensor(torch.func.vmap(op, in_dims=in_dim, out_dims=out_dim)(_rows(x)))
    return y.movedim(out_dim, in_dim).reshape(x.shape)


def _in_two(op: Operator, x: Tensor) -> Tensor:
    both = torch.func.vmap(torch.func.vmap(op, in_dims=1), in_dims=1)
    rows = _rows(x)
    return _tensor(both(rows.reshape(1, rows.shape[0], -1))).reshape(x.shape)


BATCHES: dict[str, Way] = {
    "vmap over the first dimension": _vmapped,
    "vmap over the last dimension": partial(_vmapped, in_dim=-1, out_dim=-1),
    "vmap over the last dimension, stacked along the first": partial(_vmapped, in_dim=-1),
    "vmap in vmap": _in_two,
}


def _tensor(result: object) -> Tensor:
    """Functions of torch.func return whatever their argument does."""
    if not isinstance(result, Tensor):
        raise CandidateRaised(f"returned {type(result).__name__}, not a tensor")
    return result


def _gradients(grad_y: Tensor) -> dict[str, Way]:
    """The ways of torch.func to the gradient of `(y * grad_y).sum()` at x; the upstream gradient is exact."""

    def gradient(op: Operator, x: Tensor, g: Tensor = grad_y) -> Tensor:
        return _tensor(torch.func.grad(lambda given: (op(given) * g).sum())(x))

    def pulled_back(op: Operator, x: Tensor) -> Tensor:
        return _tensor(torch.func.vjp(op, x)[1](grad_y)[0])

    def of_each(op: Operator, x: Tensor) -> Tensor:
        each = torch.func.vmap(partial(gradient, op), in_dims=-1, out_dims=-1)
        return _tensor(each(_rows(x), _rows(grad_y))).reshape(x.shape)

    return {"torch.func.grad": gradient, "torch.func.vjp": pulled_back, "vmap of torch.func.grad": of_each}


def _several_gradients(grads: Tensor) -> dict[str, Way]:
    """The ways to a gradient at x for each row of `grads`: x itself is in no batch."""

    def pulled_back(op: Operator, x: Tensor) -> Tensor:
        return _tensor(torch.func.vmap(torch.func.vjp(op, x)[1])(grads)[0])

    def batched(op: Operator, x: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            return torch.autograd.grad(op(leaf), leaf, grads, is_grads_batched=True)[0]

    return {"vmap of what torch.func.vjp gives": pulled_back, "torch.autograd.grad of a batch": batched}


@checker(
    judgement="invariance",
    each_cap=False,
    inputs="small",
    bugs=("pytorch/functorch#207", "pytorch/pytorch#177318"),
)
def function_transforms(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Under torch.func a call raises or gives the bits of a plain one: vmap over any dimension, grad, vjp, both."""
    want = f(*args)
    yield Claim("the shape", got=tuple(want.shape), want=tuple(args[0].shape))
    if len(args) == 2:
        for label, way in _gradients(args[1]).items():
            gradient = through(f, way).under("inference")
            yield refused_or(label, partial(gradient, plain(args[0])), want, args)
        rows = each(args, _rows)
        grads = torch.stack((rows[1], rows[1].flip(0, -1)))
        both = torch.stack([f(rows[0], grad_y) for grad_y in grads])
        for label, way in _several_gradients(grads).items():
            gradients = through(f, way).under("inference")
            yield refused_or(label, partial(gradients, plain(rows[0])), both, (rows[0].expand_as(grads), grads))
        return
    for label, way in BATCHES.items():
        yield refused_or(label, partial(through(f, way), *args), want, args)


@checker(
    judgement="accuracy",
    passes=("backward",),
    inputs="small",
    bugs=("pytorch/functorch#207", "pytorch/pytorch#192985", "pytorch/pytorch#177318"),
)
def transformed_derivatives(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Forward-mode AD and a backward through vmap raise, or are within 6 * 2^-24 of |v| of the exact v * sech²(x/c)."""
    # Both are the product that the gradient is, and get its rule. A batch may record what autograd finds in the forward
    # where a plain call has a backward of its own, so their bits may differ.
    x, v = plain(args[0]), args[1].to(args[0].dtype)
    y = f.under("inference")(x)
    truth = Truth.of(x, judged_cap(f), v)
    for label, way in {"torch.func.jvp": _pushed, "a dual number": _dual}.items():
        try:
            primal, got = way(f.op, x, v)
        except Exception:  # noqa: BLE001 - whatever a candidate raises here is a refusal
            yield Claim(f"the tangent of {label}", got="raised", want="raised")
            continue
        yield Claim(f"y, of {label}", got=primal, want=y, of=(x,))
        if got is None:
            yield Claim(f"the tangent of {label}", got="lost", want="right, or an error")
            return
        # torch 2.13 makes an FP64 tangent of a 0-d tensor that a number multiplies.
        yield Claim(f"the tangent of {label}", got=got.to(y.dtype), want=truth, within="ulp")
    truth = Truth.of(x, truth.cap, args[1])
    for label, batched in BATCHES.items():
        try:
            got = through(f, batched)(x, args[1])
        except GraphLost:
            raise
        except CandidateRaised:
            yield Claim(f"the gradient through {label}", got="raised", want="raised")
            continue
        yield Claim(f"the gradient through {label}", got=got, want=truth, within="ulp")


def _pushed(op: Operator, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor | None]:
    pushed = torch.func.jvp(op, (x,), (v,))
    return _tensor(pushed[0]), pushed[1]


def _dual(op: Operator, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor | None]:
    with forward_ad.dual_level():
        dual: Any = forward_ad
        primal, got = dual.unpack_dual(op(dual.make_dual(x, v)))
        return primal, got
