"""The training loop, its data pipeline and its run folder."""
