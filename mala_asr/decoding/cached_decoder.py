"""The attention decoder one token at a time, for a beam of hypotheses.

Keys and values of the encoder's frames are computed once and shared by all
hypotheses of an utterance. So are those of the tokens: hypotheses of a beam
have most of their history in common, so the tokens form a tree, each node
keeps its keys and values in one place, and a hypothesis is the set of nodes
it sees. A step copies no history, and its cost grows with the nodes that some
hypothesis still sees: hardly more than the tokens of one hypothesis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from mala_asr.models.asr import padding_mask

if TYPE_CHECKING:
    from mala_asr.models import MalaASR

_FIRST_CAPACITY = 64  # nodes


class CachedDecoder:
    """SpeechBrain's Transformer decoder with cached keys and values.

    Arguments
    ---------
    model : MalaASR
        A model with an attention decoder, in evaluation mode.
    enc : Tensor
        Encoder output, (batch, frames, d_model).
    lengths : Tensor
        Valid frames, (batch,).
    beam_size : int
        Hypotheses of an utterance.

    Example
    -------
    >>> from mala_asr.models import MalaASR
    >>> model = MalaASR(
    ...     30, d_model=64, num_encoder_layers=1, num_decoder_layers=1,
    ...     d_ffn=64,
    ... ).eval()
    >>> enc, lengths = torch.rand(2, 9, 64), torch.tensor([9, 5])
    >>> decoder = CachedDecoder(model, enc, lengths, beam_size=3)
    >>> bos = torch.ones(2, 3, dtype=torch.long)
    >>> with torch.no_grad():
    ...     decoder.step(bos).shape
    torch.Size([2, 3, 30])
    """

    def __init__(
        self, model: MalaASR, enc: Tensor, lengths: Tensor, beam_size: int
    ) -> None:
        transformer = model.transformer
        assert model.decoder_head is not None
        self._embed = transformer.custom_tgt_module
        self._positions = transformer.positional_encoding_decoder.pe[0]
        self._layers: list[Any] = list(transformer.decoder.layers)
        assert all(layer.normalize_before for layer in self._layers)
        self._norm = transformer.decoder.norm
        self._head = model.decoder_head
        self._step = 0
        # Per layer keys and values, (2, batch, heads, frames, channels).
        self._memory = torch.stack(
            [_memory(layer.multihead_attn.att, enc) for layer in self._layers]
        )
        self._unheard = padding_mask(lengths, enc.shape[1])[:, None, None]
        layers, _, batch, heads, _, channels = self._memory.shape
        # Keys and values of the nodes, of which the first `_nodes` are in use.
        self._cache = enc.new_zeros(
            (layers, 2, batch, heads, _FIRST_CAPACITY, channels)
        )
        self._nodes = 0
        self._others = ~torch.eye(
            beam_size, dtype=torch.bool, device=enc.device
        )
        self._unseen = self._others.new_ones(
            (batch, beam_size, _FIRST_CAPACITY)
        )

    def step(self, tokens: Tensor) -> Tensor:
        """Read a token of each hypothesis and score the next one.

        Arguments
        ---------
        tokens : Tensor
            Bos at first, then what each hypothesis goes on with,
            (batch, beam).

        Returns
        -------
        Tensor
            Log-probabilities, (batch, beam, vocabulary).
        """
        new = self._new_nodes()
        unseen = self._unseen[:, None, :, : self._nodes]
        x = self._embed(tokens) + self._positions[self._step]
        for layer, cache, memory in zip(
            self._layers, self._cache, self._memory, strict=True
        ):
            att = layer.self_attn.att
            query, key, value = linear(
                layer.norm1(x), att.in_proj_weight, att.in_proj_bias
            ).chunk(3, -1)
            cache[0, ..., new, :] = _heads(key, att.num_heads)
            cache[1, ..., new, :] = _heads(value, att.num_heads)
            x = x + _attend(att, query, cache[..., : self._nodes, :], unseen)

            att = layer.multihead_attn.att
            d_model = att.embed_dim
            query = linear(
                layer.norm2(x),
                att.in_proj_weight[:d_model],
                att.in_proj_bias[:d_model],
            )
            x = x + _attend(att, query, memory, self._unheard)
            x = x + layer.pos_ffn.ffn(layer.norm3(x))
        self._step += 1
        return self._head(self._norm(x)).float().log_softmax(-1)

    def select(self, parents: Tensor) -> None:
        """Replace the hypotheses by some of them.

        Arguments
        ---------
        parents : Tensor
            Which hypothesis of its utterance each goes on from,
            (batch, beam).
        """
        index = parents.unsqueeze(-1).expand(*parents.shape, self._nodes)
        used = self._unseen[..., : self._nodes]
        used.copy_(used.gather(1, index))

    def keep(self, rows: Tensor) -> None:
        """Forget the other utterances.

        Arguments
        ---------
        rows : Tensor
            Indices of the utterances that stay, (rows,).
        """
        self._memory, self._cache = (
            self._memory[:, :, rows],
            self._cache[:, :, rows],
        )
        self._unheard, self._unseen = self._unheard[rows], self._unseen[rows]

    def _new_nodes(self) -> slice:
        """Make room for a node of each hypothesis, that it alone sees."""
        count = len(self._others)
        if self._nodes + count > self._unseen.shape[2]:
            self._collect(count)
        new = slice(self._nodes, self._nodes + count)
        self._unseen[..., new] = self._others
        self._nodes = new.stop
        return new

    def _collect(self, count: int) -> None:
        """Move the nodes that are seen to the front, and leave room.

        The room is at least as large as what is moved, so that the cost of
        moving does not grow with the number of steps between two moves.
        """
        seen = ~self._unseen[..., : self._nodes].all(dim=1)
        order = seen.to(torch.uint8).argsort(dim=1, descending=True)
        self._nodes = int(seen.sum(dim=1).max())
        order = order[:, : self._nodes]
        capacity = max(_FIRST_CAPACITY, 2 * (self._nodes + count))

        beam = self._unseen.shape[1]
        unseen = self._unseen.gather(2, order.unsqueeze(1).expand(-1, beam, -1))
        self._unseen = torch.nn.functional.pad(
            unseen, (0, capacity - self._nodes), value=True
        )
        layers, two, _, heads, _, channels = self._cache.shape
        cache = self._cache.gather(
            4,
            order[None, None, :, None, :, None].expand(
                layers, two, -1, heads, -1, channels
            ),
        )
        self._cache = torch.nn.functional.pad(
            cache, (0, 0, 0, capacity - self._nodes)
        )


def _heads(x: Tensor, heads: int) -> Tensor:
    """From (batch, time, d_model) to (batch, heads, time, channels)."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def _memory(att: torch.nn.MultiheadAttention, enc: Tensor) -> Tensor:
    """Keys and values of the encoder's frames."""
    d_model = att.embed_dim
    both = linear(enc, att.in_proj_weight[d_model:], att.in_proj_bias[d_model:])
    return torch.stack([_heads(x, att.num_heads) for x in both.chunk(2, -1)])


def _attend(
    att: torch.nn.MultiheadAttention,
    query: Tensor,
    keys_values: Tensor,
    hidden: Tensor,
) -> Tensor:
    """Attend from (batch, beam, d_model) to what is not hidden."""
    keys, values = keys_values
    query = _heads(query, att.num_heads) * keys.shape[-1] ** -0.5
    # At these sizes faster than scaled_dot_product_attention.
    scores = (query @ keys.transpose(-1, -2)).masked_fill(hidden, -torch.inf)
    found = scores.softmax(-1) @ values
    return att.out_proj(found.transpose(1, 2).flatten(2))
