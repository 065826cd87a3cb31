"""The grammar is closed, large enough and free of sound-alikes."""

import random
from collections import Counter

from mala_asr.data.grammar import RULES, SentenceSource, vocabulary

# Pairs that a recognizer without a language model cannot tell apart.
SOUND_ALIKES = """
    TO TWO TOO | FOR FOUR | THERE THEIR | SEE SEA | KNOW NO | ONE WON
    | EIGHT ATE | BLUE BLEW | RED READ | HOUR OUR | BUY BY BYE | HERE HEAR
    | RIGHT WRITE | NIGHT KNIGHT | FLOUR FLOWER | MEET MEAT | WEAK WEEK
    | SUN SON | BEAR BARE | DEER DEAR | TAIL TALE | PIECE PEACE | PLAIN PLANE
"""


def test_every_rule_that_is_named_exists_and_is_used():
    named = {
        part
        for options in RULES.values()
        for option in options
        for part in option
        if not part.isupper()
    }
    assert named | {"sentence"} == RULES.keys()


def test_the_vocabulary_is_large_and_all_of_it_is_said():
    assert len(vocabulary()) >= 300
    source = SentenceSource(random.Random(1))
    counts = Counter(" ".join(source.draw() for _ in range(700)).split())
    assert counts.keys() == vocabulary()
    assert min(counts.values()) >= 4


def test_no_two_words_sound_alike():
    for group in SOUND_ALIKES.split("|"):
        assert len(vocabulary().intersection(group.split())) <= 1


def test_sentences_hardly_repeat():
    source = SentenceSource(random.Random(2))
    sentences = [source.draw() for _ in range(1000)]
    assert len(set(sentences)) > 980


def test_the_article_fits_the_next_word():
    source = SentenceSource(random.Random(3))
    for _ in range(2000):
        words = source.draw().split()
        for word, following in zip(words, words[1:], strict=False):
            assert word != "A" or following[0] not in "AEIO", words
