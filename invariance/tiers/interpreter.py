"""Any Triton kernel on CPU tensors: the interpreter, with its faults repaired and every access checked.

For the time of a call, ``interpreted()`` sends each launch of a ``@triton.jit`` function (also a
stranger's) to the interpreter, repairs it (``repairs.SUBSTITUTIONS``), checks each address (``addresses``),
and lets a wrapper believe that CPU tensors are on a GPU (``x.is_cuda``, ``torch.cuda.device(...)``).  All
of it is undone on exit.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import triton.runtime.interpreter as triton_interpreter
import triton.runtime.jit as triton_jit
from torch import Tensor
from triton.runtime.autotuner import Autotuner

from invariance.tiers.addresses import OutOfBounds, check_accesses, virtual_tensor
from invariance.tiers.launching import Launch, Session, execute, rewrite
from invariance.tiers.patches import PatchError, Patches
from invariance.tiers.repairs import SUBSTITUTIONS, repair
from invariance.tiers.selftest import failures

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
_lock = threading.RLock()
_active: Session | None = None


@contextlib.contextmanager
def interpreted(*, program_ids: Sequence[int] | None = None, total: int | None = None) -> Iterator[Session]:
    """Interpret every Triton launch on CPU tensors while the context is open.

    ``program_ids`` runs only these ids along the first grid axis, ``total`` replaces that axis' size: with
    ``virtual_tensor`` a grid past 2**31 elements is tried in milliseconds.  Raises OutOfBounds for an access
    outside the launch's tensors.  A context inside a context is the same one; other threads wait.
    """
    global _active  # noqa: PLW0603  # Triton's interpreter is itself one per process
    with _lock:
        if _active is not None:
            if program_ids is not None or total is not None:
                raise RuntimeError(
                    "interpreted() is already active: program ids belong to the outermost call"
                )
            yield _active
            return
        session = Session(program_ids, total)
        with Patches() as patches, np.errstate(all="ignore"):
            session.replaced = repair(patches)
            check_accesses(patches, lambda: session.extents)
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


def interpreted_factory(factory: Callable[..., Any]) -> Callable[..., Any]:
    """A factory whose operators run inside ``interpreted()``, their backward passes too.

    Raises PatchError when the repairs do not work with this Triton.
    """
    self_test()

    @functools.wraps(factory, updated=())
    def build(*args: Any, **kwargs: Any) -> Any:
        with interpreted():
            return InterpretedOp(factory(*args, **kwargs))

    return build


class InterpretedOp:
    """An operator each of whose calls, and each backward of whose results, is interpreted.

    `substitutions` is what reports print: with a tanh that is torch's, accuracy is not judged.
    """

    substitutions = SUBSTITUTIONS

    def __init__(self, op: Callable[..., Any]) -> None:
        self._op = op

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The operator's own result."""
        with interpreted():
            result = self._op(*args, **kwargs)
        borders = [arg.grad_fn for arg in args if isinstance(arg, Tensor) and arg.grad_fn is not None]
        _interpret_backward(result, borders)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)


class InterpretedTritonOp(InterpretedOp):
    """The Triton operator that ships with the suite, interpreted: the candidate ``triton-interpreted``."""

    def __init__(self, softcap: float = 30.0) -> None:
        shipped = importlib.import_module(_SHIPPED).TritonFinalLogitSoftcapOp
        super().__init__(interpreted_factory(shipped)(softcap=softcap))


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
        function = rewrite(kernel, session)
        scope = triton_interpreter._patch_lang(function)
        try:
            return function(*args, **kwargs)
        finally:
            scope.restore()

    def run_first(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        return tuner.fn.run(*args, **{**kwargs, **tuner.configs[0].all_kwargs()})

    patches.set(triton_jit.JITFunction, "run", run)
    patches.set(triton_jit.JITFunction, "__call__", call)
    patches.set(Autotuner, "run", run_first)


def _pretend_gpu(patches: Patches) -> None:
    patches.set(torch.Tensor, "is_cuda", property(lambda _: True))
    patches.set(torch.cuda, "device", contextlib.nullcontext)
    patches.set(torch.cuda, "current_device", lambda: 0)
    patches.set(torch.cuda, "synchronize", lambda *_: None)
