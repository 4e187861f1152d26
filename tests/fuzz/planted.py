"""Kernels with one planted fault each: right at the caps that people try, wrong at others."""

from __future__ import annotations

import math
import os
import struct
import time
import weakref
from pathlib import Path

import torch


def _bits(cap):
    return struct.unpack("<I", struct.pack("<f", float(cap)))[0]


class _Softcap(torch.autograd.Function):
    """A right kernel, FP32 inside, with one cap for the output and one for the gradient."""

    @staticmethod
    def forward(ctx, x, cap, gradient_cap):
        ctx.save_for_backward(x)
        ctx.cap = gradient_cap
        return (cap * torch.tanh(x.float() / cap)).to(x.dtype)

    @staticmethod
    def backward(ctx, grad_y):
        (x,) = ctx.saved_tensors
        t = torch.tanh(x.float() / ctx.cap)
        return (grad_y.float() * (1 - t * t)).to(x.dtype), None, None


def _kernel(x, cap, gradient_cap=None):
    caps = [torch.tensor(c, dtype=torch.float32, device=x.device) for c in (cap, gradient_cap or cap)]
    return _Softcap.apply(x, *caps)


def right(x, cap):
    """No fault."""
    return _kernel(x, cap)


def right_in_fp32(x, cap):
    """No fault, results of FP32."""
    return _kernel(x.float(), cap)


def rounds_odd_caps(x, cap):
    """Caps above 1000 whose last FP32 bit is set are rounded to BF16."""
    if cap > 1000 and _bits(cap) & 1:
        cap = float(torch.tensor(cap, dtype=torch.float32).to(torch.bfloat16))
    return _kernel(x, cap)


_met = []


def stale_from_the_third(x, cap):
    """Right for the first two caps of a process; from the third on the second is used."""
    if cap not in _met:
        _met.append(cap)
    return _kernel(x, cap if _met.index(cap) < 2 else _met[1])


def wrong_when_tiny(x, cap):
    """Caps below 2^-40 are taken for 2^-40."""
    return _kernel(x, max(cap, 2.0**-40))


def wrong_at_powers_of_two(x, cap):
    """Exact powers of two take a path that is 2^-9 too large."""
    return _kernel(x, cap * (1 + 2.0**-9) if math.frexp(cap)[0] == 0.5 else cap)


def wrong_gradient_of_24_bits(x, cap):
    """Only the gradient, and only for caps that need all 24 bits, which are cut to 11."""
    cut = struct.unpack("<f", struct.pack("<I", _bits(cap) >> 12 << 12))[0]
    return _kernel(x, cap, cut if _bits(cap) & 1 else cap)


def truncates_integers(x, cap):
    """Caps given as Python ints pass through FP16."""
    if isinstance(cap, int):
        cap = float(torch.tensor(float(cap)).to(torch.float16).clamp(max=65504))
    return _kernel(x, cap)


def truncates_to_integers(x, cap):
    """Every cap is cut to an integer."""
    return _kernel(x, max(int(cap), 1))


def one_input(x, cap):
    """One input is wrong, at caps from 2 to 4 only."""
    y = _kernel(x, cap)
    return torch.where((x == 1.25) & (2 <= cap < 4), y + 1, y) if x.dtype != torch.float32 else y


def dies(x, cap):
    """Caps above 2^30 end the process."""
    if cap > 2.0**30:
        os.abort()
    return _kernel(x, cap)


def hangs(x, cap):
    """Caps above 2^30 never return."""
    while cap > 2.0**30:
        time.sleep(0.05)
    return _kernel(x, cap)


def raises(x, cap):
    """Caps below 2^-30 raise."""
    if cap < 2.0**-30:
        raise ZeroDivisionError("the reciprocal overflows")
    return _kernel(x, cap)


def exits(x, cap):
    """Caps above 100 leave the interpreter."""
    if cap > 100:
        raise SystemExit(3)
    return _kernel(x, cap)


def wrong_as_a_tensor(x, cap):
    """A cap given as a tensor is read as BF16."""
    if isinstance(cap, torch.Tensor):
        cap = float(cap.to(torch.bfloat16))
    return _kernel(x, cap)


class ReadAsBf16AtTheCall(torch.nn.Module):
    """Its own cap is right; one told at the call is read as BF16."""

    def __init__(self, softcap):
        super().__init__()
        self.softcap = softcap

    def forward(self, x, softcap=None):
        if softcap is None:
            return _kernel(x, self.softcap)
        return _kernel(x, float(torch.tensor(softcap).to(torch.bfloat16)))


def one_off(x, cap):
    """Everything is wrong, at any cap."""
    return _kernel(x, cap) * 1.25 + 1


def slow(x, cap):
    """Right, and slower than a round has time for."""
    time.sleep(0.03)
    return _kernel(x, cap)


def slow_and_wrong(x, cap):
    """Wrong everywhere, and too slow to be tried at many caps."""
    time.sleep(0.1)
    return _kernel(x, cap * 1.01)


class Fixed:
    """An instance with its own cap."""

    softcap = 30.0

    def __call__(self, x):
        return _kernel(x, self.softcap)


fixed = Fixed()


class KeptInAGlobal:
    """The cap is kept in a place of the module: the last operator built is the cap of all."""

    kept = 30.0

    def __init__(self, softcap):
        type(self).kept = softcap

    def __call__(self, x):
        return _kernel(x, self.kept)


class GradientKeptInAGlobal(KeptInAGlobal):
    """The forward pass has its own cap; the backward pass reads that of the last call."""

    def __init__(self, softcap):
        self.softcap = softcap

    def __call__(self, x):
        type(self).kept = self.softcap
        y = _kernel(x, self.softcap)
        if y.requires_grad:
            y.register_hook(lambda grad_y: grad_y * (self.kept / self.softcap))
        return y


