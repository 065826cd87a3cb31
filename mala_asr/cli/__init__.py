"""The subcommands of mala-asr, one module each."""
