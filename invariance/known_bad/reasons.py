"""Laws that kill nothing alone, and why each stays all the same."""

from __future__ import annotations

REASONS = {
    "specification": (
        "Its rows are wider than those of exact_value, so what it refuses is refused there too. It stays because the "
        "operator's specification is written in its terms, and a report has to answer in them."
    ),
    "another_device": "Needs a second device of the same kind; what it catches cannot be shown on one.",
    "other_current_device": "Needs a second device; on one device there is no other to be current.",
    "concurrent_load": (
        "Faults that appear only under load are races, and a race that is certain to lose is caught by repeat as well."
    ),
    "compiled": (
        "Its kernel dies of traced as well, which writes no code. It stays for what the compiler makes of a launch: "
        "there alone a kernel of its own is called from code that was generated."
    ),
    "poisoned_memory": "What freed_memory says, for the blocks that the caching allocator of a device hands out.",
    "beyond_int32": (
        "The edit whose offsets are too narrow dies of far_offsets, in the interpreter. It stays for kernels that are "
        "no Triton, and because it compares every element where the memory is real."
    ),
    "guarded_inputs": "What guard_bands says, for device memory on both sides of an allocation.",
}