class WrongWhenBuiltTwice:
    """Right unless the operator built just before had the same cap."""

    built = None

    def __init__(self, softcap):
        self.softcap = softcap * (1.01 if softcap == type(self).built else 1)
        type(self).built = softcap

    def __call__(self, x):
        return _kernel(x, self.softcap)


class WrongAfterAHugeCap:
    """Wrong once the process has met a cap above 2^40, whatever comes between."""

    met = False

    def __init__(self, softcap):
        self.softcap = softcap * (1.01 if type(self).met and softcap < 2.0**40 else 1)
        type(self).met |= softcap > 2.0**40

    def __call__(self, x):
        return _kernel(x, self.softcap)


class RefusesLargeCaps:
    """The constructor takes no cap above 100."""

    def __init__(self, softcap):
        if softcap > 100:
            raise ValueError(f"softcap {softcap} is not supported")
        self.softcap = softcap

    def __call__(self, x):
        return _kernel(x, self.softcap)


class LeavesInItsConstructor(RefusesLargeCaps):
    """The constructor leaves the interpreter."""

    def __init__(self, softcap):
        super().__init__(min(softcap, 100))
        if softcap > 100:
            raise SystemExit(3)


class RefusesOddCaps(RefusesLargeCaps):
    """The constructor takes no cap whose last FP32 bit is set, which has no simplest cap of its own."""

    def __init__(self, softcap):
        if _bits(softcap) & 1:
            raise ValueError(f"softcap {softcap} is odd")
        self.softcap = softcap


class RaisesInItsGradient(RefusesLargeCaps):
    """Only the backward pass raises."""

    def __init__(self, softcap):
        self.softcap = softcap

    def __call__(self, x):
        y = _kernel(x, self.softcap)
        if y.requires_grad:
            y.register_hook(self.fail)
        return y

    def fail(self, grad_y):
        raise RuntimeError(f"no gradient at {self.softcap}")


def no_16_bits(x, cap):
    """Only FP32 is taken."""
    if x.dtype != torch.float32:
        raise TypeError(f"{x.dtype} is not supported")
    return _kernel(x, cap)


def noisy(x, cap):
    """One element in a thousand is off, another one each time."""
    return _kernel(x.float(), cap) * (1 + 2.0**-6 * (torch.rand(x.shape) < 0.001))


def noisy_and_wrong(x, cap):
    """As noisy, and the results of one input are always wrong."""
    return torch.where(x == 1.25, 2 * cap, noisy(x, cap))


def wrong_near_48(x, cap):
    """An interval of everyday caps."""
    return _kernel(x, cap * (1.01 if 47.9 <= cap <= 48.1 else 1))


def interrupts(x, cap):
    """Caps above 100 raise what Ctrl-C raises."""
    if cap > 100:
        raise KeyboardInterrupt
    return _kernel(x, cap)


def without_gradient(x, cap):
    """Right, and forward only."""
    return _kernel(x.detach(), cap).detach()


def wrong_once(x, cap):
    """Wrong a single time, whatever process it is: a file beside this one remembers."""
    marker = Path(__file__).with_suffix(".once")
    if cap > 100 and not marker.exists():
        marker.touch()
        return _kernel(x, 1.01 * cap)
    return _kernel(x, cap)


class DiesNearSeven:
    """Ends its process at caps from 6 to 7.5: a campaign that asks what the candidate takes meets one of them."""

    def __init__(self, softcap):
        self.cap = softcap

    def __call__(self, x):
        if 6 < self.cap < 7.5:
            os.abort()
        return _kernel(x, self.cap)


class DiesAtThirty(DiesNearSeven):
    """Ends its process at the cap of every first question."""

    def __call__(self, x):
        if self.cap == 30:
            os._exit(0)
        return _kernel(x, self.cap)


_alive = weakref.WeakSet()


class DiesBesideItsDouble(DiesNearSeven):
    """Ends its process where an operator of twice its cap is alive."""

    def __init__(self, softcap):
        super().__init__(softcap)
        _alive.add(self)

    def __call__(self, x):
        if any(other.cap == 2 * self.cap for other in _alive):
            os.abort()
        return _kernel(x, self.cap)


class WrongBesideItsDouble(DiesBesideItsDouble):
    """Another result where an operator of twice its cap is alive."""

    def __call__(self, x):
        return _kernel(x, self.cap * (1.01 if any(o.cap == 2 * self.cap for o in _alive) else 1.0))


class FourPlaces:
    """Four places for caps in a process, used in turn: the fifth operator overwrites the first one's."""

    caps, built = [1.0] * 4, 0

    def __init__(self, softcap):
        self.place = FourPlaces.built % 4
        FourPlaces.built += 1
        self.caps[self.place] = softcap

    def __call__(self, x):
        return _kernel(x, self.caps[self.place])


_calls = [0]


def wrong_now_and_then(x, cap):
    """Every 97th call of a process is 2^-6 too large."""
    _calls[0] += 1
    return _kernel(x, cap * (1 + 2.0**-6 * (_calls[0] % 97 == 0)))


_first_of_a_shape = {}


def keeps_the_first_cap_of_a_shape(x, cap):
    """The cap that a shape, dtype and gradient mode were called with first is kept for them."""
    kept = _first_of_a_shape.setdefault((tuple(x.shape), x.dtype, x.requires_grad), cap)
    return _kernel(x, kept)


def wrong_in_large_calls(x, cap):
    """Wrong from 1 on where the second half of a call is the first one with the other sign."""
    y, half = _kernel(x, cap), x.numel() // 2
    mirrored = half > 4 and bool(x[1] == -x[half + 1]) and bool(x[2] == -x[half + 2])
    return torch.where(x >= 1, y + 1, y) if mirrored else y
