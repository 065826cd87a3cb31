"""What it takes to decode a recording in one pass, known before it starts.

What grows with the length is counted, and a fixed allowance for the block that
is worked on; the model is there already. Linear attention and CTC's best path
make every term linear in the length. Two things are not: comparing all frames
with each other (softmax attention with relative positions), and aligning a
transcript that did not come from a path.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import nn

from mala_asr.models import MalaASR

# Letters that a fast speaker says in a second, for the alignment's table.
_TOKENS_PER_SECOND = 20

# For the spectra, the front-end's channels and the hidden units of a block.
_BLOCK_BYTES = 150 * 2**20

# Of ONNX Runtime, whose arena keeps more than what is in use: measured over
# front-ends, widths, vocabularies and spectra, 0.8 to 1.27 times the sum of
# the widest layers; and its score tables of softmax, 11 to 12 of them.
_ARENA = 1.3
_GRAPH_TABLES = 12

# Of torch: scores by content and by position, their sum and its softmax.
_TABLES = 5

_FLOAT, _DOUBLE = 4, 8
_GIB = 2**30


def one_pass_bytes(
    model: MalaASR,
    seconds: float,
    decoder: str,
    word_times: bool = False,
    blocks: bool = True,
) -> int:
    """Predict the memory that one pass over a recording takes at most.

    Arguments
    ---------
    model : MalaASR
        The model.
    seconds : float
        Length of the recording.
    decoder : str
        Name of the decoder.
    word_times : bool
        Whether words are placed in time.
    blocks : bool
        Whether it is encoded a block at a time, or at once as ONNX Runtime
        does.

    Returns
    -------
    int
        Bytes beyond those of the model.

    Example
    -------
    >>> model = MalaASR(
    ...     1000, d_model=64, num_encoder_layers=1, ctc_weight=1.0, d_ffn=128
    ... )
    >>> for hours in (1, 2, 10):
    ...     print(one_pass_bytes(model, hours * 3600, "ctc_greedy") // 2**20)
    589
    1028
    4544
    """
    config = model.config
    samples = seconds * model.sample_rate
    frames = samples / model.hop_samples
    encoded = frames / model.subsampling
    scored = encoded * model.ctc_upsampling
    states = _FLOAT * encoded * config["d_model"]
    wave = _FLOAT * samples
    features = _FLOAT * frames * config["n_mels"]
    # While it is read, a recording is there twice.
    reading = 2 * wave
    tables = _TABLES if blocks else _GRAPH_TABLES
    encoding = wave + features + states
    encoding += _attention_bytes(model, encoded, tables)
    if not blocks:
        encoding += _graph_bytes(model, frames, scored)
    search = _search_bytes(config["vocab_size"], scored, decoder)
    if word_times and decoder != "ctc_greedy":
        tokens = _TOKENS_PER_SECOND * seconds
        search += (2 * tokens + 1) * scored
    return round(_BLOCK_BYTES + max(reading, encoding, wave + states + search))


def available_bytes(device: torch.device) -> int:
    """Tell how much memory there is.

    Arguments
    ---------
    device : torch.device
        Where.

    Returns
    -------
    int
        Free bytes of a GPU; of the CPU's memory, bytes that can be had
        without swapping, within the limits of a container.

    Example
    -------
    >>> available_bytes(torch.device("cpu")) > 0
    True
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    limits = [_machine_bytes(), _container_bytes()]
    return min(limit for limit in limits if limit is not None)


def in_gib(count: float) -> str:
    """Write a number of bytes for people.

    Arguments
    ---------
    count : float
        Bytes.

    Returns
    -------
    str
        In GiB.

    Example
    -------
    >>> in_gib(3 * 2**29)
    '1.5 GiB'
    """
    return f"{count / _GIB:.1f} GiB"


def _graph_bytes(model: MalaASR, frames: float, scored: float) -> float:
    """The widest layers of the whole recording, none of them in blocks."""
    config = model.config
    # Windowed frames and their complex spectra.
    spectra = frames * (config["n_fft"] + config["n_fft"] + 2)
    # The first convolution halves time and frequency.
    conv = next(m for m in model.modules() if isinstance(m, nn.Conv2d))
    channels = frames / 2 * config["n_mels"] / 2 * conv.out_channels
    # CTC's scores and their logarithms, whatever the decoder.
    scores = 2 * scored * config["vocab_size"]
    # The feed-forward modules' hidden units, before and after SiLU.
    hidden = 2 * frames / model.subsampling * config["d_ffn"]
    return _ARENA * _FLOAT * (spectra + channels + scores + hidden)


def _attention_bytes(model: MalaASR, encoded: float, tables: int) -> float:
    attention = model.config["attention"]
    states = _FLOAT * encoded * model.config["d_model"]
    if attention in ("mala", "linear", "inline"):
        return 0  # a block at a time
    if attention == "softmax_relpos":
        table = _FLOAT * model.config["nhead"] * encoded**2
        return 8 * states + tables * table
    return 10 * states


def _search_bytes(vocab_size: int, scored: float, decoder: str) -> float:
    if decoder == "ctc_greedy":
        return scored * (_FLOAT + _DOUBLE)  # score and label
    table = scored * vocab_size
    if decoder == "joint":
        # The prefix scorer holds probabilities and their logarithms.
        return table * (3 * _FLOAT + _DOUBLE)
    return table * 3 * _FLOAT


def _machine_bytes() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass  # not Linux
    # What is free is not told everywhere; half of it all is a fair guess.
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return pages // 2


def _container_bytes(folder: str = "/sys/fs/cgroup") -> int | None:
    try:
        limit = int((Path(folder) / "memory.max").read_text())
        used = int((Path(folder) / "memory.current").read_text())
    except (OSError, ValueError):
        return None  # no container, or one without a limit ("max")
    return max(limit - used, 0)
