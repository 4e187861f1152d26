"""One module a subcommand: `run(options) -> exit status`. What each takes stands in `invariance.arguments`."""
