"""Wrong once copied: a cap that stays behind when a policy is copied or sent to a worker."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from invariance.known_bad.entry import good, wrong
from invariance.known_bad.kernel import Kernel

_DEFAULT = 30.0
_LAWS = ("copied_operator", "fresh_process", "interleaved_caps", "model_dtype", "repeat")


class _Operator:
    """A right operator, of whose copies the entries make something else."""

    def __init__(self, softcap: float = _DEFAULT) -> None:
        self.kernel = Kernel(softcap)

    def __call__(self, x: Tensor) -> Tensor:
        return self.kernel(x)


class _BuiltAnew(_Operator):
    def __deepcopy__(self, memo: dict[int, Any]) -> _BuiltAnew:
        return type(self)()


class _Reduced(_Operator):
    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


class _WithoutState(_Operator):
    """The default is the class's own, so that a copy without state has one."""

    kernel = Kernel(_DEFAULT)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if not isinstance(value, Kernel)}


_kernels: dict[int, Kernel] = {}


class _ByItself:
    """The cap is looked up by the identity of the operator."""

    def __init__(self, softcap: float) -> None:
        _kernels[id(self)] = Kernel(softcap)

    def __del__(self) -> None:
        _kernels.pop(id(self), None)

    def __call__(self, x: Tensor) -> Tensor:
        return (_kernels.get(id(self)) or Kernel(_DEFAULT))(x)


_handles: list[Kernel] = []


class _ByHandle:
    """The cap is on a list of the process, and the operator knows its place on it."""

    def __init__(self, softcap: float) -> None:
        self.handle = len(_handles)
        _handles.append(Kernel(softcap))

    def __call__(self, x: Tensor) -> Tensor:
        known = self.handle < len(_handles)
        return (_handles[self.handle] if known else Kernel(_DEFAULT))(x)


class _ByItsCap(_Operator):
    """What is copied and sent is the class and the cap."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.kernel.softcap,)


class _Locked(_Operator):
    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("an operator that holds a lock is neither copied nor sent")


@wrong(bugs=(104, 101), must={"copied_operator"})
def deep_copy_of_the_default(softcap: float) -> Any:
    """A deep copy is a new operator of the class, at its default cap: the reference policy has another cap."""
    return _BuiltAnew(softcap)


@wrong(bugs=(104, 21), must={"copied_operator", "fresh_process"}, laws=_LAWS)
def reduced_to_its_class(softcap: float) -> Any:
    """`__reduce__` names the class and leaves the cap out: copies and pickles have the default."""
    return _Reduced(softcap)


@wrong(bugs=(104,), must={"copied_operator", "fresh_process"}, laws=_LAWS)
def state_without_the_cap(softcap: float) -> Any:
    """`__getstate__` leaves out what holds the cap, as it cannot be pickled: a copy falls back to the class's."""
    return _WithoutState(softcap)


@wrong(bugs=(104, 7), must={"copied_operator", "fresh_process"}, laws=_LAWS)
def cap_by_identity(softcap: float) -> Any:
    """Caps are kept by id(): a copy has another, and gets the default."""
    return _ByItself(softcap)


@wrong(bugs=(104, 7), must={"fresh_process"}, laws=_LAWS)
def cap_by_handle(softcap: float) -> Any:
    """Caps are kept on a list of the process: where a pickle arrives, there is none or another one at that place."""
    return _ByHandle(softcap)


@good()
def sent_by_its_cap(softcap: float) -> Any:
    """A copy is built anew, at the cap that it is given."""
    return _ByItsCap(softcap)


@good()
def not_to_be_copied(softcap: float) -> Any:
    """Copies and pickles are refused."""
    return _Locked(softcap)
