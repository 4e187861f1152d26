"""Laws that kill no kernel which no other law kills, and why each stays all the same."""

from __future__ import annotations

REASONS = {
    "specification": (
        "It allows more than exact_value does, so that on the same inputs what it refuses is refused there too. It "
        "stays because the operator's specification is written in its terms, and a report has to answer in them."
    ),
    "another_device": "Needs a second device of the same kind; what it catches cannot be shown on one.",
    "other_current_device": "Needs a second device; on one device there is no other to be current.",
    "concurrent_load": (
        "A fault under load is a race. One that is lost every time fails repeat as well, and one that is lost now and "
        "then is no kernel for a catalogue, whose verdicts have to be the same each time."
    ),
    "compiled": (
        "Its kernel fails traced as well, where torch.compile only records the calls. It stays because here alone they "
        "are made from the code that the compiler generates."
    ),
    "poisoned_memory": "What freed_memory says, for the blocks that the caching allocator of a device hands out.",
    "beyond_int32": (
        "The edit whose offsets are too narrow dies of far_offsets, in the interpreter. It stays for kernels that are "
        "no Triton, and because it compares every element where the memory is real."
    ),
    "guarded_inputs": "What guard_bands says, for device memory on both sides of an allocation.",
}
