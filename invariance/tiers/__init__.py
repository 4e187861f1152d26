"""What can be judged without a GPU: the Triton interpreter with its faults repaired, and ahead-of-time compilation.

The modules here need Triton and are imported only when a tier is asked for.
"""
