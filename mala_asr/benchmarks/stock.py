"""SpeechBrain's own Conformer recipe, as the benchmark's opponent.

Built from SpeechBrain's modules with the settings of its LibriSpeech
conformer_small: filterbanks computed in every step, global input
normalization, SpecAugment, the 4x convolutional front-end, relative position
attention, and `Brain.fit_batch` as the loop.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import speechbrain as sb
import torch
from speechbrain.augment.augmenter import Augmenter
from speechbrain.augment.freq_domain import SpectrogramDrop, Warping
from speechbrain.dataio.batch import PaddedBatch
from speechbrain.lobes.features import Fbank
from speechbrain.lobes.models.convolution import ConvolutionFrontEnd
from speechbrain.lobes.models.transformer.TransformerASR import TransformerASR
from speechbrain.nnet.linear import Linear
from speechbrain.nnet.losses import ctc_loss, kldiv_loss
from speechbrain.nnet.schedulers import NoamScheduler
from speechbrain.processing.features import InputNormalization
from torch import Tensor

from mala_asr.benchmarks.batches import RawBatch


def stock_batch(batch: RawBatch) -> PaddedBatch:
    """Lay a batch out as the recipe's data loader does.

    Arguments
    ---------
    batch : RawBatch
        Waveforms and tokens.

    Returns
    -------
    PaddedBatch
        With sig, tokens, tokens_bos and tokens_eos.
    """
    bos, eos = torch.tensor([1]), torch.tensor([2])
    return PaddedBatch(
        [
            {
                "sig": wave,
                "tokens": tokens,
                "tokens_bos": torch.cat([bos, tokens]),
                "tokens_eos": torch.cat([tokens, eos]),
            }
            for wave, tokens in zip(batch.waves, batch.tokens, strict=True)
        ]
    )


class StockBrain(sb.Brain):
    """The training step of SpeechBrain's transformer recipe."""

    def compute_forward(
        self, batch: PaddedBatch, stage: sb.Stage
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Go from waveforms to log-probabilities of CTC and decoder."""
        batch = batch.to(self.device)
        wavs, wav_lens = batch.sig
        tokens_bos, _ = batch.tokens_bos
        feats = self.hparams.compute_features(wavs)
        feats = self.modules.normalize(feats, wav_lens, epoch=1)
        feats, _ = self.hparams.augment(feats, wav_lens)
        encoded, decoded = self.modules.transformer(
            self.modules.cnn(feats), tokens_bos, wav_lens, pad_idx=0
        )
        ctc = self.modules.ctc_head(encoded).log_softmax(-1)
        seq = self.modules.decoder_head(decoded).log_softmax(-1)
        return ctc, seq, wav_lens

    def compute_objectives(
        self,
        predictions: tuple[Tensor, Tensor, Tensor],
        batch: PaddedBatch,
        stage: sb.Stage,
    ) -> Tensor:
        """Weigh the CTC loss against the decoder's."""
        ctc, seq, wav_lens = predictions
        tokens, token_lens = batch.tokens
        tokens_eos, eos_lens = batch.tokens_eos
        loss_ctc = ctc_loss(
            ctc, tokens, wav_lens, token_lens, 0, reduction="batchmean"
        )
        loss_seq = kldiv_loss(
            seq,
            tokens_eos,
            length=eos_lens,
            label_smoothing=self.hparams.label_smoothing,
            reduction="batchmean",
        )
        weight = self.hparams.ctc_weight
        return weight * loss_ctc + (1 - weight) * loss_seq

    def on_fit_batch_end(
        self, batch: PaddedBatch, outputs: Any, loss: Tensor, should_step: bool
    ) -> None:
        """Anneal the learning rate after every update, as the recipe does."""
        if should_step:
            self.hparams.noam(self.optimizer)


def stock_brain(config: dict[str, Any], hparams: dict[str, Any]) -> StockBrain:
    """Build the stock recipe, ready to fit batches.

    Arguments
    ---------
    config : dict
        The sizes: arguments of our model.
    hparams : dict
        Our config: optimizer, schedule and weight of the losses.

    Returns
    -------
    StockBrain
    """
    d_model, vocab_size = config["d_model"], config["vocab_size"]
    schedule = hparams["schedule"]
    return StockBrain(
        {
            "cnn": ConvolutionFrontEnd(
                input_shape=(8, 10, config["n_mels"]),
                num_blocks=2,
                num_layers_per_block=1,
                out_channels=(64, 32),
                kernel_sizes=(3, 3),
                strides=(2, 2),
                residuals=(False, False),
            ),
            "transformer": _transformer(config),
            "normalize": InputNormalization(update_until_epoch=4),
            "ctc_head": Linear(input_size=d_model, n_neurons=vocab_size),
            "decoder_head": Linear(input_size=d_model, n_neurons=vocab_size),
        },
        opt_class=partial(hparams["opt_class"], lr=schedule.peak),
        hparams={
            "compute_features": Fbank(
                sample_rate=config["sample_rate"],
                n_fft=config["n_fft"],
                n_mels=config["n_mels"],
                win_length=config["win_length"],
                hop_length=config["hop_length"],
            ),
            "augment": _spec_augment(),
            "noam": NoamScheduler(schedule.peak, schedule.warmup_steps),
            "ctc_weight": hparams["ctc_weight"],
            "label_smoothing": hparams["label_smoothing"],
        },
        run_opts={"device": "cpu", "max_grad_norm": hparams["max_grad_norm"]},
    )


def _transformer(config: dict[str, Any]) -> TransformerASR:
    shared = (
        "d_model",
        "nhead",
        "num_encoder_layers",
        "num_decoder_layers",
        "d_ffn",
        "dropout",
        "kernel_size",
    )
    return TransformerASR(
        tgt_vocab=config["vocab_size"],
        input_size=32 * config["n_mels"] // 4,
        **{name: config[name] for name in shared},
        activation=torch.nn.GELU,
        encoder_module="conformer",
        attention_type="RelPosMHAXL",
        normalize_before=True,
        causal=False,
    )


def _spec_augment() -> Augmenter:
    return Augmenter(
        min_augmentations=3,
        max_augmentations=3,
        augmentations=[
            SpectrogramDrop(
                drop_length_low=15,
                drop_length_high=25,
                drop_count_low=4,
                drop_count_high=4,
                replace="mean",
                dim=1,
            ),
            SpectrogramDrop(
                drop_length_low=10,
                drop_length_high=20,
                drop_count_low=4,
                drop_count_high=4,
                replace="mean",
                dim=2,
            ),
            Warping(),
        ],
    )
