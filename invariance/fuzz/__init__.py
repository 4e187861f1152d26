"""New caps: many of them, each with whole domains of inputs, and what was found made small."""
