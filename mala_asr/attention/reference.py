"""The attention of the paper, written to be read: explicit scores.

O(N^2) and meant for float64: the oracle that the fast forms are tested
against, and the only way to look at a single score. Fan et al., "Rectifying
Magnitude Neglect in Linear Attention" (ICCV 2025), eq. 8-12. It shares no
formula with the fast forms: scores are built, masked and multiplied.

The paper's equations use s_ij = phi(q_i) phi(k_j) unscaled; its public code
multiplies by d^-1/2 / N. The latter is ours, with N the number of *visible*
keys of query i; ``scaled=False`` gives the former.
"""

from __future__ import annotations

import torch
from torch import Tensor

ATTENTION_KINDS = ("mala", "linear", "inline")


def scores(
    queries: Tensor,
    keys: Tensor,
    kind: str = "mala",
    visible: Tensor | None = None,
    sharpness: Tensor | float = 1.0,
    rotated: tuple[Tensor, Tensor] | None = None,
    scaled: bool = True,
) -> Tensor:
    """Compute every attention score A_ij; each row sums to 1.

    With s_ij = c phi(q_i) phi(k_j) / N and z_i = sum_j s_ij:

    - ``linear``: s_ij / z_i
    - ``inline``: s_ij - z_i / N + 1 / N
    - ``mala``: beta_i s_ij - gamma_i with beta_i = 1 + 1 / z_i and
      gamma_i = z_i / N (eq. 8-10)
    - ``mala`` with sharpness a: s_ij / z_i + a (s_ij - z_i / N)

    A query that no key answers (z_i = 0, possible with ``relu``) attends to
    all visible keys equally; a query that sees no key has a row of zeros.

    Arguments
    ---------
    queries : Tensor
        phi(q), shape (..., time_q, d_key).
    keys : Tensor
        phi(k), shape (..., time_k, d_key).
    kind : str
        ``mala``, ``linear`` or ``inline``.
    visible : Tensor, optional
        bool, True = query i sees key j, shape broadcastable to
        (..., time_q, time_k).
    sharpness : Tensor | float
        The factor a of MALA's centred part, broadcastable to
        (..., time_q, time_k); 1 is the paper's.
    rotated : tuple of Tensor, optional
        phi(q) and phi(k) after rotary positions. They replace the plain
        ones in the centred part; z keeps the plain ones.
    scaled : bool
        False: the paper's s_ij = phi(q_i) phi(k_j), for eq. 8-12 verbatim.

    Returns
    -------
    Tensor
        A, shape (..., time_q, time_k); entries may be negative.

    Raises
    ------
    ValueError
        If ``kind`` is unknown.

    Example
    -------
    >>> phi_q, phi_k = torch.rand(3, 8), torch.rand(5, 8)
    >>> torch.allclose(scores(phi_q, phi_k).sum(-1), torch.ones(3))
    True
    """
    if kind not in ATTENTION_KINDS:
        raise ValueError(
            f"unknown attention {kind!r}; choose one of "
            f"{', '.join(ATTENTION_KINDS)}"
        )
    time_q, time_k = queries.shape[-2], keys.shape[-2]
    if visible is None:
        visible = torch.ones(
            time_q, time_k, dtype=torch.bool, device=keys.device
        )
    seen = visible.to(keys.dtype)
    number = seen.sum(-1, keepdim=True).clamp_min(1.0)
    scale = keys.shape[-1] ** -0.5 / number if scaled else 1.0

    products = queries @ keys.transpose(-2, -1) * scale * seen
    total = products.sum(-1, keepdim=True)
    answered = total > 0
    # Both branches of a where are differentiated: neither may divide by 0.
    inverse = torch.where(
        answered, 1.0 / torch.where(answered, total, 1.0), 0.0
    )
    centred_total = total
    if rotated is not None:
        rotated_q, rotated_k = rotated
        products = rotated_q @ rotated_k.transpose(-2, -1) * scale * seen
        centred_total = products.sum(-1, keepdim=True)
    mean = centred_total / number
    uniform = 1.0 / number

    if kind == "linear":
        rows = inverse * (products - mean) + uniform
        if rotated is None:
            rows = torch.where(answered, inverse * products, uniform)
    elif kind == "inline":
        rows = products - mean + uniform
    elif rotated is None:
        beta_part = torch.where(answered, inverse * products, uniform)
        rows = beta_part + sharpness * (products - mean)
    else:
        rows = uniform + (sharpness + inverse) * (products - mean)
    return rows * seen


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    kind: str = "mala",
    visible: Tensor | None = None,
    sharpness: Tensor | float = 1.0,
    rotated: tuple[Tensor, Tensor] | None = None,
    scaled: bool = True,
) -> Tensor:
    """Multiply the explicit scores with the values.

    Arguments
    ---------
    queries, keys, kind, visible, sharpness, rotated, scaled
        As for :func:`scores`.
    values : Tensor
        v, shape (..., time_k, d_value).

    Returns
    -------
    Tensor
        Attention output, shape (..., time_q, d_value).

    Example
    -------
    >>> phi_q, phi_k = torch.rand(3, 8), torch.rand(5, 8)
    >>> attend(phi_q, phi_k, torch.ones(5, 2)).shape
    torch.Size([3, 2])
    """
    attention = scores(queries, keys, kind, visible, sharpness, rotated, scaled)
    return attention @ values


def score_ratio(
    query: Tensor, key_m: Tensor, key_n: Tensor, keys: Tensor, scale: float
) -> Tensor:
    """Ratio of two MALA scores when the query is ``scale`` times as long.

    The paper's eq. 11 (scale = 1) and 12: with softmax this ratio grows
    exponentially with the query's magnitude, with linear attention it does
    not change, with MALA it grows as a fraction of linear functions, as
    long as both scores are positive.

    Arguments
    ---------
    query : Tensor
        phi(q), shape (d_key,).
    key_m, key_n : Tensor
        The two features phi(k) whose scores are divided, shape (d_key,).
    keys : Tensor
        All visible phi(k), shape (time, d_key).
    scale : float
        The factor on phi(q).

    Returns
    -------
    Tensor
        A_m / A_n, a scalar.

    Example
    -------
    >>> keys = torch.tensor([[1.0, 0.0], [0.8, 0.0]])
    >>> query = torch.tensor([1.0, 0.0])
    >>> one = score_ratio(query, keys[0], keys[1], keys, 1.0)
    >>> two = score_ratio(query, keys[0], keys[1], keys, 2.0)
    >>> bool(two > one > 1.0)
    True
    """
    longer = scale * query
    total = (keys @ longer).sum()
    beta, gamma = 1.0 + 1.0 / total, total / keys.shape[0]
    return (beta * (longer @ key_m) - gamma) / (beta * (longer @ key_n) - gamma)
