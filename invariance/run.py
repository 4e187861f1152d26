"""One cell -> one Verdict. Everything here runs in a child process, beside the candidate."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

import torch

from invariance import process
from invariance.candidate import Candidate, CandidateNotLoadable, CandidateRaised, Map
from invariance.checkers import Law, NotApplicable, load_laws
from invariance.imported import loaded
from invariance.judge import Judgement, Mismatch, judge
from invariance.launched import kernels_launched
from invariance.plan import Settings, cases
from invariance.report.model import Explored
from invariance.serving import serving
from invariance.sweep.api import sweep
from invariance.sweep.document import as_json
from invariance.tiers.faults import BUDGET, GaveUp
from invariance.verdict import FAIL, NO_RESULT, NOT_APPLICABLE, NOT_RUN, PASS, RAISED, Cell, Verdict
from oracles.tolerances import load_contract
from strategies.caps import cap_text
from strategies.case import Case
from strategies.cases import cases as explored_cases
from strategies.cases import explore as search
from strategies.dtypes import TORCH
from strategies.shrink import shrink

ORDINARY_CAP = 30.0
_NO_GPU = ("active drivers", "needs a CUDA or ROCm tensor")  # Triton's words, and those of `softcap.triton_op`
NOT_JUDGED = "not judged"  # how the reason begins where the interpreter gave up


class NoMemory(NotApplicable):
    """The suite's own tensors, or its exact values, do not fit in memory: nothing is known of the candidate."""


@dataclass(frozen=True)
class Trial:
    """A candidate under one law, in one pass, on one device: what does not change from case to case."""

    candidate: Candidate
    law: Law
    pass_: str
    device: str
    rounding: str = "once"

    def judge(self, case: Case) -> tuple[Judgement, str | None]:
        """What the law says on one case, and what was raised, if anything; raises NotApplicable."""
        try:
            with serving(self.candidate, self.pass_, case.mode) as candidate, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a candidate's warnings are not evidence
                f = candidate.map(case.cap, self.pass_)
                args = arguments(f, case, self.device)
                claims = self.law.check(f, args, case.pick)
                return judge(claims, load_contract().bitwise(self.law.id), self.rounding), None
        except NotApplicable:
            raise
        except GaveUp as error:
            raise NotApplicable(f"{NOT_JUDGED}: {error}") from error
        except CandidateRaised as error:
            process.leave_a_lost_device(self.device)
            raised = Mismatch(RAISED, NO_RESULT, got=str(error), want="a result")
            return Judgement(elements=1, mismatch=raised), None
        except Exception as error:  # the suite's own fault, or met outside a call: never a pass
            if _of_memory(error):
                raise NoMemory(
                    f"no memory for a case of shape {'x'.join(map(str, case.shape))}: {process.in_one_line(error)}"
                ) from error
            process.leave_a_lost_device(self.device)
            return Judgement(elements=1), f"the law itself raised {type(error).__name__}: {error}"

    def verdict(self, cell: Cell, status: str) -> Verdict:
        """An empty verdict on a cell of this trial."""
        judgement = self.law.verdict(self.pass_)
        return Verdict(cell, judgement, status, device=self.device, rounding=self.rounding)


def is_failure(found: Judgement, reason: str | None) -> bool:
    """Whether one case speaks against the candidate: a mismatch, something raised, or nothing compared."""
    return found.mismatch is not None or reason is not None or found.elements == 0


def _of_memory(error: Exception) -> bool:
    """Whether an allocation failed; on a CPU torch tells it by the words alone."""
    words = ("can't allocate memory", "not enough memory")
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(w in str(error) for w in words)


def arguments(f: Map, case: Case, device: str) -> tuple[torch.Tensor, ...]:
    """`(x,)`, and grad_y in the dtype of y for the backward map."""
    x = case.x(device)
    if f.pass_ != "backward":
        return (x,)
    return x, case.grad_y(f.out_dtype(x.dtype, device), device)


