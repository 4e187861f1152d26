"""What children would import in the middle of a cell: the fork server imports it once, and asks no device anything."""

import atexit
import gc

import torch._decomp.decompositions_for_jvp  # of the first jvp, 0.1 s
import torch._dynamo  # of the first checkpoint, 0.7 s
import torch.fx.experimental.symbolic_shapes  # of the first autograd function, 0.4 s

import invariance.run  # noqa: F401
from invariance.checkers import load_laws

load_laws()

# A registered operator has no rule for batches, and torch would write a line about it in every call under vmap.
torch._C._functorch._set_vmap_fallback_warning_enabled(False)  # type: ignore[attr-defined]

# A collection in a child would look through all of this, which takes 0.1 s and copies the pages that it shares with us.
gc.collect()
gc.freeze()
atexit.register(gc.unfreeze)  # else nanobind reports at the server's end, as leaks, what was frozen
