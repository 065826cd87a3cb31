"""Options that a decoder does not use, or that make no sense, are refused."""

import pytest

from mala_asr.decoding import DECODERS, DecodingOptions
from mala_asr.decoding.errors import DecodingError


@pytest.mark.parametrize(
    "given, message",
    [
        ({"decoder": "rnnt"}, "choose from ctc_greedy, ctc_beam"),
        ({"decoder": "ctc_greedy", "beam_size": 3}, "ctc_greedy has no beam_s"),
        ({"decoder": "ctc_beam", "ctc_weight": 0.3}, "has: joint, rescore"),
        ({"decoder": "joint", "lm": "a.bin"}, "joint has no lm;"),
        ({"decoder": "ctc_beam", "n_best": 3}, "has: rescore"),
        ({"decoder": "joint", "beam_size": 0}, "beam_size is 0; give"),
        ({"decoder": "joint", "beam_size": 2.5}, "give a whole number"),
        ({"decoder": "joint", "beam_size": True}, "beam_size is True"),
        ({"decoder": "joint", "ctc_weight": "high"}, "ctc_weight is high"),
        ({"decoder": "joint", "ctc_weight": 1.5}, "from 0 to 1"),
        (
            {"decoder": "ctc_beam", "lm": "a", "lm_weight": float("nan")},
            "lm_weight is nan",
        ),
        ({"decoder": "ctc_beam", "lm_wieght": 1.0}, "did you mean lm_weight"),
        (
            {"decoder": "ctc_beam", "lm": "none", "lm_weight": 1.0},
            "lm_weight without a language model",
        ),
    ],
)
def test_refused_in_one_line(given: dict[str, object], message: str) -> None:
    with pytest.raises(DecodingError, match=message) as refusal:
        DecodingOptions.of(given)
    assert "\n" not in str(refusal.value)


def test_a_weight_needs_a_language_model_when_it_comes_to_decoding() -> None:
    options = DecodingOptions("ctc_beam", lm_weight=0.7)
    with pytest.raises(DecodingError, match="without a language model"):
        options.settings()
    assert options.changed({"lm": "a.bin"}).settings()["lm_weight"] == 0.7


@pytest.mark.parametrize("decoder", DECODERS)
def test_every_decoder_has_defaults(decoder: str) -> None:
    settings = DecodingOptions(decoder).settings()
    assert settings["decoder"] == decoder
    assert None not in settings.values()
    assert "lm_weight" not in settings


def test_what_is_changed_and_what_is_kept() -> None:
    tuned = DecodingOptions("ctc_beam", lm_weight=0.7, beam_size=50)
    wider = tuned.changed({"beam_size": 60, "lm_weight": None})
    assert (wider.beam_size, wider.lm_weight) == (60, 0.7)
    # What was tuned for one decoder says nothing of another.
    assert tuned.changed({"decoder": "joint"}) == DecodingOptions("joint")
    without = tuned.changed({"lm": "none"})
    assert (without.lm, without.lm_weight) == ("none", None)


def test_stored_options_of_earlier_versions_are_understood() -> None:
    stored = {"decoder": "ctc_greedy", "beam_size": 10, "ctc_weight": 0.4}
    assert DecodingOptions.stored(stored) == DecodingOptions("ctc_greedy")
    with pytest.raises(DecodingError, match="no decoding option 'speed'"):
        DecodingOptions.stored({"speed": 3})