def judge_cell(spec: str, cell: Cell, settings: Settings, shrinks: int | None = None) -> Verdict:
    """Judge every case of a cell, up to the first that fails, which is then shrunk.

    shrinks: attempts at that, at most; as many as the law affords unless given.
    """
    law = load_laws()[cell.law]
    if shrinks is not None:
        law = replace(law, shrinks=min(law.shrinks, shrinks))
    trial = Trial(loaded(spec, settings.device), law, cell.pass_, settings.device, settings.rounding)
    total = trial.verdict(cell, PASS)
    outside: list[str] = []
    unbuilt: list[str] = []
    BUDGET.renew()
    for case in cases(cell, settings):
        process.announce(case.dumps())
        try:
            found, reason = trial.judge(case)
        except NotApplicable as error:
            (unbuilt if isinstance(error, NoMemory) else outside).append(str(error))
            continue
        total = _added(total, found)
        if found.mismatch is not None or reason is not None:
            return _explained(replace(total, status=FAIL), trial, case, found, reason)
    if unbuilt:
        return replace(total, status=NOT_RUN, reason=unbuilt[0])
    if total.cases == 0 and outside:
        return replace(total, status=NOT_APPLICABLE, reason=outside[-1])
    if total.elements == 0:
        return replace(total, status=FAIL, reason="compared nothing: the law yielded no claim on any case")
    given_up = [reason for reason in outside if reason.startswith(NOT_JUDGED)]
    return replace(total, reason=f"some cases {given_up[-1]}" if given_up else None)


def _added(total: Verdict, found: Judgement) -> Verdict:
    worst = max((w for w in (total.worst, found.worst) if w is not None), key=lambda w: w.error, default=None)
    return replace(
        total,
        cases=total.cases + 1,
        elements=total.elements + found.elements,
        flushed=total.flushed + found.flushed,
        escalated=total.escalated + found.escalated,
        worst=worst,
    )


def _explained(total: Verdict, trial: Trial, case: Case, found: Judgement, reason: str | None) -> Verdict:
    """The verdict with the smallest case that still fails in the same way; as found, should the time not last."""
    late = "; ".join(filter(None, (reason, "not shrunk: its time was over")))
    process.keep(replace(total, mismatch=found.mismatch, reason=late, case=case.dumps()))

    def fails(smaller: Case) -> bool:
        process.announce(smaller.dumps())
        try:
            again, raised = trial.judge(smaller)
        except NotApplicable:
            return False
        alike = (again.mismatch is None) == (found.mismatch is None) and (raised is None) == (reason is None)
        return alike and (again.mismatch is not None or raised is not None)

    BUDGET.renew()
    suspect = None if found.mismatch is None else found.mismatch.flat
    smallest = shrink(case, fails, budget=trial.law.shrinks, suspect=suspect)
    BUDGET.renew()
    again, raised = trial.judge(smallest)
    if again.mismatch is None and raised is None:  # it does not fail twice: the flake is the finding
        note = "failed once and not again on the same case: the result depends on history"
        return replace(total, mismatch=found.mismatch, reason=note, case=case.dumps())
    return replace(total, mismatch=again.mismatch, reason=raised, case=smallest.dumps())


def judge_text(spec: str, law: str, pass_: str, case: str, device: str, rounding: str = "once") -> Verdict:
    """One law on one written case: what a replay runs."""
    recipe = Case.loads(case)
    process.announce(case)
    trial = Trial(loaded(spec, device), load_laws()[law], pass_, device, rounding)
    cell = Cell(trial.candidate.name, law, pass_, recipe.dtype, recipe.cap)
    BUDGET.renew()
    try:
        found, reason = trial.judge(recipe)
    except NotApplicable as error:
        status = NOT_RUN if isinstance(error, NoMemory) else NOT_APPLICABLE
        return replace(trial.verdict(cell, status), reason=str(error), case=case)
    total = _added(trial.verdict(cell, FAIL if is_failure(found, reason) else PASS), found)
    return replace(total, mismatch=found.mismatch, reason=reason, case=case)


def explore(
    spec: str, law: str, pass_: str, settings: Settings, caps: tuple[float | int, ...], examples: int
) -> Explored:
    """Hypothesis on one law and pass, over the dtypes and caps asked for."""
    known = load_laws()[law]
    trial = Trial(loaded(spec, settings.device), known, pass_, settings.device, settings.rounding)
    counted = {"examples": 0, "elements": 0}

    def check(case: Case) -> bool:
        process.announce(case.dumps())
        try:
            found, reason = trial.judge(case)
        except NotApplicable:
            return True
        counted["examples"] += 1
        counted["elements"] += found.elements
        return found.mismatch is None and reason is None

    dtypes = [dtype for dtype in settings.dtypes if dtype in known.dtypes]
    modes = known.modes(pass_)
    drawn = [explored_cases(dtype=d, cap=cap, max_elements=4096, modes=modes) for d in dtypes for cap in caps]
    strategy = reduce(or_, drawn)
    BUDGET.renew()
    failing = search(check, strategy, examples=examples, seed=settings.seed)
    verdict = (
        None
        if failing is None
        else judge_text(spec, law, pass_, failing.dumps(), settings.device, settings.rounding)
    )
    return Explored(trial.candidate.name, law, pass_, counted["examples"], counted["elements"], verdict)


