"""Any Triton kernel on CPU tensors: the interpreter, with its faults repaired and every access checked.

For the time of a call, ``interpreted()`` sends each launch of a ``@triton.jit`` function (also a
stranger's) to the interpreter, repairs it (``repairs.SUBSTITUTIONS``), checks each address (``addresses``)
and each hint to the compiler (``promises``), and lets a wrapper believe that CPU tensors are on a GPU
(``x.is_cuda``, ``torch.cuda.device(...)``).  All of it is undone on exit.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton.runtime.interpreter as triton_interpreter
import triton.runtime.jit as triton_jit
from torch import Tensor
from triton.runtime.autotuner import Autotuner

from invariance.tiers.addresses import check_accesses
from invariance.tiers.far import Far, virtual_tensor
from invariance.tiers.faults import OutOfBounds
from invariance.tiers.launching import Launch, Session, execute, patch_builtin
from invariance.tiers.orders import ORDERS, only
from invariance.tiers.patches import PatchError, Patches
from invariance.tiers.promises import check_promises
from invariance.tiers.queues import hand_out_the_ends
from invariance.tiers.races import check_lanes
from invariance.tiers.repairs import SUBSTITUTIONS, repair
from invariance.tiers.selftest import failures
from invariance.tiers.tuning import run_tuned

__all__ = [
    "SUBSTITUTIONS",
    "InterpretedOp",
    "InterpretedTritonOp",
    "Launch",
    "OutOfBounds",
    "Session",
    "interpreted",
    "interpreted_factory",
    "self_test",
    "virtual_tensor",
]

_SHIPPED = "softcap.triton_op"
# Persistent kernels ask for it; few, so that each program has more than one block to do.
_PROPERTIES = SimpleNamespace(
    name="Triton's interpreter", multi_processor_count=4, warp_size=32, major=9, minor=0
)
_lock = threading.RLock()
_active: Session | None = None


@contextlib.contextmanager
def interpreted(
    *,
    program_ids: Sequence[int] | None = None,
    order: str = "in_order",
    configuration: int = 0,
    measured: bool = False,
    races: bool = False,
    far: bool = False,
) -> Iterator[Session]:
    """Interpret every Triton launch on CPU tensors while the context is open.

    ``order``: of the programs, one of ``orders.ORDERS``; ``program_ids`` runs only these along the first grid axis.
    ``configuration``: which one of an autotuned kernel runs, the last where it has fewer.  ``measured``: others run
    on the same tensors before, as where an autotuner measures.  ``races``: raise Race where a program meets what
    another one stored, or a lane what another lane of the same store does.  ``far``: for tensors past 2**31 elements
    (``far.virtual``), of which PyTorch computes nothing, and kernels run the ends of long loops and of work queues
    only.
    Raises OutOfBounds for an access outside the launch's tensors, BrokenPromise for a false hint to the compiler.
    A context inside a context is the same one; other threads wait.
    """
    global _active  # noqa: PLW0603  # Triton's interpreter is itself one per process
    asked = (order, configuration, measured, races, far, program_ids)
    with _lock:
        if _active is not None:
            if asked != ("in_order", 0, False, False, False, None):
                raise RuntimeError(
                    "interpreted() is already active: how launches run belongs to the outermost call"
                )
            yield _active
            return
        chosen = ORDERS[order] if program_ids is None else only(program_ids)
        session = Session(chosen, configuration, measured, races, Far() if far else None)
        with Patches() as patches, np.errstate(all="ignore"), session.far or contextlib.nullcontext():
            session.replaced = repair(patches)
            if session.far is not None:
                hand_out_the_ends(patches, functools.partial(getattr, session.far, "queues"))
            if races:
                check_lanes(patches)
            check_accesses(patches, lambda: session.extents, session.watch)
            check_promises(patches, lambda: session.launches[-1].kernel)
            _intercept(patches, session)
            _pretend_gpu(patches)
            _active = session
            try:
                yield session
            finally:
                _active = None


@functools.cache
def self_test() -> None:
    """Prove the repairs on this Triton, once a process; raises PatchError naming what does not work."""
    faults = failures(interpreted)
    if faults:
        raise PatchError(f"the interpreter tier cannot be trusted with this Triton: {'; '.join(faults)}")


def interpreted_factory(
    factory: Callable[..., Any], substitutions: tuple[str, ...] = SUBSTITUTIONS
) -> Callable[..., Any]:
    """A factory whose operators run inside ``interpreted()``, their backward passes too.

    Raises PatchError when the repairs do not work with this Triton.
    """
    self_test()

    @functools.wraps(factory, updated=())
    def build(*args: Any, **kwargs: Any) -> Any:
        with interpreted():
            return InterpretedOp(factory(*args, **kwargs), substitutions)

    return build


class InterpretedOp:
    """An operator each of whose calls, and each backward of whose results, is interpreted.

    `substitutions` is what reports print: with a tanh that is torch's, accuracy is not judged.
    """

    def __init__(self, op: Callable[..., Any], substitutions: tuple[str, ...] = SUBSTITUTIONS) -> None:
        self._op, self.substitutions = op, substitutions

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The operator's own result."""
        with interpreted():
            result = self._op(*args, **kwargs)
        borders = [arg.grad_fn for arg in args if isinstance(arg, Tensor) and arg.grad_fn is not None]
        _interpret_backward(result, borders)
        return result

    @property
    def launching(self) -> Callable[..., AbstractContextManager[Session]]:
        """``interpreted``, for laws about launches."""
        return interpreted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)


