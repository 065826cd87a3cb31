"""How likely the attention decoder finds transcripts that others proposed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.nn.utils.rnn import pad_sequence

from mala_asr.decoding.errors import DecodingError
from mala_asr.models.asr import BOS_INDEX, EOS_INDEX

if TYPE_CHECKING:
    from mala_asr.models import MalaASR


def max_tokens(model: MalaASR) -> int:
    """Count the tokens that the decoder can place; bos takes a position.

    Arguments
    ---------
    model : MalaASR
        A model with an attention decoder.

    Returns
    -------
    int
        One less than SpeechBrain's table of positions holds.
    """
    return model.transformer.positional_encoding_decoder.max_len - 1


@torch.no_grad()
def attention_scores(
    model: MalaASR,
    enc: torch.Tensor,
    lengths: torch.Tensor,
    candidates: Sequence[Sequence[Sequence[int]]],
) -> list[list[float]]:
    """Score token sequences by the attention decoder, all in one pass.

    Arguments
    ---------
    model : MalaASR
        A model with an attention decoder, in evaluation mode.
    enc : torch.Tensor
        Encoder output, (batch, frames, d_model).
    lengths : torch.Tensor
        Valid frames of each utterance, (batch,), one or more.
    candidates : sequence of sequences of int sequences
        The token ids of any number of candidates for each utterance, without
        bos and eos.

    Returns
    -------
    list of lists of float
        The log-probability of each candidate and the eos after it, where the
        candidate was.

    Raises
    ------
    DecodingError
        If a candidate has more tokens than the decoder has positions.

    Example
    -------
    >>> from mala_asr.models import MalaASR
    >>> model = MalaASR(
    ...     30, d_model=64, num_encoder_layers=1, num_decoder_layers=1,
    ...     d_ffn=64,
    ... ).eval()
    >>> enc = torch.rand(2, 9, 64)
    >>> scores = attention_scores(
    ...     model, enc, torch.tensor([9, 5]), [[[4, 5], []], [[4]]]
    ... )
    >>> [len(row) for row in scores]
    [2, 1]
    """
    rows = [list(tokens) for utterance in candidates for tokens in utterance]
    if not rows:
        return [[] for _ in candidates]
    longest = max(len(tokens) for tokens in rows)
    if longest > max_tokens(model):
        raise DecodingError(
            f"a candidate of {longest} tokens; the attention decoder has "
            f"positions for {max_tokens(model)}"
        )
    counts = torch.tensor([len(c) for c in candidates], device=enc.device)
    given = _padded([[BOS_INDEX, *tokens] for tokens in rows], enc.device)
    # What follows the first eos is padding, and must not count.
    wanted = _padded([[*tokens, EOS_INDEX] for tokens in rows], enc.device)
    ends = torch.tensor([len(tokens) for tokens in rows], device=enc.device)
    log_probs = model.decoder_log_probs(
        given,
        enc.repeat_interleave(counts, dim=0),
        lengths.to(enc.device).repeat_interleave(counts),
    )
    by_token = log_probs.gather(2, wanted.unsqueeze(2)).squeeze(2)
    position = torch.arange(longest + 1, device=enc.device)
    beyond = position > ends.unsqueeze(1)
    totals = by_token.masked_fill(beyond, 0.0).sum(dim=1)
    return [part.tolist() for part in totals.split(counts.tolist())]


def _padded(rows: list[list[int]], device: torch.device) -> torch.Tensor:
    return pad_sequence(
        [torch.tensor(row) for row in rows],
        batch_first=True,
        padding_value=EOS_INDEX,
    ).to(device)
