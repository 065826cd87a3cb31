"""Magnitude-aware linear attention and its relatives, in pure torch."""

from mala_asr.attention.layer import LinearAttention

__all__ = ["LinearAttention"]
