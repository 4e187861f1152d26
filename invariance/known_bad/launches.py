"""Wrong Triton kernels: edits of the shipped ones, each judged in the tier that its entry names.

On a CPU tensor an edited operator runs in the repaired interpreter, on a GPU as Triton compiles it.
"""

from __future__ import annotations

from typing import Any

from invariance.known_bad.edited import edited_operator
from invariance.known_bad.edits import Edit
from invariance.known_bad.entry import ANY, wrong

_FORWARD_START = Edit(
    "start = tl.program_id(0).to(tl.int64) * BLOCK  #", "start = (tl.program_id(0) * BLOCK).to(tl.int64)  #"
)
_BACKWARD_START = Edit(
    "start = tl.program_id(0).to(tl.int64) * BLOCK\n", "start = tl.program_id(0) * BLOCK\n"
)
# The kernels divide by the cap that they read, and get no reciprocal of the true one.
_DIVIDING = Edit("reciprocal = negative_reciprocal(softcap)", "reciprocal = None", "launch")


@wrong(bugs=(74, 75), must={"far_offsets"}, tier="interpreter")
def int32_offsets(softcap: float) -> Any:
    """Forward offsets are multiplied in 32 bits and widened too late."""
    return edited_operator("int32_offsets", softcap, _FORWARD_START)


@wrong(bugs=(75, 78), must={"far_offsets"}, tier="interpreter")
def uint32_offsets(softcap: float) -> Any:
    """Forward offsets are multiplied in 32 bits without a sign, which last to 2^32 elements."""
    edit = Edit(
        "start = tl.program_id(0).to(tl.int64) * BLOCK  #",
        "start = (tl.program_id(0).to(tl.uint32) * BLOCK).to(tl.int64)  #",
    )
    return edited_operator("uint32_offsets", softcap, edit)


@wrong(bugs=(75, 78), must={"offsets_64bit"}, tier="codegen")
def int32_offsets_backward(softcap: float) -> Any:
    """Backward offsets stay 32 bits wide."""
    return edited_operator("int32_offsets_backward", softcap, _BACKWARD_START)


@wrong(
    bugs=(28, 64),
    must={
        "autograd_gradients",
        "cap_used",
        "changed_in_place",
        "empty_and_scalar",
        "far_offsets",
        "freed_memory",
        "guard_bands",
        "inputs_unmodified",
        "slicing",
    },
    tier="interpreter",
)
def load_mask_missing(softcap: float) -> Any:
    """The last block of x is loaded whole, also past its end."""
    edit = Edit(
        "x = tl.load(x_ptr + offsets, mask=mask, other=0.0)\n        tl.store(",
        "x = tl.load(x_ptr + offsets)\n        tl.store(",
    )
    return edited_operator("load_mask_missing", softcap, edit)


@wrong(
    bugs=(64, 28),
    must={
        "autograd_gradients",
        "cap_used",
        "changed_in_place",
        "empty_and_scalar",
        "far_offsets",
        "freed_memory",
        "guard_bands",
        "inputs_unmodified",
        "slicing",
    },
    tier="interpreter",
)
def gradient_load_mask_missing(softcap: float) -> Any:
    """The last block of grad_y is loaded whole."""
    edit = Edit(
        "grad_y = tl.load(grad_y_ptr + offsets, mask=mask, other=0.0)",
        "grad_y = tl.load(grad_y_ptr + offsets)",
    )
    return edited_operator("gradient_load_mask_missing", softcap, edit)


@wrong(
    bugs=(74, 28),
    must={
        "autograd_gradients",
        "cap_used",
        "changed_in_place",
        "empty_and_scalar",
        "far_offsets",
        "freed_memory",
        "guard_bands",
        "inputs_unmodified",
        "slicing",
    },
    tier="interpreter",
)
def store_mask_missing(softcap: float) -> Any:
    """The last block of dx is stored whole, over whatever lies behind it."""
    edit = Edit(
        "grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)", "grad_x.to(grad_x_ptr.dtype.element_ty))"
    )
    return edited_operator("store_mask_missing", softcap, edit)


@wrong(
    bugs=(28, 25),
    must={
        "autograd_gradients",
        "cap_used",
        "changed_in_place",
        "empty_and_scalar",
        "far_offsets",
        "freed_memory",
        "guard_bands",
        "inputs_unmodified",
        "slicing",
    },
    tier="interpreter",
)
def mask_one_too_far(softcap: float) -> Any:
    """The mask has `<=` where `<` belongs."""
    edit = Edit(
        "mask = offsets < n\n        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)\n        tl.store(",
        "mask = offsets <= n\n        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)\n        tl.store(",
    )
    return edited_operator("mask_one_too_far", softcap, edit)


@wrong(bugs=(28, 13), must={"slicing"}, tier="interpreter", laws=("slicing",))
def unread_where_saturated(softcap: float) -> Any:
    """grad_y is not loaded where tanh is flat, and lanes that hold anything are multiplied by zero."""
    flat = "tl.abs(x.to(tl.float32)) < 16.0 * c"
    return edited_operator(
        "unread_where_saturated",
        softcap,
        Edit("tl.load(grad_y_ptr + offsets)", f"tl.load(grad_y_ptr + offsets, mask={flat})"),
        Edit(
            "tl.load(grad_y_ptr + offsets, mask=mask, other=0.0)",
            f"tl.load(grad_y_ptr + offsets, mask=mask & ({flat}))",
        ),
    )


