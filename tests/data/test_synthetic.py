"""The synthetic corpus: what it promises, the same for every run."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from mala_asr.data import synthetic
from mala_asr.data.librispeech import CorpusError, prepare_librispeech
from mala_asr.data.manifest import read_manifest
from mala_asr.data.synthetic import (
    DEV,
    TEST,
    TRAIN,
    make_corpus,
    plan_corpus,
    word_starts,
)

SPLITS = (TRAIN, DEV, TEST)


@pytest.fixture(scope="module")
def plan():
    """The demo's own plan, by split."""
    plan = plan_corpus(minutes=45.0)
    return {
        split: [said for said in plan if said.speaker.split == split]
        for split in SPLITS
    }


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"), minutes=1, workers=1)


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


def test_no_voice_and_no_sentence_is_in_two_splits(plan):
    voices = {s: {said.speaker.voice for said in plan[s]} for s in SPLITS}
    assert len(set().union(*voices.values())) >= 10
    assert sum(map(len, voices.values())) == len(set().union(*voices.values()))
    assert all(len(voices[split]) >= 2 for split in SPLITS)
    sentences = [said.words for split in SPLITS for said in plan[split]]
    assert len(set(sentences)) == len(sentences)


def test_the_words_of_dev_and_test_are_all_trained(plan):
    words = {s: {w for x in plan[s] for w in x.words.split()} for s in SPLITS}
    assert len(words[TRAIN]) >= 300
    assert words[DEV] <= words[TRAIN] and words[TEST] <= words[TRAIN]


def test_a_plan_follows_from_its_seed():
    assert plan_corpus(2, seed=1) == plan_corpus(2, seed=1)
    assert plan_corpus(2, seed=1) != plan_corpus(2, seed=2)


def test_voices_speak_equally_long(plan):
    for split in SPLITS:
        letters: dict[str, int] = {}
        for said in plan[split]:
            speaker = said.speaker.id
            letters[speaker] = letters.get(speaker, 0) + len(said.words)
        assert max(letters.values()) < 1.3 * min(letters.values())


def test_it_has_the_layout_length_and_levels_that_it_promises(corpus, tmp_path):
    manifests = prepare_librispeech(corpus.parent, tmp_path, SPLITS)
    seconds = {}
    for split, manifest in manifests.items():
        said = read_manifest(manifest)
        seconds[split] = sum(utterance.duration for utterance in said)
        for utterance in said:
            assert 2 <= utterance.duration <= 12
            audio, rate = soundfile.read(utterance.wav)
            level = 20 * np.log10(audio.std())
            assert rate == 16000 and audio.ndim == 1
            assert -33 < level < -21 and np.abs(audio).max() < 0.99
            # A room is never digitally silent, and speech is louder.
            edge = 20 * np.log10(audio[:1600].std())
            assert -70 < edge < -50
    assert seconds[TRAIN] > 60
    assert min(seconds[DEV], seconds[TEST]) > 4
    speakers = (corpus / "SPEAKERS.TXT").read_text()
    assert "101 | M | synth-train | en-us" in speakers


def test_any_number_of_processes_makes_the_same_corpus(corpus, tmp_path):
    other = make_corpus(tmp_path, minutes=1, workers=2)
    assert contents(other) == contents(corpus)


def test_an_interrupted_run_goes_on_where_it_stopped(
    corpus, tmp_path, monkeypatch
):
    speak, spoken = synthetic._speak, []

    def interrupted(job):
        if len(spoken) == 5:
            raise KeyboardInterrupt
        spoken.append(job[0])
        speak(job)

    monkeypatch.setattr(synthetic, "_speak", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make_corpus(tmp_path, minutes=1, workers=1)
    kept = {path: os.stat(path).st_mtime_ns for path in spoken}
    monkeypatch.setattr(synthetic, "_speak", speak)
    root = make_corpus(tmp_path, minutes=1, workers=1)
    assert contents(root) == contents(corpus)
    assert kept == {path: os.stat(path).st_mtime_ns for path in spoken}


def test_a_second_run_changes_nothing(corpus):
    before = {p: p.stat().st_mtime_ns for p in corpus.rglob("*")}
    make_corpus(corpus.parent, minutes=1, workers=1)
    assert before == {p: p.stat().st_mtime_ns for p in corpus.rglob("*")}


def test_another_corpus_is_never_mixed_in(corpus, tmp_path):
    with pytest.raises(CorpusError, match="other settings.*another folder"):
        make_corpus(corpus.parent, minutes=1, seed=1)
    (tmp_path / "LibriSpeech" / TRAIN).mkdir(parents=True)
    with pytest.raises(CorpusError, match="did not make"):
        make_corpus(tmp_path, minutes=1)
    (tmp_path / "LibriSpeech" / "synthetic.json").write_text("{")
    with pytest.raises(CorpusError, match="synthetic.json is damaged; delete"):
        make_corpus(tmp_path, minutes=1)
    stamp = json.loads((corpus / "synthetic.json").read_text())
    assert stamp["minutes"] == 1 and stamp["seed"] == 0


def test_no_time_is_refused(tmp_path):
    with pytest.raises(CorpusError, match="positive"):
        make_corpus(tmp_path, minutes=0)


@pytest.mark.parametrize("pitch", [100, 3000])
def test_resampling_keeps_what_both_rates_can_hold(pitch):
    time = np.arange(22050) / 22050
    fade = np.sin(np.pi * time) ** 2
    out = synthetic._resample(
        fade * np.sin(2 * np.pi * pitch * time), 22050, 16000
    )
    assert len(out) == 16000
    time = np.arange(16000) / 16000
    expected = np.sin(np.pi * time) ** 2 * np.sin(2 * np.pi * pitch * time)
    assert np.abs(out - expected).max() < 1e-3


@pytest.mark.slow
def test_ctrl_c_ends_it_and_leaves_whole_files(tmp_path):
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "mala_asr.cli", "synthesize"),
            *(tmp_path, "--minutes", "60", "--workers", "2"),
        ],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal's Ctrl-C reaches the workers too
    )
    while process.poll() is None and not list(tmp_path.rglob("*.flac")):
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.endswith("mala-asr: interrupted\n")
    assert "Traceback" not in err
    assert not list(tmp_path.rglob(".*"))


def test_words_start_where_the_file_has_them(plan, tmp_path):
    said = plan[TEST][0]
    synthetic._speak((tmp_path / "a.flac", said))
    samples, rate = soundfile.read(tmp_path / "a.flac")
    starts = word_starts(said)
    assert len(starts) == len(said.words.split())
    known = [start for start in starts if start is not None]
    assert known == sorted(known) and known[-1] < len(samples) / rate
    first = round(known[0] * rate)
    before, after = samples[:first], samples[first : first + rate // 5]
    assert np.abs(after).max() > 20 * np.abs(before).max()
