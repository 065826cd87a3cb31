"""A model folder inside SpeechBrain's own interface.

``EncoderDecoderASR.from_hparams(source=folder)`` builds these classes, as the
folder's ``hyperparams.yaml`` says, and gives the text that `Transcriber`
gives: both decode by the folder's own options.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from speechbrain.utils.fetching import FetchConfig, LocalStrategy, fetch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from mala_asr.decoding.hypothesis import spell
from mala_asr.decoding.recognizer import Encoded, Recognizer
from mala_asr.inference.model_folder import (
    CONFIG,
    load_model_folder,
    needed_files,
)


class Encoder(nn.Module):
    """From samples to encoder states; empty until a folder is loaded."""

    recognizer: Recognizer

    def __init__(self) -> None:
        super().__init__()
        # SpeechBrain tells a decoder nothing of the samples, from which alone
        # the number of valid frames is known.
        self._encoded: Any = WeakTensorKeyDictionary()

    def load(self, folder: Path) -> None:
        """Take the model of a folder.

        Arguments
        ---------
        folder : Path
            A model folder.
        """
        loaded = load_model_folder(folder)
        self.model = loaded.model  # so that it moves between devices
        self.recognizer = Recognizer(
            loaded.model, loaded.tokenizer, loaded.decoding({})
        )

    def forward(self, wavs: Tensor, wav_lens: Tensor) -> Tensor:
        """Encode a batch.

        Arguments
        ---------
        wavs : Tensor
            Samples, zero-padded, shape (batch, samples).
        wav_lens : Tensor
            Lengths relative to the longest, shape (batch,).

        Returns
        -------
        Tensor
            Shape (batch, frames, d_model).
        """
        lengths = (wav_lens * wavs.shape[1]).round().long().tolist()
        encoded = self.recognizer.encode(
            [wav[:length] for wav, length in zip(wavs, lengths, strict=True)]
        )
        self._encoded[encoded.states] = encoded
        return encoded.states

    def encoded(self, states: Tensor) -> Encoded:
        """Find what `forward` knew of the states that it gave.

        Arguments
        ---------
        states : Tensor
            The very tensor.

        Returns
        -------
        Encoded
            States, valid frames and seconds.

        Raises
        ------
        ValueError
            If it is another tensor.
        """
        if states not in self._encoded:
            raise ValueError("give the decoder the very states of the encoder")
        return self._encoded[states]


class Decoder(nn.Module):
    """From encoder states to tokens.

    Arguments
    ---------
    encoder : Encoder
        What gives the states.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self, states: Tensor, wav_lens: Tensor
    ) -> tuple[list[list[int]], None, None, None]:
        """Decode a batch.

        Arguments
        ---------
        states : Tensor
            What the encoder gave.
        wav_lens : Tensor
            Not needed: the encoder knows the lengths exactly.

        Returns
        -------
        tuple
            Tokens of each utterance, and three times None where SpeechBrain's
            searchers have lengths and scores.
        """
        encoded = self.encoder.encoded(states)
        found = self.encoder.recognizer.decode(encoded)
        return [hypothesis.tokens for hypothesis in found], None, None, None


class Tokenizer:
    """From tokens to text.

    Arguments
    ---------
    encoder : Encoder
        Its folder has the tokenizer.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def decode_ids(self, tokens: list[int]) -> str:
        """Spell tokens out.

        Arguments
        ---------
        tokens : list of int
            Of one utterance.

        Returns
        -------
        str
            The text.
        """
        return spell(tokens, self._encoder.recognizer.tokenizer)


class ModelFolder:
    """In the place of SpeechBrain's Pretrainer: a whole folder, checked.

    Arguments
    ---------
    encoder : Encoder
        What takes the model.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._collect_in: str | None = None

    def set_collect_in(self, path: str | os.PathLike[str] | None) -> None:
        """Choose where links to the files, or copies, are put.

        Arguments
        ---------
        path : str or os.PathLike, optional
            None leaves the files where they are.
        """
        self._collect_in = None if path is None else os.fspath(path)

    def collect_files(
        self,
        default_source: str,
        local_strategy: LocalStrategy = LocalStrategy.SYMLINK,
        fetch_config: FetchConfig | None = None,
    ) -> None:
        """Bring the files together.

        Arguments
        ---------
        default_source : str
            The folder, or whatever else SpeechBrain fetches from.
        local_strategy : LocalStrategy
            Link, copy or leave alone.
        fetch_config : FetchConfig, optional
            How to fetch.
        """

        def get(name: str) -> Path:
            return Path(
                fetch(
                    filename=name,
                    source=default_source,
                    savedir=self._collect_in,
                    local_strategy=local_strategy,
                    fetch_config=fetch_config or FetchConfig(),
                )
            )

        self._folder = get(CONFIG).parent
        for name in needed_files(self._folder):
            get(name)

    def load_collected(self) -> None:
        """Load the model of the folder."""
        self._encoder.load(self._folder)
