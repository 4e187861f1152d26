"""An autotuner without a clock: which configuration runs, and what the measurement does to the tensors before it."""

from __future__ import annotations

from typing import Any

from invariance.tiers.launching import Session

_TRIED = 2  # a kernel that changes what it reads shows it the first time


def run_tuned(session: Session, tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the configuration that the session asks for.

    Where it is `measured`, others have run before on the same tensors, as in the first call for a key on a device;
    what the autotuner restores or resets in between is up to its author.
    """
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    known = tuner.prune_configs(kwargs) if len(tuner.configs) > 1 else tuner.configs
    name = tuner.base_fn.__name__
    if session.measured and name not in session.tuned and len(known) > 1:
        _measure(tuner, known[-_TRIED:], args, kwargs)
    session.tuned[name] = [str(config) for config in known]
    config = known[min(session.configuration, len(known) - 1)]
    result = _run(tuner, config, args, kwargs)
    tuner.nargs = None  # as after a run on a device: it would keep the tensors
    return result


def _run(tuner: Any, config: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if config.pre_hook is not None:
        config.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()})
    return tuner.fn.run(*args, **kwargs, **config.all_kwargs())


def _measure(tuner: Any, configs: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for config in configs:
        named = {**tuner.nargs, **kwargs, **config.all_kwargs()}
        tuner.pre_hook(named)
        _run(tuner, config, args, kwargs)
        tuner.post_hook(named, exception=None)
    tuner.pre_hook(named, reset_only=True)