def certify(spec: str, cap: float | int, dtype: str, pass_: str, device: str) -> dict[str, Any]:
    """The certificate of a candidate's whole domain in one pass, as plain data."""
    process.announce(f"every {dtype} input, {pass_}, cap {cap_text(cap)}")
    return dict(as_json(sweep(loaded(spec, device), cap, dtype, pass_, device)))


def load_only(spec: str, device: str) -> str | None:
    """Import a candidate; why it cannot be judged, or None."""
    try:
        loaded(spec, device)
    except CandidateNotLoadable as error:
        return str(error)
    return None


def probe(spec: str, device: str, caps: tuple[float | int, ...], dtypes: tuple[str, ...]) -> dict[str, Any]:
    """What the plan must know of a candidate: its convention, its own cap, whether it has a gradient, what runs.

    refusals: what its constructor raises, by cap, where it raises at all of these and at an ordinary one besides; a
    kernel that refuses some good caps only is judged at them.

    A gradient is decided here, once, on four elements; a graph lost later is a failure.
    """
    candidate = loaded(spec, device)
    refusals = [(cap, _refusal(candidate, cap)) for cap in (*caps, ORDINARY_CAP)]
    cap = candidate.fixed_cap or next((cap for cap, reason in refusals if reason is None), None)
    known = {"convention": candidate.convention, "fixed_cap": candidate.fixed_cap}
    if cap is None:
        return {**known, "refusals": refusals, "differentiable": True, "ran": None}
    return {
        **known,
        "refusals": [],
        "without_a_gpu": device == "cpu" and _asks_for_a_gpu(candidate, cap, TORCH[dtypes[0]]),
        "differentiable": any(_differentiable(candidate, cap, TORCH[dtype], device) for dtype in dtypes),
        **_of_an_operator(candidate, cap),
        "launched": None if device == "cpu" else kernels_launched(candidate, cap, dtypes[0], device),
    }


def _asks_for_a_gpu(candidate: Candidate, cap: float | int, dtype: torch.dtype) -> bool:
    """Whether Triton finds no driver, or the kernel says so itself: nobody's fault but that of the device asked for."""
    try:
        candidate.map(cap, "inference")(torch.ones(4, dtype=dtype))
    except CandidateRaised as error:
        return any(words in str(error) for words in _NO_GPU)
    return False


def _refusal(candidate: Candidate, cap: float | int) -> str | None:
    """What the candidate's constructor raises at a cap."""
    try:
        candidate.map(cap, "inference")
    except BaseException as error:  # noqa: BLE001 - a constructor that exits refuses as well
        return process.in_one_line(error)
    return None


def _differentiable(candidate: Candidate, cap: float | int, dtype: torch.dtype, device: str) -> bool:
    """A candidate that raises here has its cells judged, not excused."""
    try:
        x = torch.tensor([-1.0, 0.0, 1.0, 2.0], dtype=dtype, device=device)
        return candidate.map(cap, "forward").graph(x)[1].requires_grad
    except CandidateRaised:
        return True


def _of_an_operator(candidate: Candidate, cap: float | int) -> dict[str, Any]:
    """What an operator itself tells: what runs, what stands in for a GPU's functions, and whether its launches show."""
    try:
        op = candidate.factory(cap)
        return {
            "ran": _what_runs(candidate, op),
            "substitutions": [str(text) for text in getattr(op, "substitutions", ())],
            "launches_seen": hasattr(op, "launching"),
        }
    except Exception:  # noqa: BLE001 - its cells will say why
        return {"ran": None, "substitutions": [], "launches_seen": True}


def code(spec: str, device: str, target: str) -> list[dict[str, Any]]:
    """What the kernels of a candidate in the interpreter are compiled to: information, no verdict."""
    code_of = process.resolve("invariance.tiers.strangers:code_of")
    known: list[dict[str, Any]] = code_of(loaded(spec, device).factory, target)
    return known


def _what_runs(candidate: Candidate, op: Any) -> str:
    """The class or function behind a name such as `registry`."""
    owner = getattr(op, "__self__", op)
    target = owner if hasattr(owner, "__qualname__") else type(owner)
    if candidate.convention == "function" or target.__module__.startswith("softcap_candidate_"):
        return candidate.name
    return f"{target.__module__}:{target.__qualname__}"
