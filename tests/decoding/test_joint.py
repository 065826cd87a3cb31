"""The joint beam search against SpeechBrain's, and by itself."""

import itertools

import pytest
import torch

from mala_asr.benchmarks.host_search import HostBeamSearch
from mala_asr.decoding.attention_scores import attention_scores, max_tokens
from mala_asr.decoding.errors import DecodingError
from mala_asr.decoding.joint import JointBeamSearch
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


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize(
    "beam_size, ctc_weight, all_tokens",
    [
        (1, 0.4, False),
        (3, 0.9, False),
        (10, 0.0, False),
        (10, 0.4, False),
        (10, 0.4, True),
    ],
)
def test_finds_what_the_host_finds(
    tone_model: ToneModel,
    random_model: MalaASR,
    trained: bool,
    beam_size: int,
    ctc_weight: float,
    all_tokens: bool,
) -> None:
    model = tone_model.model if trained else random_model
    enc, lengths = encode(model, [tones(t) for t in texts(4, seed=1002)])
    candidates = len(tone_model.tokenizer) if all_tokens else None
    ours = JointBeamSearch(
        model, tone_model.tokenizer, beam_size, ctc_weight, candidates
    ).n_best(enc, lengths)
    host = HostBeamSearch(model, beam_size, ctc_weight, beam_size, all_tokens)
    for found, expected in zip(ours, host(enc, lengths), strict=True):
        assert found[0].tokens == expected[0][0]
        score = {tuple(tokens): score for tokens, score in expected}
        # The host fills up with hypotheses that it had to cut off.
        for hypothesis in found:
            assert hypothesis.score == pytest.approx(
                score[tuple(hypothesis.tokens)], rel=1e-6, abs=1e-5
            )
        assert len(found) >= 0.9 * len(score)


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
    search = JointBeamSearch(random_model, tone_model.tokenizer, 4, ctc_weight)
    together = search.n_best(*encode(random_model, waves))
    alone = [search.n_best(*encode(random_model, [wave]))[0] for wave in waves]
    for one, other in zip(together, alone, strict=True):
        assert [h.tokens for h in one] == [h.tokens for h in other]
        for h, same in zip(one, other, strict=True):
            assert h.score == pytest.approx(same.score, abs=1e-4)
    assert len({len(found[0].tokens) for found in together}) > 1


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
    texts = [
        text
        for n in range(4)
        for text in itertools.product(vocabulary, repeat=n)
    ]
    (scores,) = attention_scores(model, enc, lengths, [texts])
    best = max(
        score / (len(text) + 1)
        for score, text in zip(scores, texts, strict=True)
    )
    (found,) = search(enc, lengths)
    assert found.score >= best - 1e-4


@pytest.mark.parametrize("ctc_weight", [0.0, 0.4, 0.9])
def test_the_score_is_what_it_says(
    tone_model: ToneModel, ctc_weight: float
) -> None:
    model, tokenizer, _ = tone_model
    enc, lengths = encode(model, [tones("AB D")])
    search = JointBeamSearch(model, tokenizer, 5, ctc_weight)
    (found,) = search(enc, lengths)
    ((attention,),) = attention_scores(model, enc, lengths, [[found.tokens]])
    with torch.no_grad():
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
    parts = {"attention": attention} | ({"ctc": ctc} if ctc_weight else {})
    assert found.scores == pytest.approx(parts, abs=1e-3)


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"beam_size": 0}, "beam size is 0"),
        ({"candidates": 0}, "candidates is 0"),
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
        JointBeamSearch(ctc_only, tone_model.tokenizer)


def test_n_best(tone_model: ToneModel) -> None:
    model, tokenizer, _ = tone_model
    enc, lengths = encode(model, [tones("AB D"), tones("C")])
    search = JointBeamSearch(model, tokenizer, beam_size=6)
    every = search.n_best(enc, lengths)
    for found in every:
        assert len({tuple(h.tokens) for h in found}) == len(found) == 6
        scores = [h.score for h in found]
        assert scores == sorted(scores, reverse=True)
    assert search.n_best(enc, lengths, count=2) == [f[:2] for f in every]
    assert search(enc, lengths) == [f[0] for f in every]


def test_no_utterances(tone_model: ToneModel) -> None:
    search = JointBeamSearch(*tone_model[:2])
    assert search(torch.zeros(0, 4, 64), torch.zeros(0, dtype=torch.long)) == []


def test_an_utterance_without_frames_is_refused(tone_model: ToneModel) -> None:
    search = JointBeamSearch(*tone_model[:2])
    with pytest.raises(DecodingError, match="without frames"):
        search(torch.rand(2, 4, 64), torch.tensor([4, 0]))


@pytest.mark.parametrize("beam_size", [1, 10])
def test_nothing_but_blanks(
    random_model: MalaASR, tone_model: ToneModel, beam_size: int
) -> None:
    """CTC is certain that nothing was said, which leaves the empty text."""
    tokenizer = tone_model.tokenizer
    search = JointBeamSearch(random_model, tokenizer, beam_size, 0.9)
    enc, lengths = encode(random_model, [torch.zeros(8000), torch.zeros(80)])
    head = random_model.ctc_head
    kept = head.bias.detach().clone()
    with torch.no_grad():
        bias = head.bias.view(random_model.ctc_upsampling, -1)
        bias[:, tokenizer.pad_id()] += 5000
        found = search(enc, lengths)
        head.bias.copy_(kept)
    assert [h.text for h in found] == ["", ""]
    assert all(h.scores["ctc"] == pytest.approx(0.0) for h in found)


def test_texts_beyond_the_positions_of_the_decoder(
    tone_model: ToneModel,
) -> None:
    """More frames than positions: the search ends at the last position."""
    torch.manual_seed(0)
    model = MalaASR(
        len(tone_model.tokenizer),
        d_model=16,
        nhead=2,
        num_encoder_layers=1,
        num_decoder_layers=1,
        d_ffn=16,
        kernel_size=3,
    ).eval()
    with torch.no_grad():
        model.decoder_head.bias[tone_model.tokenizer.eos_id()] -= 50
    search = JointBeamSearch(model, tone_model.tokenizer, 1, ctc_weight=0.0)
    (found,) = search(torch.randn(1, 2600, 16), torch.tensor([2600]))
    assert len(found.tokens) == max_tokens(model)
