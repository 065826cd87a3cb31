"""N-gram language models: estimated, measured, and refused where foreign."""

import json
import math
import sys
from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor

from mala_asr.decoding.errors import DecodingError
from mala_asr.decoding.language_model import (
    LanguageModel,
    find_language_model,
    pack_language_model,
)
from mala_asr.decoding.ngram import perplexity, train_language_model
from tests.decoding.language import (
    TEXTS,
    train_letters,
    train_lm,
    train_pieces,
)

pytest.importorskip("flashlight.lib.text")


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> SentencePieceProcessor:
    return train_letters(tmp_path_factory.mktemp("letters"))


@pytest.fixture(scope="module")
def words(
    tmp_path_factory: pytest.TempPathFactory, letters: SentencePieceProcessor
) -> LanguageModel:
    return train_lm(tmp_path_factory.mktemp("words"), "word", letters)


@pytest.fixture(scope="module")
def pieces(
    tmp_path_factory: pytest.TempPathFactory, letters: SentencePieceProcessor
) -> LanguageModel:
    return train_lm(tmp_path_factory.mktemp("lm"), "piece", letters)


def arpa_scores(path: Path) -> dict[tuple[str, ...], tuple[float, float]]:
    """Probability and back-off weight of each n-gram, logs to base 10."""
    table = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        fields = line.split("\t")
        if len(fields) >= 2:
            backoff = float(fields[2]) if len(fields) == 3 else 0.0
            table[tuple(fields[1].split())] = (float(fields[0]), backoff)
    return table


def log10_of(
    table: dict[tuple[str, ...], tuple[float, float]],
    history: tuple[str, ...],
    word: str,
) -> float:
    if (*history, word) in table:
        return table[(*history, word)][0]
    backoff = table.get(history, (0.0, 0.0))[1]
    return backoff + log10_of(table, history[1:], word)


def test_perplexity_is_that_of_the_arpa_file(words: LanguageModel) -> None:
    table = arpa_scores(words.path.with_suffix(".arpa"))
    heldout = ["AB BA BA", "", "BAB A AB"]
    total, count = 0.0, 0
    for text in filter(None, heldout):
        sentence = ("<s>", *text.split(), "</s>")
        for end in range(1, len(sentence)):
            history = sentence[max(0, end - 2) : end]
            total += log10_of(table, history, sentence[end])
            count += 1
    found = perplexity(words, heldout)
    assert found.value == pytest.approx(10 ** (-total / count), rel=1e-4)
    assert (found.units, found.unknown) == (6, 0)


def test_unknown_words_are_counted_and_left_out(words: LanguageModel) -> None:
    found = perplexity(words, ["AB XYZ BA", "NO"])
    assert (found.units, found.unknown) == (4, 2)
    assert 1.0 < found.value < 100.0
    assert math.isnan(perplexity(words, []).value)


def test_probabilities_of_what_may_follow_add_up_to_one(
    pieces: LanguageModel,
) -> None:
    table = arpa_scores(pieces.path.with_suffix(".arpa"))
    for history in ((), ("▁",), ("▁", "A"), ("A", "B")):
        follows = [*pieces.vocabulary, "</s>"]
        total = sum(10 ** log10_of(table, history, unit) for unit in follows)
        assert total == pytest.approx(1.0, abs=1e-4)


def test_every_piece_is_known(tmp_path: Path) -> None:
    tokenizer = train_letters(tmp_path)
    lm = train_language_model(["AA", "AA A"], tmp_path, "piece", 2, tokenizer)
    assert sorted(lm.vocabulary) == ["A", "B", "▁"]
    assert perplexity(lm, ["B"], tokenizer).unknown == 0


def test_the_binary_and_the_arpa_file_say_the_same(
    words: LanguageModel, letters: SentencePieceProcessor, tmp_path: Path
) -> None:
    arpa = tmp_path / "own.arpa"
    arpa.write_bytes(words.path.with_suffix(".arpa").read_bytes())
    found = find_language_model(arpa, letters)  # without a description
    assert (found.unit, found.order) == ("word", 3)
    assert sorted(found.vocabulary) == words.vocabulary
    pack_language_model(found, tmp_path / "lm.bin")
    packed = find_language_model(tmp_path / "lm.bin", letters)
    rates = [perplexity(lm, TEXTS).value for lm in (words, found, packed)]
    assert rates == pytest.approx([rates[0]] * 3, rel=1e-5)


def test_units_of_a_foreign_arpa_file(
    pieces: LanguageModel, letters: SentencePieceProcessor, tmp_path: Path
) -> None:
    arpa = tmp_path / "own.arpa"
    arpa.write_bytes(pieces.path.with_suffix(".arpa").read_bytes())
    assert find_language_model(arpa, letters).unit == "piece"


