"""The call laws let every good kernel pass, and each is shown to fail before it is believed."""

from __future__ import annotations

import itertools
import re
import threading

import pytest
import torch

from invariance.candidate import PASSES, adapt
from invariance.checkers import LAWS, load_laws
from invariance.checkers.states import threads
from invariance.judge import judge
from invariance.run import arguments
from strategies.case import Case
from tests.checkers.faulty import GOOD, bumped, faulty, softcap, verdict

load_laws()

IN_PROCESS = [
    "repeat",
    "grad_mode",
    "interleaved_caps",
    "process_state",
    "checkpointing",
    "saved_tensor_hooks",
]
SHAPES = [(), (0,), (2, 3), (300,), (2, 1, 3, 5)]


def cases(dtype):
    layouts = ("contiguous", "offset", "stride_zero", "stepped", "permuted")
    for number, shape in enumerate(SHAPES):
        knobs = (("grad_layout", layouts[-1 - number]), ("grad_values", ("signed", "specials")[number % 2]))
        values = ("mixed", "bits")[number % 2]
        yield Case(shape, dtype, 30.0, layouts[number], values, seed=number, knobs=knobs)


def test_these_are_all_the_call_laws():
    laws = {name for name, law in LAWS.items() if law.check.__module__.endswith(".calls")}
    assert laws == {*IN_PROCESS, "fresh_process"}


@pytest.mark.parametrize("law", IN_PROCESS)
def test_good_kernels_pass(law):
    for number, kernel in enumerate(GOOD[:2] if law == "process_state" else GOOD):  # it is the slow one
        candidate = adapt(kernel.__name__, kernel)
        for pass_ in LAWS[law].passes:
            compared = 0
            for case in cases(("fp16", "bf16", "fp32")[number % 3]):
                found = verdict(law, candidate, case, pass_)
                assert found.mismatch is None, (kernel.__name__, pass_, case.dumps(), found.mismatch)
                compared += found.elements
            assert compared > 500


class Counting:
    """A fault in every so many calls of the operator, or of its backward."""

    def __init__(self, every):
        self.every, self.calls = every, 0

    def __call__(self, out, args):
        self.calls += 1
        return bumped(out) if self.calls % self.every == 0 else out


class Leaking:
    """The result of the last call whose tensor had as many elements, as a workspace keyed by size gives it."""

    def __init__(self):
        self.kept = {}

    def __call__(self, out, args):
        buffer = self.kept.setdefault((out.shape, out.dtype), torch.empty_like(out))
        return buffer.copy_(out).data  # a view that is written to would break the graph of another forward


def default_dtype_counts(out, args):
    return bumped(out) if torch.get_default_dtype() != torch.float32 else out


def threads_count(out, args):
    return bumped(out) if torch.get_num_threads() > 1 and out.numel() > 30000 else out


def autocast_counts(out, args):
    return bumped(out) if torch.is_autocast_enabled("cpu") else out


def deterministic_counts(out, args):
    return bumped(out) if torch.are_deterministic_algorithms_enabled() else out


def anomaly_counts(out, args):
    return bumped(out) if torch.is_anomaly_enabled() else out


def thread_counts(out, args):
    return bumped(out) if threading.current_thread() is not threading.main_thread() else out


FAULTS = [
    ("repeat", lambda: Counting(3), PASSES, "call 3"),
    ("repeat", lambda: Counting(6), PASSES, "again, after a call with"),
    ("repeat", Leaking, PASSES, "the first result, after a call with other content"),
    ("process_state", lambda: default_dtype_counts, PASSES, "default dtype bfloat16"),
    ("process_state", lambda: threads_count, PASSES, "threads, 2"),
    ("process_state", lambda: autocast_counts, PASSES, "autocast"),
    ("process_state", lambda: deterministic_counts, PASSES, "deterministic"),
    ("process_state", lambda: anomaly_counts, PASSES, "anomaly"),
    ("process_state", lambda: thread_counts, PASSES, "another thread"),
    ("checkpointing", lambda: Counting(2), ("forward", "backward"), "checkpointed"),
]


@pytest.mark.parametrize(("law", "make", "passes", "label"), FAULTS)
def test_each_law_catches_its_fault_in_the_pass_that_has_it(law, make, passes, label):
    case = Case((2, 5), "bf16", 30.0, values="transition", seed=5)
    with threads(1):
        for pass_ in passes:
            found = verdict(law, faulty(make(), pass_), case, pass_)
            assert found.mismatch is not None, pass_
            assert re.search(label, found.mismatch.label), (pass_, found.mismatch.label)
            for other in set(LAWS[law].passes) - {pass_}:
                assert verdict(law, faulty(make(), pass_), case, other).mismatch is None, (pass_, other)


