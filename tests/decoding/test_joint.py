"""The joint beam search, through SpeechBrain's searcher."""

import itertools
from collections.abc import Sequence

import pytest
import torch

from mala_asr.decoding.joint import DecodingError, JointBeamSearch
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.models import MalaASR
from tests.tones import ToneModel, texts, tones


@pytest.fixture(scope="module", params=[1, 2], ids="x{}".format)
def random_model(
    request: pytest.FixtureRequest, tone_model: ToneModel
) -> MalaASR:
    """A model that has learned nothing, so that its search ends nowhere."""
    torch.manual_seed(3)
    model = MalaASR(
        len(tone_model.tokenizer),
        d_model=64,
        num_encoder_layers=1,
        num_decoder_layers=1,
        d_ffn=128,
        kernel_size=7,
        ctc_upsampling=request.param,
    ).eval()
    with torch.no_grad():
        model.decoder_head.bias[tone_model.tokenizer.eos_id()] -= 0.5
    return model


def encode(
    model: MalaASR, waves: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    padded = torch.nn.utils.rnn.pad_sequence(waves, batch_first=True)
    n_samples = torch.tensor([len(wave) for wave in waves])
    with torch.no_grad():
        return model.encode(*model.features(padded, n_samples))


def test_reads_the_tones(tone_model: ToneModel) -> None:
    search = JointBeamSearch(*tone_model[:2], beam_size=5)
    said = texts(20, seed=1001)
    with torch.no_grad():
        found = search(*encode(tone_model.model, [tones(t) for t in said]))
    right = sum(f.text == s for f, s in zip(found, said, strict=True))
    assert right >= 16


@pytest.mark.parametrize("ctc_weight", [0.0, 0.4])
def test_alone_is_as_in_a_batch(
    random_model: MalaASR, tone_model: ToneModel, ctc_weight: float
) -> None:
    torch.manual_seed(4)
    waves = [0.1 * torch.randn(n) for n in (14000, 6000, 1, 900, 10000)]
    recognizer = Recognizer(
        random_model, tone_model.tokenizer, "joint", 4, ctc_weight
    )
    together = recognizer.waves(waves)
    alone = [recognizer.waves([wave])[0] for wave in waves]
    for one, other in zip(together, alone, strict=True):
        assert one.tokens == other.tokens
        assert one.score == pytest.approx(other.score, abs=1e-4)
    assert len({len(h.tokens) for h in together}) > 1


def test_no_more_tokens_than_frames(
    random_model: MalaASR, tone_model: ToneModel
) -> None:
    enc, lengths = encode(
        random_model, [torch.randn(n) for n in (12000, 3000, 1)]
    )
    # Never let it end by itself.
    with torch.no_grad():
        random_model.decoder_head.bias[tone_model.tokenizer.eos_id()] -= 50
        search = JointBeamSearch(
            random_model, tone_model.tokenizer, beam_size=3, ctc_weight=0.0
        )
        found = search(enc, lengths)
        random_model.decoder_head.bias[tone_model.tokenizer.eos_id()] += 50
    most = lengths * random_model.ctc_upsampling
    assert [len(h.tokens) for h in found] == most.tolist()


@pytest.mark.parametrize("beam_size", [8, 30])
def test_beam_wider_than_the_vocabulary(
    tone_model: ToneModel, beam_size: int
) -> None:
    said = "AB C"
    search = JointBeamSearch(*tone_model[:2], beam_size=beam_size)
    with torch.no_grad():
        (found,) = search(*encode(tone_model.model, [tones(said)]))
    assert found.text == said
    assert found.score < 0.0


def test_finds_what_trying_every_text_finds(tone_model: ToneModel) -> None:
    model, tokenizer, _ = tone_model
    enc, lengths = encode(model, [tones("A")])
    search = JointBeamSearch(model, tokenizer, beam_size=8, ctc_weight=0.0)
    vocabulary = set(range(1, len(tokenizer))) - {tokenizer.eos_id()}
    with torch.no_grad():
        (found,) = search(enc, lengths)
        best = max(
            attention_score(tone_model, enc, lengths, tokens)
            / (len(tokens) + 1)
            for n in range(4)
            for tokens in itertools.product(vocabulary, repeat=n)
        )
    assert found.score >= best - 1e-4


@pytest.mark.parametrize("ctc_weight", [0.0, 0.4, 0.9])
def test_the_score_is_what_it_says(
    tone_model: ToneModel, ctc_weight: float
) -> None:
    model, tokenizer, _ = tone_model
    enc, lengths = encode(model, [tones("AB D")])
    search = JointBeamSearch(model, tokenizer, 5, ctc_weight)
    with torch.no_grad():
        (found,) = search(enc, lengths)
        attention = attention_score(tone_model, enc, lengths, found.tokens)
        ctc = -torch.nn.functional.ctc_loss(
            model.ctc_log_probs(enc).transpose(0, 1),
            torch.tensor([found.tokens]),
            lengths,
            torch.tensor([len(found.tokens)]),
            reduction="sum",
        ).item()
    joint = (1 - ctc_weight) * attention + ctc_weight * ctc
    assert found.score * (len(found.tokens) + 1) == pytest.approx(
        joint, abs=1e-3
    )


def attention_score(
    tone_model: ToneModel,
    enc: torch.Tensor,
    lengths: torch.Tensor,
    tokens: Sequence[int],
) -> float:
    """The decoder's log-probability of the tokens and eos."""
    model, tokenizer, _ = tone_model
    given = torch.tensor([[tokenizer.bos_id(), *tokens]])
    wanted = torch.tensor([[*tokens, tokenizer.eos_id()]])
    log_probs = model.decoder_log_probs(given, enc, lengths)
    return log_probs.gather(2, wanted[..., None]).sum().item()


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"beam_size": 0}, "beam size is 0"),
        ({"ctc_weight": 1.0}, "CTC weight is 1.0"),
        ({"ctc_weight": -0.1}, "CTC weight is -0.1"),
    ],
)
def test_settings_out_of_range_are_refused(
    tone_model: ToneModel, settings: dict, said: str
) -> None:
    with pytest.raises(DecodingError, match=said):
        JointBeamSearch(*tone_model[:2], **settings)


def test_a_model_without_decoder_is_refused(tone_model: ToneModel) -> None:
    ctc_only = MalaASR(
        len(tone_model.tokenizer),
        d_model=64,
        num_encoder_layers=1,
        d_ffn=64,
        ctc_weight=1.0,
    )
    with pytest.raises(DecodingError, match="no attention decoder"):
        Recognizer(ctc_only, tone_model.tokenizer, decoder="joint")
