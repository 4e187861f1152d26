"""Grad modes, the states of a module, and the ways of asking for a gradient: each gives what the map itself gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from invariance.candidate import Map, Operator
from invariance.checkers.views import Args, through
from invariance.serving import module_of

Way = Callable[..., Tensor]


def _in_mode(f: Map, x: Tensor, *, mode: type[AbstractContextManager[None]], requires_grad: bool) -> Tensor:
    """The result in a grad mode, of an input that requires grad or does not."""

    def call(given: Tensor) -> Tensor:
        with mode():
            return f.op(given.detach().requires_grad_(requires_grad)).detach()

    return replace(f, op=call).under("inference")(x)


def _of_an_inference_tensor(f: Map, x: Tensor) -> Tensor:
    """The result in inference mode of a tensor that was made there."""

    def call(given: Tensor) -> Tensor:
        with torch.inference_mode():
            return f.op(given.clone())

    return replace(f, op=call).under("inference")(x)


def _of_a_view(op: Operator, given: Tensor) -> Tensor:
    """The result for every second element of an intermediate result: a view, no leaf, whose gradient is that of x."""
    return op(torch.stack((given, given.detach()), -1)[..., 0])


def _with_a_graph(f: Map, x: Tensor) -> Tensor:
    return through(f.under("forward"), _of_a_view)(x)


def _view_with_a_graph(f: Map, x: Tensor, grad_y: Tensor) -> Tensor:
    return through(f, _of_a_view)(x, grad_y)


GRAD_MODES: dict[str, Way] = {
    "grad, requires_grad": partial(_in_mode, mode=torch.enable_grad, requires_grad=True),
    "grad, no requires_grad": partial(_in_mode, mode=torch.enable_grad, requires_grad=False),
    "no_grad, requires_grad": partial(_in_mode, mode=torch.no_grad, requires_grad=True),
    "no_grad, no requires_grad": partial(_in_mode, mode=torch.no_grad, requires_grad=False),
    "inference_mode": partial(_in_mode, mode=torch.inference_mode, requires_grad=False),
    "inference_mode, inference tensor": _of_an_inference_tensor,
    "grad, a view of an intermediate result": _with_a_graph,
}


def _accumulated(f: Map, x: Tensor, grad_y: Tensor) -> Tensor:
    leaf, y = f.graph(x)
    torch.autograd.backward(y, grad_y)
    return leaf.new_empty(0) if leaf.grad is None else leaf.grad


def _of_a_product(f: Map, x: Tensor, grad_y: Tensor) -> Tensor:
    """The upstream gradient is 1 * grad_y, exactly, and arrives as autograd makes it."""
    leaf, y = f.graph(x)
    with torch.enable_grad():
        loss = (y * grad_y).sum()
    return f.gradient(leaf, loss, torch.ones_like(loss))


def _of_an_intermediate(f: Map, x: Tensor, grad_y: Tensor) -> Tensor:
    return through(f, lambda op, given: op(given.clone()))(x, grad_y)


def _without_grad(f: Map, x: Tensor, grad_y: Tensor) -> Tensor:
    leaf, y = f.graph(x)
    with torch.no_grad():
        return f.gradient(leaf, y, grad_y)


def of_a_dropped_operator(f: Map, x: Tensor, grad_y: Tensor) -> Tensor:
    """Of `Operator(softcap)(x)`, where nothing but the graph knows of the operator any more."""
    leaf, y = f.at(f.cap).graph(x)
    return f.gradient(leaf, y, grad_y)


def _on_one_thread(f: Map, x: Tensor, grad_y: Tensor) -> Tensor:
    leaf, y = f.graph(x)
    with torch.autograd.set_multithreading_enabled(False):
        return f.gradient(leaf, y, grad_y)


GRADIENTS: dict[str, Way] = {
    "y.backward(grad_y)": _accumulated,
    "(y * grad_y).sum()": _of_a_product,
    "x is an intermediate result": _of_an_intermediate,
    "x is a view of an intermediate result": _view_with_a_graph,
    "asked for under no_grad": _without_grad,
    "autograd on the calling thread": _on_one_thread,
}


def in_module_states(f: Map, args: Args) -> Iterator[tuple[str, Tensor]]:
    """The results in `train()` and `eval()`, with frozen and with learnt parameters, where the operator is a module."""
    owner = module_of(f.op)
    if owner is None:
        return
    training = [(module, module.training) for module in owner.modules()]
    learnt = [(p, p.requires_grad) for p in owner.parameters() if p.is_leaf and p.is_floating_point()]
    try:
        for label, on in (("eval()", False), ("train()", True)):
            owner.train(on)
            yield label, f(*args)
        for label, on in (("frozen parameters", False), ("learnt parameters", True)) if learnt else ():
            for parameter, _ in learnt:
                parameter.requires_grad_(on)
            yield label, f(*args)
    finally:
        for module, was in training:
            module.training = was
        for parameter, was in learnt:
            parameter.requires_grad_(was)