CASE = Case((2, 5), "fp32", 30.0, values="transition", seed=5)


@pytest.mark.parametrize("fault_in", ["forward", "inference"])
@pytest.mark.parametrize("judged", ["forward", "inference"])
def test_grad_mode_sees_another_path_in_either_mode_from_both(fault_in, judged):
    found = verdict("grad_mode", faulty(lambda out, args: bumped(out), fault_in), CASE, judged)
    assert found.mismatch is not None
    assert "grad" in found.mismatch.label


def inference_tensors_differ(x, cap):
    y = softcap(x, cap)
    return bumped(y) if x.is_inference() else y


def inference_mode_differs(x, cap):
    y = softcap(x, cap)
    return bumped(y) if torch.is_inference_mode_enabled() and not x.is_inference() else y


def intermediates_differ(x, cap):
    return softcap(x, cap, lambda out, args: bumped(out), "" if x.is_leaf else "backward")


def single_threaded_autograd(x, cap):
    def fault(out, args):
        return out if torch.autograd.is_multithreading_enabled() else bumped(out)

    return softcap(x, cap, fault, "backward")


@pytest.mark.parametrize(
    ("kernel", "pass_", "label"),
    [
        (inference_tensors_differ, "forward", "inference tensor"),
        (inference_mode_differs, "inference", "inference_mode"),
        (intermediates_differ, "backward", "intermediate"),
        (single_threaded_autograd, "backward", "calling thread"),
    ],
)
def test_grad_mode_catches(kernel, pass_, label):
    found = verdict("grad_mode", adapt("kernel", kernel), CASE, pass_)
    assert found.mismatch is not None
    assert label in found.mismatch.label


class FirstModeSticks:
    """Keeps the path of its first call, which is another one under no_grad."""

    def __init__(self, softcap=30.0):
        self.cap, self.inference = softcap, None

    def __call__(self, x):
        if self.inference is None:
            self.inference = not (torch.is_grad_enabled() and x.requires_grad)
        y = softcap(x, self.cap)
        return bumped(y) if self.inference else y


@pytest.mark.parametrize("pass_", ["forward", "inference"])
def test_grad_mode_sees_that_the_first_mode_sticks_to_an_operator(pass_):
    found = verdict("grad_mode", adapt("sticks", FirstModeSticks), CASE, pass_)
    assert found.mismatch is not None
    assert found.mismatch.label.startswith("an operator of its own, first called in")


class OtherInEval(torch.nn.Module):
    def __init__(self, softcap):
        super().__init__()
        self.softcap = softcap

    def forward(self, x):
        right = softcap(x, self.softcap)
        return right if self.training else 2 * right


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("training", [True, False])
def test_grad_mode_sees_a_module_that_differs_in_eval_and_leaves_its_mode(pass_, training):
    f = adapt("module", OtherInEval).map(30.0, pass_)
    f.op.train(training)
    found = judge(LAWS["grad_mode"].check(f, arguments(f, CASE, "cpu"), CASE.pick))
    assert found.mismatch is not None
    assert found.mismatch.label in ("eval()", "train()")
    assert f.op.training is training


class OtherWhereFrozen(OtherInEval):
    def __init__(self, softcap):
        super().__init__(softcap)
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        right = softcap(x, self.softcap)
        return right if self.scale.requires_grad else 2 * right


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("learnt", [True, False])
def test_grad_mode_sees_a_module_that_differs_where_it_is_frozen_and_leaves_it_so(pass_, learnt):
    f = adapt("module", OtherWhereFrozen).map(30.0, pass_)
    f.op.scale.requires_grad_(learnt)
    found = judge(LAWS["grad_mode"].check(f, arguments(f, CASE, "cpu"), CASE.pick))
    assert found.mismatch is not None
    assert found.mismatch.label == ("frozen parameters" if learnt else "learnt parameters")
    assert f.op.scale.requires_grad is learnt


class ChangedByBackward:
    def __init__(self, softcap):
        self.softcap, self.factor = softcap, 1.0

    def __call__(self, x):
        return self.factor * softcap(x, self.softcap, self.backward, "backward")

    def backward(self, out, args):
        self.factor = 2.0
        return out


@pytest.mark.parametrize("pass_", ["forward", "inference"])
def test_repeat_sees_what_a_backward_leaves_on_the_operator(pass_):
    found = verdict("repeat", adapt("changed", ChangedByBackward), CASE, pass_)
    assert found.mismatch is not None
    assert found.mismatch.label == "again, after a backward"


