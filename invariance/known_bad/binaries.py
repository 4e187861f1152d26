"""Wrong Triton kernels that the intermediate code gives away, and those that only a device can."""

from __future__ import annotations

from typing import Any

from invariance.known_bad.edited import edited_operator
from invariance.known_bad.edits import Edit
from invariance.known_bad.entry import good, wrong

_FORWARD = "return c * libdevice.tanh(_quotient(x.to(tl.float32), c, reciprocal))"
_BACKWARD = "t = libdevice.tanh(_quotient(x.to(tl.float32), c, reciprocal))"


@wrong(bugs=(50,), must={"precise_division"}, tier="codegen")
def approximate_division(softcap: float) -> Any:
    """`/` where div_rn belongs: div.full on NVIDIA."""
    return edited_operator(
        "approximate_division", softcap, Edit(_FORWARD, "return c * libdevice.tanh(x.to(tl.float32) / c)")
    )


@wrong(bugs=(50,), must={"precise_division"}, tier="codegen")
def approximate_division_backward(softcap: float) -> Any:
    """`/` where div_rn belongs, in the backward kernel alone."""
    return edited_operator(
        "approximate_division_backward", softcap, Edit(_BACKWARD, "t = libdevice.tanh(x.to(tl.float32) / c)")
    )


@wrong(bugs=(50,), must={"precise_division"}, tier="codegen")
def fast_division(softcap: float) -> Any:
    """The vendor's fast division, which no `/` gives away."""
    return edited_operator(
        "fast_division",
        softcap,
        Edit(_FORWARD, "return c * libdevice.tanh(libdevice.fast_dividef(x.to(tl.float32), c))"),
    )


@wrong(bugs=(49, 51, 36), must={"compiles", "no_approximate_tanh"}, tier="codegen")
def approximate_tanh(softcap: float) -> Any:
    """The hardware's tanh.approx, which no other vendor's target takes."""
    asm = (
        "tl.inline_asm_elementwise('tanh.approx.f32 $0, $1;', '=f,f', [tl.div_rn(x.to(tl.float32), c)], "
        "dtype=tl.float32, is_pure=True, pack=1)"
    )
    return edited_operator("approximate_tanh", softcap, Edit(_FORWARD, f"return c * {asm}"))


@wrong(bugs=(7, 13), must={"cap_is_runtime", "one_variant"}, tier="codegen")
def cap_compiled_in(softcap: float) -> Any:
    """The cap is a constexpr: one compiled kernel a cap."""
    edit = Edit("x_ptr, y_ptr, softcap: tl.float32,", "x_ptr, y_ptr, softcap: tl.constexpr,")
    return edited_operator("cap_compiled_in", softcap, edit)


@wrong(bugs=(13, 7), must={"cap_is_runtime"}, tier="codegen")
def cap_unread(softcap: float) -> Any:
    """The backward kernel has the cap as an argument that nothing reads."""
    edit = Edit("c = tl.cast(softcap, tl.float32)\n", "c = tl.cast(30.0, tl.float32)\n")
    return edited_operator("cap_unread", softcap, edit)


@wrong(bugs=(79, 80), must={"one_variant"}, tier="codegen")
def specialised_on_the_size(softcap: float) -> Any:
    """Sizes that are multiples of 16 get a kernel of their own."""
    edit = Edit(
        '@triton.jit(do_not_specialize=["n"])\ndef softcap_forward_kernel(\n    x_ptr, y_ptr, softcap: tl.float32, '
        "n: tl.int64,",
        "@triton.jit\ndef softcap_forward_kernel(\n    x_ptr, y_ptr, softcap: tl.float32, n,",
    )
    return edited_operator("specialised_on_the_size", softcap, edit)


@wrong(bugs=(114,), must={"vector_access"}, tier="codegen")
def always_masked(softcap: float) -> Any:
    """Every block is masked by an n of unknown divisibility: right, and one element an access."""
    edit = Edit(
        "    if start + BLOCK <= n:\n        x = tl.load(x_ptr + offsets)\n        tl.store(",
        "    if start + BLOCK < 0:\n        x = tl.load(x_ptr + offsets)\n        tl.store(",
    )
    return edited_operator("always_masked", softcap, edit)


@wrong(bugs=(72, 114), must={"offsets_64bit", "vector_access"}, tier="codegen")
def strided_lanes(softcap: float) -> Any:
    """Lanes stand two elements apart: every second element is skipped, and nothing is vectorised."""
    edit = Edit(
        "memory.\n    offsets = tl.max_contiguous(start + tl.arange(0, BLOCK), 4)",
        "memory.\n    offsets = start + 2 * tl.arange(0, BLOCK)",
    )
    return edited_operator("strided_lanes", softcap, edit)


@wrong(bugs=(113,), must={"no_spills"}, tier="codegen")
def huge_blocks(softcap: float) -> Any:
    """8192 elements a program: 64 values a thread at every step, more than a GPU has registers for."""
    return edited_operator("huge_blocks", softcap, Edit("BLOCK = 1024", "BLOCK = 8192"))


