"""The caps that a process must have met before a failure comes: as few as can be found, and plain ones if they do."""

from __future__ import annotations

from collections.abc import Callable

from invariance.fuzz.asked import Asked

TRIED = 48  # fresh processes, some tenths of a second each
PLAIN = tuple(map(Asked, (1.0, 20.0, 30.0, 50.0, 2.0, 7.3)))

History = tuple[Asked, ...]
Fails = Callable[[History], bool]


def needed(fails: Fails, before: History) -> History | None:
    """The shortest of the last 1, 2, 4, ... caps, or all, after which it fails; None where it does not come back."""
    tails = [before[-(1 << k) :] for k in range(len(before).bit_length())]
    return next((tail for tail in dict.fromkeys([*tails, before] if before else []) if fails(tail)), None)


def fewer(fails: Fails, history: History, asked: Asked, tried: int = TRIED) -> History:
    """A shorter history after which it still fails, of plain caps where they do, after at most `tried` attempts.

    asked: the cap that fails, which is no plain cap of its own history. None of the caps that are left can be left out,
    unless the attempts were not enough to see it.
    """
    left = [tried]

    def attempt(shorter: History) -> bool:
        left[0] -= 1
        return left[0] >= 0 and fails(shorter)

    others = [plain for plain in PLAIN if plain.cap != asked.cap]
    prefixes = (tuple(others[:length]) for length in range(1, min(len(history), len(others)) + 1))
    history = next((plain for plain in prefixes if attempt(plain)), history)
    run = max(len(history) // 2, 1)
    while len(history) > 1 and left[0] > 0:
        shorter = _without_a_run(attempt, history, run)
        if run == 1 and shorter == history:
            break
        history, run = shorter, max(run // 2, 1)
    return history


def _without_a_run(attempt: Fails, history: History, run: int) -> History:
    """One pass: runs of so many caps taken out, each for good where it fails without them."""
    start = 0
    while start < len(history):
        shorter = history[:start] + history[start + run :]
        if shorter and attempt(shorter):
            history = shorter
        else:
            start += run
    return history
