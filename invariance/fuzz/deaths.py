"""What became of a round whose child died or did not return: which cap it was at, and which caps are left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from invariance.fuzz.asked import Asked
from invariance.fuzz.rounds import CRASHED, LATE, Broken, Subject
from invariance.fuzz.scan import LAW
from invariance.process import Outcome

NO_RESULT = "no result within {:g} s"


def death(outcome: Outcome, subject: Subject) -> tuple[Broken, Sequence[list[Asked]]]:
    """The failure, and what has to be judged again: the caps after it, and those before it, lost with the child.

    The key of the job is how many seconds a cap had at least: what a hang is told with.
    """
    caps: list[Asked] = outcome.job.kwargs["caps"]
    late = outcome.kind == "timed out"
    seconds: Any = outcome.job.key
    reason = NO_RESULT.format(seconds) if late else outcome.reason or "failed"
    asked, dtype, law = caps[0], subject.dtypes[0], LAW
    if outcome.announced is not None:
        record, dtype, law, why = json.loads(outcome.announced)
        asked, reason = Asked.of_record(record), why or reason
    place = [a.record() for a in caps].index(asked.record())
    kind = LATE if late else CRASHED
    broken = Broken(law, subject.passes[0], dtype, asked, kind=kind, reason=reason)
    return broken, (caps[place + 1 :], caps[:place])
