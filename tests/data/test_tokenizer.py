"""Tokenizers fit the corpus and the model, or are refused with a size."""

import pytest

from mala_asr.data.manifest import Utterance, write_manifest
from mala_asr.data.tokenizer import (
    TokenizerError,
    check_vocabulary,
    load_tokenizer,
    read_texts,
    train_tokenizer,
)

TEXTS = [
    "THE OLD FARMER OPENED THE WOODEN DOOR",
    "A YOUNG DOCTOR FOLLOWED THE FARMER",
    "IT'S THE DOOR OF THE OLD DOCTOR",
]


@pytest.mark.parametrize(
    "kind, size", [("char", None), ("unigram", 32), ("bpe", 60)]
)
def test_every_kind_gives_the_text_back(tmp_path, kind, size):
    tokenizer = load_tokenizer(train_tokenizer(TEXTS, tmp_path, size, kind))
    assert [tokenizer.id_to_piece(i) for i in range(4)] == [
        "<blank>",
        "<s>",
        "</s>",
        "<unk>",
    ]
    assert size is None or tokenizer.get_piece_size() == size
    unseen = "THE YOUNG FARMER'S FOE"
    for text in [*TEXTS, unseen]:
        ids = tokenizer.encode(text)
        assert min(ids) > 3 and tokenizer.decode(ids) == text


@pytest.mark.parametrize("kind", ["char", "unigram", "bpe"])
def test_too_large_a_vocabulary_names_one_that_works(tmp_path, kind):
    with pytest.raises(TokenizerError, match=r"give (\d+) or less") as caught:
        train_tokenizer(TEXTS, tmp_path, 5000, kind)
    assert not list(tmp_path.iterdir())
    size = int(str(caught.value).split()[-3])
    path = train_tokenizer(TEXTS, tmp_path, size, kind)
    assert load_tokenizer(path).get_piece_size() == size


@pytest.mark.parametrize("kind", ["char", "unigram", "bpe"])
def test_too_small_a_vocabulary_names_the_least(tmp_path, kind):
    with pytest.raises(TokenizerError, match=r"at least (\d+)") as caught:
        train_tokenizer(TEXTS, tmp_path, 10, kind)
    least = int(str(caught.value).split()[-1])
    path = train_tokenizer(TEXTS, tmp_path, least, kind)
    assert load_tokenizer(path).get_piece_size() == least


def test_no_line_is_left_out_for_its_length(tmp_path):
    texts = ["AB " * 5000 + "Z"]
    tokenizer = load_tokenizer(train_tokenizer(texts, tmp_path, kind="char"))
    assert tokenizer.piece_to_id("Z") != tokenizer.unk_id()


@pytest.mark.parametrize(
    "texts, size, kind, fault",
    [
        ([], None, "char", "no text"),
        (["  "], None, "char", "no text"),
        (TEXTS, None, "bpe", "needs a vocabulary size"),
        (TEXTS, 30, "word", "no tokenizer of kind 'word'"),
        (["A <unk> B"], None, "char", "does not give back.*<unk>"),
    ],
)
def test_what_cannot_be_trained_is_refused(tmp_path, texts, size, kind, fault):
    with pytest.raises(TokenizerError, match=fault):
        train_tokenizer(texts, tmp_path, size, kind)
    assert not list(tmp_path.iterdir())


def test_it_is_trained_again_only_when_something_changed(tmp_path):
    path = train_tokenizer(TEXTS, tmp_path, 32)
    first, time = path.read_bytes(), path.stat().st_mtime_ns
    train_tokenizer(iter(TEXTS), tmp_path, 32)
    assert path.stat().st_mtime_ns == time
    path.write_bytes(b"damaged")
    train_tokenizer(TEXTS, tmp_path, 32)
    assert path.read_bytes() == first
    for texts, size in [(TEXTS, 31), (TEXTS + ["MORE"], 32)]:
        before = path.read_bytes()
        train_tokenizer(texts, tmp_path, size)
        assert path.read_bytes() != before


def test_texts_come_from_manifests_and_plain_files(tmp_path):
    said = [Utterance("a", 1.0, "a.flac", "7", "GO ON")]
    write_manifest(tmp_path / "a.csv", said)
    (tmp_path / "a.txt").write_text("ONE\nTWO\n")
    assert read_texts(tmp_path / "a.csv") == ["GO ON"]
    assert read_texts(tmp_path / "a.txt") == ["ONE", "TWO"]
    with pytest.raises(TokenizerError, match="none.txt"):
        read_texts(tmp_path / "none.txt")


def test_a_tokenizer_of_another_size_than_the_model_is_refused(tmp_path):
    tokenizer = load_tokenizer(train_tokenizer(TEXTS, tmp_path, 32))
    check_vocabulary(tokenizer, 32)
    with pytest.raises(TokenizerError, match="32 pieces, the model 31"):
        check_vocabulary(tokenizer, 31)


def test_files_that_are_no_tokenizer_of_ours_are_refused(tmp_path):
    import sentencepiece

    with pytest.raises(TokenizerError, match="no such tokenizer"):
        load_tokenizer(tmp_path / "none.model")
    for content in (b"", b"not a model"):
        (tmp_path / "bad.model").write_bytes(content)
        with pytest.raises(TokenizerError, match="not a SentencePiece model"):
            load_tokenizer(tmp_path / "bad.model")
    with open(tmp_path / "stock.model", "wb") as stream:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXTS),
            model_writer=stream,
            model_type="char",
            vocab_size=20,
            hard_vocab_limit=False,
            minloglevel=2,
        )
    with pytest.raises(TokenizerError, match="a model needs <blank>"):
        load_tokenizer(tmp_path / "stock.model")


def test_special_pieces_that_are_not_marked_as_such(tmp_path):
    path = train_tokenizer(TEXTS, tmp_path, kind="char")
    data = path.read_bytes()
    # The pieces come first, and then what each of them is for.
    assert data.count(b"<blank>") == 2
    last = data.rindex(b"<blank>")
    path.write_bytes(data[:last] + b"<blonk>" + data[last + 7 :])
    with pytest.raises(TokenizerError, match="special ids"):
        load_tokenizer(path)


def test_pieces_that_are_no_text(tmp_path):
    path = train_tokenizer(TEXTS, tmp_path, kind="char")
    data = path.read_bytes()
    assert b"\n\x01W" in data
    path.write_bytes(data.replace(b"\n\x01W", b"\n\x01\xff", 1))
    with pytest.raises(TokenizerError, match="not a SentencePiece model"):
        load_tokenizer(path)