class InterpretedTritonOp(InterpretedOp):
    """The Triton operator that ships with the suite, interpreted: the candidate ``triton-interpreted``."""

    def __init__(self, softcap: float = 30.0) -> None:
        shipped = importlib.import_module(_SHIPPED).TritonFinalLogitSoftcapOp
        self_test()
        super().__init__(shipped(softcap=softcap))


def _interpret_backward(results: Any, borders: Sequence[Any] = ()) -> None:
    """Have the Python nodes of the results' graph, up to the borders, run inside ``interpreted()``."""
    several = results if isinstance(results, tuple | list) else (results,)
    todo = [tensor.grad_fn for tensor in several if isinstance(tensor, Tensor) and tensor.grad_fn is not None]
    seen: list[Any] = [*borders]
    while todo:
        node: Any = todo.pop()
        if any(node is other for other in seen):
            continue
        seen.append(node)
        todo += [following for following, _ in node.next_functions if following is not None]
        if hasattr(node, "_forward_cls") and "apply" not in vars(node):
            node.apply = functools.partial(_apply_interpreted, weakref.ref(node))


def _apply_interpreted(reference: Callable[[], Any], *grads: Any) -> Any:
    node = reference()
    with interpreted():
        result = type(node).apply(node, *grads)
    _interpret_backward(result)
    return result


def _intercept(patches: Patches, session: Session) -> None:
    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        if not warmup:
            execute(session, kernel, args, grid, kwargs)

    def call(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs = {name: value for name, value in kwargs.items() if name not in ("_semantic", "_generator")}
        return session.function(kernel)(*args, **kwargs)

    def run_one(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        return run_tuned(session, tuner, args, kwargs)

    patches.set(triton_jit.JITFunction, "run", run)
    patches.set(triton_jit.JITFunction, "__call__", call)
    patches.set(Autotuner, "run", run_one)
    patches.set(triton_interpreter, "_patch_builtin", patch_builtin)


def _pretend_gpu(patches: Patches) -> None:
    patches.set(torch.Tensor, "is_cuda", property(lambda _: True))
    patches.set(torch.cuda, "device", contextlib.nullcontext)
    patches.set(torch.cuda, "current_device", lambda: 0)
    patches.set(torch.cuda, "synchronize", lambda *_: None)
    patches.set(torch.cuda, "get_device_properties", lambda *_: _PROPERTIES)