def test_pieces_of_another_tokenizer_are_refused(
    pieces: LanguageModel, tmp_path: Path
) -> None:
    other = train_pieces(tmp_path)
    with pytest.raises(DecodingError, match="pieces of another tokenizer"):
        find_language_model(pieces.path, other)


@pytest.mark.parametrize("described", [True, False])
def test_words_of_another_case_are_refused(
    letters: SentencePieceProcessor, tmp_path: Path, described: bool
) -> None:
    lower = [text.lower() for text in TEXTS]
    lm = train_language_model(lower, tmp_path, "word", 2)
    path = lm.path if described else tmp_path / "word.arpa"
    if not described:
        (tmp_path / "word.json").unlink()
    with pytest.raises(
        DecodingError, match=r"4 of 4 words .* such as '(a|ab)'"
    ):
        find_language_model(path, letters)


def test_words_that_cannot_be_spelled_are_named(
    letters: SentencePieceProcessor,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lm = train_language_model([*TEXTS, "ABX"], tmp_path, "word", 2)
    find_language_model(lm.path, letters)
    assert "1 of 5 words" in caplog.text and "'ABX'" in caplog.text


def test_a_missing_piece_is_named(
    letters: SentencePieceProcessor,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    arpa = tmp_path / "few.arpa"
    arpa.write_text(
        "\\data\\\nngram 1=4\n\n\\1-grams:\n-1\t<s>\n-1\t</s>\n-0.3\tA\n"
        "-0.3\t▁\n\n\\end\\\n"
    )
    assert find_language_model(arpa, letters).vocabulary == ["A", "▁"]
    assert "1 of 3 pieces" in caplog.text and "'B'" in caplog.text


def test_no_language_models(
    words: LanguageModel, letters: SentencePieceProcessor, tmp_path: Path
) -> None:
    with pytest.raises(DecodingError, match="mala-asr train-lm"):
        find_language_model(tmp_path / "none.bin", letters)
    binary = tmp_path / "alone.bin"
    binary.write_bytes(words.path.read_bytes())
    with pytest.raises(DecodingError, match="alone.json"):
        find_language_model(binary, letters)
    for text in ("", "hello\n", "\\data\\\n"):
        path = tmp_path / "text.arpa"
        path.write_text(text)
        with pytest.raises(DecodingError, match="not an ARPA file"):
            find_language_model(path, letters)
    (tmp_path / "alone.json").write_text(json.dumps({"unit": "word"}))
    with pytest.raises(DecodingError, match="does not describe"):
        find_language_model(binary, letters)


def test_a_damaged_file_is_one_line(
    words: LanguageModel, letters: SentencePieceProcessor, tmp_path: Path
) -> None:
    from mala_asr.decoding.flashlight import load_kenlm

    for damaged in (
        b"\\data\\\nngram 1=9\n\n\\1-grams:\n-1\tA\n",
        words.path.read_bytes()[:200],
    ):
        path = tmp_path / "cut.bin"
        path.write_bytes(damaged)
        with pytest.raises(DecodingError, match="KenLM cannot read") as error:
            load_kenlm(path, ["A"])
        assert "\n" not in str(error.value)


def test_a_broken_arpa_file_makes_no_binary(tmp_path: Path) -> None:
    from mala_asr.decoding.kenlm_binary import write_binary

    broken = tmp_path / "broken.arpa"
    broken.write_text("\\data\\\nngram 1=9\n\n\\1-grams:\n-1\tA\n")
    with pytest.raises(DecodingError, match="cannot make a binary"):
        write_binary(broken, tmp_path / "broken.bin")
    assert not (tmp_path / "broken.bin").exists()


@pytest.mark.parametrize(
    "texts, order, message",
    [
        (TEXTS, 1, "give 2 to 6"),
        (TEXTS, 7, "give 2 to 6"),
        (["", " "], 2, "no"),
    ],
)
def test_what_cannot_be_estimated(
    tmp_path: Path, texts: list[str], order: int, message: str
) -> None:
    with pytest.raises(DecodingError, match=message):
        train_language_model(texts, tmp_path, "word", order)


@pytest.mark.parametrize(
    "library", ["kaldingram.train", "flashlight.lib.text.decoder.kenlm"]
)
def test_a_missing_library_is_named(
    words: LanguageModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    library: str,
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DecodingError, match=r'pip install "mala_asr\[lm\]"'):
        train_language_model(TEXTS, tmp_path, "word", 2)
        perplexity(words, TEXTS)
