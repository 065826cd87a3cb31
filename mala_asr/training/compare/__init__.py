"""A fair comparison of variants: one schedule, one order of batches."""
