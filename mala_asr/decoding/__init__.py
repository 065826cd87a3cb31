"""From log-probabilities to hypotheses."""

# Named here so that the command line can offer them without loading torch.
DECODERS = ("ctc_greedy", "joint")
