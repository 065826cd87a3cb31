"""References and hypotheses made up at random."""

import random

WORDS = "a i the cat dog über 日本 cat's sat mat on of".split()


def random_pairs(
    count: int, seed: int, speakers: int = 1
) -> tuple[dict[str, str], dict[str, str]]:
    """Sentences and copies of them with words changed, dropped and added."""
    rng = random.Random(seed)
    references, hypotheses = {}, {}
    for number in range(count):
        said = rng.choices(WORDS, k=rng.randrange(0, 12))
        key = f"spk{number % speakers}-{number}"
        references[key] = " ".join(said)
        hypotheses[key] = " ".join(misheard(said, rng))
    return references, hypotheses


def misheard(said: list[str], rng: random.Random) -> list[str]:
    """A sentence as a poor recognizer would hear it."""
    heard = []
    for word in said:
        kind = rng.random()
        if kind < 0.7:
            heard.append(word)
        elif kind < 0.85:
            heard.append(rng.choice(WORDS))
        if rng.random() < 0.1:
            heard.append(rng.choice(WORDS))
    return heard