class KeptByShape(torch.autograd.Function):
    """The forward puts x on the list of its shape, and the backward takes one from there."""

    @staticmethod
    def forward(ctx, x, cap, kept, take):
        ctx.cap, ctx.take, ctx.kept = cap, take, kept.setdefault(x.shape, [])
        ctx.kept.append(x.detach())
        return cap * torch.tanh(x.float() / cap)

    @staticmethod
    def backward(ctx, grad_y):
        x = ctx.take(ctx.kept)
        return (grad_y * (1 - torch.tanh(x.float() / ctx.cap) ** 2)).to(x.dtype), None, None, None


@pytest.mark.parametrize(
    ("take", "label"),
    [
        (lambda kept: kept[-1], "backward 1 of two forwards of one shape, in order"),
        (lambda kept: kept.pop(), "backward 1 of two forwards of one shape, in order"),
        (lambda kept: kept.pop(0), "backward 2 of two forwards of one shape, in reverse"),
    ],
)
def test_repeat_sees_that_a_backward_takes_the_input_of_another_forward_of_its_shape(take, label):
    kept = {}
    candidate = adapt("kernel", lambda x, cap: KeptByShape.apply(x, cap, kept, take))
    found = verdict("repeat", candidate, CASE, "backward")
    assert found.mismatch is not None
    assert found.mismatch.label == label


class LastCapWins:
    """The cap lives on the class."""

    cap = 1.0

    def __init__(self, softcap):
        type(self).cap = softcap

    def __call__(self, x):
        return softcap(x, type(self).cap)


class BackwardOfTheLastForward:
    """The forward leaves the cap where the next forward overwrites it, and the backward reads it there."""

    cap = 1.0

    def __init__(self, softcap):
        self.softcap = softcap

    def __call__(self, x):
        type(self).cap = self.softcap
        return softcap(x, self.softcap, self.stale, "backward")

    def stale(self, out, args):
        t = torch.tanh(args[0].float() / type(self).cap)
        return (args[1].float() * (1 - t * t)).to(out.dtype)


class EightPlaces:
    """The caps of a process have eight places, which operators take in turn."""

    caps, built, places = (dict[int, float](), itertools.count(), 8)

    def __init__(self, softcap):
        self.place = next(self.built) % self.places
        self.caps[self.place] = softcap

    def __call__(self, x):
        return softcap(x, self.caps[self.place])


class ThirtyTwoPlaces(EightPlaces):
    caps, built, places = (dict[int, float](), itertools.count(), 32)


class BackwardOfTheLastSixteen(BackwardOfTheLastForward):
    """The forward leaves its cap in one of sixteen places, and the backward reads it there."""

    caps, called = (dict[int, float](), itertools.count())

    def __call__(self, x):
        place = next(self.called) % 16
        self.caps[place] = self.softcap

        def stale(out, args):
            t = torch.tanh(args[0].float() / self.caps[place])
            return (args[1].float() * (1 - t * t)).to(out.dtype)

        return softcap(x, self.softcap, stale, "backward")


@pytest.mark.parametrize(
    ("kernel", "passes", "label"),
    [
        (LastCapWins, PASSES, "built before caps 30.000002, 30.83005"),
        (BackwardOfTheLastForward, ("backward",), "forwards of caps"),
        (EightPlaces, PASSES, "after operators of caps 60, 15"),
        (ThirtyTwoPlaces, PASSES, "and more, 32 in all"),
        (BackwardOfTheLastSixteen, ("backward",), "its forward before operators of caps 60, 15"),
    ],
)
def test_interleaved_caps_catches(kernel, passes, label):
    for pass_ in passes:
        found = verdict("interleaved_caps", adapt("kernel", kernel), CASE, pass_)
        assert found.mismatch is not None
        assert label in found.mismatch.label


def keeps_its_place(op_memory):
    def fault(out, args):
        return bumped(out) if args[0].data_ptr() not in op_memory else out

    return fault


def saved_tensor_moved(x, cap):
    place = {x.data_ptr()}
    return softcap(x, cap, keeps_its_place(place), "backward")


def saved_tensor_strided(x, cap):
    return softcap(x, cap, lambda out, args: bumped(out, not args[0].is_contiguous()), "backward")


@pytest.mark.parametrize(
    ("kernel", "label"),
    [(saved_tensor_moved, "copied and copied back"), (saved_tensor_strided, "other strides")],
)
def test_saved_tensor_hooks_catches(kernel, label):
    found = verdict("saved_tensor_hooks", adapt("kernel", kernel), CASE, "backward")
    assert found.mismatch is not None
    assert found.mismatch.label in (label, "saved on the CPU", "back with other strides")


@pytest.mark.parametrize("law", IN_PROCESS)
def test_a_case_alone_decides_what_is_claimed(law):
    f = adapt("softcap", softcap).map(30.0, LAWS[law].passes[-1])

    def labels():
        return [claim.label for claim in LAWS[law].check(f, arguments(f, CASE, "cpu"), CASE.pick)]

    assert labels() == labels()
