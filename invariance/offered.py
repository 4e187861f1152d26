"""What a user may choose from. Imports nothing, so that the command can refuse a choice before torch is there."""

from __future__ import annotations

import math
import struct

DTYPES = ("fp16", "bf16", "fp32")
DEFAULT_CAPS: tuple[float | int, ...] = (20.0, 30.0)
PROFILES = ("quick", "default", "thorough")
ROUNDINGS = ("once", "chain")
OPERATORS = ("final_logit_softcap",)
SWEPT_PASSES = ("forward", "backward")
CAMPAIGNS = ("mixed", "bf16xbf16")
# What kernels are compiled for: laws and facts are read off code that differs between vendors, not between generations.
ONE_A_VENDOR = ("sm_90", "gfx942")
TIERS = ("plan", "interpreter", "codegen", "device")
# The laws that are not stated for all of DTYPES.
NARROW_LAWS: dict[str, tuple[str, ...]] = {
    "table": ("fp16", "bf16"),
    "beyond_int32": ("bf16",),
    "every_configuration": ("bf16", "fp32"),
}


def is_cap(value: object) -> bool:
    """Whether it is a number that is finite and positive also as FP32."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        as_fp32 = struct.unpack("<f", struct.pack("<f", value))[0]
    except (OverflowError, struct.error):  # the latter for an int that has no double
        return False
    return math.isfinite(as_fp32) and as_fp32 > 0


def is_time(value: object) -> bool:
    """Whether it is a time limit: a number above 0 and below a million."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e6
