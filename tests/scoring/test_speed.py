"""Scoring 100,000 utterances takes no more than half a minute."""

import random
import time
from pathlib import Path

import pytest

from mala_asr.cli.main import main

UTTERANCES = 100_000
WORDS = 15


@pytest.mark.slow
def test_a_hundred_thousand_utterances(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(1)
    words = [
        "".join(rng.choices("etaoinshrdlu", k=rng.randint(1, 9)))
        for _ in range(5000)
    ]
    with (
        open(tmp_path / "ref", "w") as ref,
        open(tmp_path / "hyp", "w") as hyp,
    ):
        for number in range(UTTERANCES):
            said = rng.choices(words, k=WORDS)
            heard = [
                word if rng.random() < 0.95 else rng.choice(words)
                for word in said
                if rng.random() < 0.97
            ]
            key = f"{number % 2000}-{number}"
            print(key, *said, file=ref)
            print(key, *heard, file=hyp)
    # Of this process alone: the machine may be busy with others.
    start = time.process_time()
    command = ["score", *map(str, (tmp_path / "ref", tmp_path / "hyp"))]
    assert main([*command, "--per-speaker", "--top", "10"]) == 0
    seconds = time.process_time() - start
    out, err = capsys.readouterr()
    assert f" / {UTTERANCES * WORDS}, " in out.partition("\n")[0]
    assert f"over {UTTERANCES} utterances" in out
    assert "over 2000 speakers" in out
    assert err == "mala-asr: format: kaldi\n"
    assert seconds < 30
