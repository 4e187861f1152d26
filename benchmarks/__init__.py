"""The operator against what a user would pick instead, and against what the machine can do."""