@wrong(bugs=(28,), must={"freed_memory"}, may=ANY, tier="interpreter")
def mask_one_too_short(softcap: float) -> Any:
    """The last element of a partial block of dx is never stored."""
    edit = Edit(
        "grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)",
        "grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask & (offsets != n - 1))",
    )
    return edited_operator("mask_one_too_short", softcap, edit)


@wrong(bugs=(28, 59), must={"freed_memory"}, may=ANY, tier="interpreter", elements=1200)
def grid_one_short(softcap: float) -> Any:
    """The grid is rounded down, and the last partial block is never computed."""
    edit = Edit("blocks = -(-n // self.block)", "blocks = max(1, n // self.block)", "launch")
    return edited_operator("grid_one_short", softcap, edit)


@wrong(bugs=(7, 13), must={"cap_used"}, tier="interpreter")
def cap_in_the_kernel(softcap: float) -> Any:
    """The forward kernel has 30 written into it."""
    edit = Edit("c = tl.cast(softcap, tl.float32)  #", "c = tl.cast(30.0, tl.float32) + 0.0 * softcap  #")
    return edited_operator("cap_in_the_kernel", softcap, edit, _DIVIDING)


@wrong(bugs=(91, 4), must={"cap_used"}, tier="interpreter")
def cap_through_fp16(softcap: float) -> Any:
    """The backward kernel takes the cap through FP16."""
    edit = Edit(
        "c = tl.cast(softcap, tl.float32)\n", "c = tl.cast(tl.cast(softcap, tl.float16), tl.float32)\n"
    )
    return edited_operator("cap_through_fp16", softcap, edit, _DIVIDING)


@wrong(bugs=(4,), must={"cap_used"}, tier="interpreter")
def fp16_intermediates(softcap: float) -> Any:
    """The forward kernel converts x to FP16 first, whatever it is."""
    edit = Edit(
        "return c * libdevice.tanh(_quotient(x.to(tl.float32), c, reciprocal))",
        "return c * libdevice.tanh(tl.div_rn(x.to(tl.float16).to(tl.float32), c))",
    )
    return edited_operator("fp16_intermediates", softcap, edit)


@wrong(
    bugs=(79, 50, 80), must={"slicing"}, tier="interpreter", laws=("slicing",), profile="quick", elements=1100
)
def division_by_block(softcap: float) -> Any:
    """Full blocks multiply by the reciprocal of the cap, the last one divides."""
    edit = Edit(
        "x = tl.load(x_ptr + offsets)\n        tl.store(y_ptr + offsets, _capped(x, c, reciprocal))",
        "x = tl.load(x_ptr + offsets)\n"
        "        tl.store(y_ptr + offsets, c * libdevice.tanh(x.to(tl.float32) * tl.div_rn(1.0, c)))",
    )
    return edited_operator("division_by_block", softcap, edit)


@wrong(bugs=(62, 63, 64), must={"autograd_gradients", "slicing"}, tier="interpreter", elements=128)
def gradient_read_flat(softcap: float) -> Any:
    """The backward takes the upstream gradient's pointer, whatever its strides are."""
    edit = Edit("x, grad_y = _plain(x), _plain(grad_y)", "x = _plain(x)", "triton_op")
    return edited_operator("gradient_read_flat", softcap, edit)


@wrong(bugs=(60, 57), must={"slicing"}, may={"far_offsets"}, tier="interpreter")
def input_read_flat(softcap: float) -> Any:
    """The forward takes the input's pointer, whatever its strides are."""
    edit = Edit("            x = _plain(x)\n", "            pass\n", "triton_op")
    return edited_operator("input_read_flat", softcap, edit)


@wrong(
    bugs=(67,),
    must={
        "autograd_gradients",
        "cap_used",
        "empty_and_scalar",
        "far_offsets",
        "freed_memory",
        "guard_bands",
        "inputs_unmodified",
        "slicing",
    },
    tier="interpreter",
)
def output_in_place(softcap: float) -> Any:
    """An FP32 input is its own output."""
    edit = Edit(
        "y = torch.empty_like(x, dtype=torch.float32)",
        "y = x.detach() if x.dtype == torch.float32 else torch.empty_like(x, dtype=torch.float32)",
        "triton_op",
    )
    return edited_operator("output_in_place", softcap, edit)


@wrong(bugs=(69,), must={"changed_in_place"}, tier="interpreter")
def saved_on_the_context(softcap: float) -> Any:
    """x is kept on the context, where autograd's version check does not see it."""
    return edited_operator(
        "saved_on_the_context",
        softcap,
        Edit(
            "        ctx.save_for_backward(x)\n        return _forward",
            "        ctx.x = x\n        return _forward",
            "triton_op",
        ),
        Edit(
            "        (x,) = ctx.saved_tensors\n        grad_x = _backward",
            "        x = ctx.x\n        grad_x = _backward",
            "triton_op",
        ),
    )


@wrong(bugs=(29, 30), must={"bad_caps"}, tier="interpreter")
def cap_unchecked(softcap: float) -> Any:
    """Any number is passed to the kernel as the cap."""
    edit = Edit("self.softcap = check_cap(softcap)", "self.softcap = float(min(softcap, 1e300))", "triton_op")
    return edited_operator("cap_unchecked", softcap, edit)
