"""The grid is decoded in full, and the best of it is the best."""

import pytest
import soundfile
import torch

from mala_asr.data.manifest import Utterance
from mala_asr.decoding import DecodingOptions
from mala_asr.decoding.errors import DecodingError
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.inference.tuning import GRID, EncodedSet, at_edge, grid_of, tune
from mala_asr.training.evaluate import evaluate_set
from tests.decoders import needs_flashlight
from tests.tones import ToneModel, texts, tones


@pytest.fixture(scope="module")
def utterances(tmp_path_factory: pytest.TempPathFactory) -> list[Utterance]:
    """Noisy tones, of which the model gets a part wrong."""
    folder = tmp_path_factory.mktemp("dev")
    generator = torch.Generator().manual_seed(0)
    made = []
    for number, text in enumerate(texts(6, seed=3000)):
        wave = tones(text)
        wave = wave + 0.25 * torch.randn(wave.shape, generator=generator)
        path = folder / f"{number}.wav"
        soundfile.write(path, wave.clamp(-1, 1).numpy(), 16000)
        seconds = len(wave) / 16000
        made.append(Utterance(str(number), seconds, str(path), "a", text))
    return made


@needs_flashlight
def test_every_point_is_what_the_evaluation_gives(
    tone_model: ToneModel, utterances: list[Utterance]
) -> None:
    dev = EncodedSet(*tone_model[:2], utterances)
    seen = []
    grid = {"word_score": [-4.0, 0.0, 4.0]}
    best = tune(dev, DecodingOptions("ctc_beam"), grid, seen.append)
    assert [p.values["word_score"] for p in seen] == grid["word_score"]
    for point in seen:
        assert point.options.word_score == point.values["word_score"]
        recognizer = Recognizer(*tone_model[:2], point.options)
        report = evaluate_set(recognizer, utterances, 30.0, progress=False)
        assert report.wer == point.report.wer
    rates = [point.report.wer for point in seen]
    assert len(set(rates)) > 1
    assert best.report.wer == min(rates)


def test_a_grid_over_what_the_decoder_has() -> None:
    joint = DecodingOptions("joint")
    assert grid_of(joint, {}) == {"ctc_weight": GRID["ctc_weight"]}
    beam = DecodingOptions("ctc_beam", lm="a.bin")
    assert set(grid_of(beam, {})) == {"lm_weight", "word_score"}
    everything = grid_of(DecodingOptions("rescore", lm="a.bin"), {})
    assert everything == GRID
    given = grid_of(beam, {"lm_weight": [0.1], "ctc_weight": None})
    assert given["lm_weight"] == [0.1]


@pytest.mark.parametrize(
    "decoder, given, message",
    [
        ("ctc_greedy", {}, "nothing to tune"),
        ("joint", {"word_score": [1.0]}, "joint has no word_score"),
        ("ctc_beam", {"lm_weight": [1.0]}, "without a language model"),
    ],
)
def test_what_there_is_not_cannot_be_tuned(
    decoder: str, given: dict[str, list[float]], message: str
) -> None:
    with pytest.raises(DecodingError, match=message):
        grid_of(DecodingOptions(decoder), given)


def test_the_best_at_an_edge_is_told(
    tone_model: ToneModel, utterances: list[Utterance]
) -> None:
    dev = EncodedSet(*tone_model[:2], utterances[:1])
    grid = {"ctc_weight": [0.3, 0.6]}
    best = tune(dev, DecodingOptions("joint", beam_size=2), grid)
    assert at_edge(best, grid) == ["ctc_weight"]
    assert at_edge(best, {"ctc_weight": [0.3]}) == []
    inner = {"ctc_weight": [0.1, best.values["ctc_weight"], 0.9]}
    assert at_edge(best, inner) == []
