"""Wrong kernels that the laws must kill, and right ones that they must not: the suite's proof that it can fail.

Every entry is a candidate of its own: `softcap-verify check --candidate invariance.known_bad.formulas:identity`.
"""