@wrong(bugs=(31, 32), must={"compiles"}, tier="codegen")
def does_not_compile(softcap: float) -> Any:
    """The backward kernel takes its tanh from a name that is not there."""
    edit = Edit(_BACKWARD, "t = libdevice.tanh_(tl.div_rn(x.to(tl.float32), c))")
    return edited_operator("does_not_compile", softcap, edit)


# Each fault ends the device's context and a process; other laws would only meet it too. It takes a whole block.
@wrong(bugs=(72,), must={"alignment"}, laws=("alignment",), tier="device", elements=2100)
def alignment_not_in_the_key(softcap: float) -> Any:
    """A kernel compiled for aligned pointers is launched on others: its vector loads fault."""
    return edited_operator(
        "alignment_not_in_the_key",
        softcap,
        Edit(", at_x & 15, at_y & 15, at_z & 15)", ")", "launch"),
        Edit(
            "if complete and ordinary:",
            "if complete and ordinary and not any(t.data_ptr() & 15 for t in tensors):",
            "launch",
        ),
    )


@wrong(bugs=(90,), must={"another_stream"}, tier="device")
def always_the_default_stream(softcap: float) -> Any:
    """Remembered kernels are launched on the default stream, whatever stream is current, unless it is captured."""
    edit = Edit(
        "stream = _current_stream(device)",
        "stream = _current_stream(device) if torch.cuda.is_current_stream_capturing() else 0",
        "launch",
    )
    return edited_operator("always_the_default_stream", softcap, edit)


@wrong(bugs=(115,), must={"graph_replay", "no_host_synchronisation"}, tier="device")
def waits_for_the_device(softcap: float) -> Any:
    """Every launch waits for the device, as a forgotten debugging aid does."""
    edit = Edit(
        "        blocks = -(-n // self.block)\n",
        "        torch.cuda.synchronize()\n        blocks = -(-n // self.block)\n",
        "launch",
    )
    return edited_operator("waits_for_the_device", softcap, edit)


@wrong(bugs=(115,), must={"no_host_synchronisation"}, tier="device")
def waits_outside_a_capture(softcap: float) -> Any:
    """Every launch waits for the device, except while a graph is captured."""
    edit = Edit(
        "        blocks = -(-n // self.block)\n",
        "        if not torch.cuda.is_current_stream_capturing():\n            torch.cuda.synchronize()\n"
        "        blocks = -(-n // self.block)\n",
        "launch",
    )
    return edited_operator("waits_outside_a_capture", softcap, edit)


# Shown from two blocks on, by memory that held something else before.
@wrong(bugs=(115, 90), must={"graph_replay"}, tier="device", elements=2100)
def wrong_while_captured(softcap: float) -> Any:
    """While a graph is captured the launcher records half of the blocks."""
    edit = Edit(
        "        blocks = -(-n // self.block)\n",
        "        blocks = -(-n // self.block)\n"
        "        blocks = (blocks + 1) // 2 if torch.cuda.is_current_stream_capturing() else blocks\n",
        "launch",
    )
    return edited_operator("wrong_while_captured", softcap, edit)


@wrong(
    bugs=(1, 35),
    must={"exact_value", "specification", "special_values"},
    may={"cap_used", "oddness", "saturation", "zeros"},
    tier="device",
)
def exponentials_on_the_device(softcap: float) -> Any:
    """The forward kernel computes (e^2z - 1) / (e^2z + 1)."""
    edit = Edit(
        _FORWARD,
        "e = libdevice.exp(2.0 * tl.div_rn(x.to(tl.float32), c))\n    return c * tl.div_rn(e - 1.0, e + 1.0)",
    )
    return edited_operator("exponentials_on_the_device", softcap, edit)


@wrong(bugs=(7, 31), must={"compiled"}, may={"traced"}, tier="device")
def stale_cap_when_compiled(softcap: float) -> Any:
    """Inside torch.compile the cap of the first operator is used for all."""
    edit = Edit(
        "return cast(Tensor, opaque_forward(x, self.softcap))",
        "return cast(Tensor, opaque_forward(x, 20.0))",
        "triton_op",
    )
    return edited_operator("stale_cap_when_compiled", softcap, edit)


@good(tier="interpreter", dtypes=("bf16",))
def shipped_kernels(softcap: float) -> Any:
    """The shipped kernels without an edit, through the same loader."""
    return edited_operator("shipped_kernels", softcap)


@good(tier="interpreter")
def smaller_blocks(softcap: float) -> Any:
    """256 elements a program, and 64 where there are few."""
    edits = Edit("BLOCK = 1024", "BLOCK = 256"), Edit("SMALL_BLOCK = 512", "SMALL_BLOCK = 64", "triton_op")
    return edited_operator("smaller_blocks", softcap, *edits)


@good(tier="codegen")
def more_elements_a_thread(softcap: float) -> Any:
    """2048 elements a program: more work a thread, the same code."""
    return edited_operator("more_elements_a_thread", softcap, Edit("BLOCK = 1024", "BLOCK = 2048"))


@good(tier="device", dtypes=("bf16", "fp32"))
def fused_multiply_add(softcap: float) -> Any:
    """1 - t * t is one fused operation: other bits of the gradient, and right ones."""
    return edited_operator(
        "fused_multiply_add",
        softcap,
        Edit("ENABLE_FP_FUSION = False", "ENABLE_FP_FUSION = True", "triton_op"),
    )
