"""Files in, text out."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from mala_asr.data.audio import AudioError
from mala_asr.data.manifest import Utterance
from mala_asr.decoding import DecodingOptions
from mala_asr.decoding.errors import DecodingError
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.devices import DeviceError
from mala_asr.inference.model_folder import (
    ModelFolderError,
    save_model_folder,
)
from mala_asr.inference.transcriber import Transcriber
from mala_asr.inference.transcript import Recording
from mala_asr.training.evaluate import evaluate_set
from tests.decoders import EVERY_DECODER
from tests.tones import ToneModel, texts, tones


def write(path: Path, text: str, rate: int = 16000, channels: int = 1) -> str:
    wave = tones(text, rate).numpy()
    soundfile.write(path, np.stack([wave] * channels, axis=1), rate)
    return str(path)


@pytest.fixture(scope="module")
def transcriber(tone_folder: Path) -> Transcriber:
    return Transcriber(tone_folder, device="cpu", batch_size=4)


def test_the_words_in_the_order_given(
    transcriber: Transcriber, tmp_path: Path
) -> None:
    said = texts(11, seed=2000)
    assert sorted(said, key=len) != said
    paths = [
        write(tmp_path / f"{number}.wav", text)
        for number, text in enumerate(said)
    ]
    found = list(transcriber.transcribe(paths))
    assert [transcript.text for transcript in found] == said
    assert [transcript.path for transcript in found] == paths
    for transcript in found:
        assert transcript.duration == soundfile.info(transcript.path).duration
        (segment,) = transcript.segments
        assert segment.end == transcript.duration
        assert segment.hypothesis.text == transcript.text


@pytest.mark.parametrize("decoder", EVERY_DECODER)
def test_same_words_as_the_evaluation(
    tone_model: ToneModel, tone_folder: Path, tmp_path: Path, decoder: str
) -> None:
    # Played too slow, so that the words are the model's own.
    utterances = []
    for number, text in enumerate(texts(8, seed=2001)):
        path = tmp_path / f"{number}.flac"
        soundfile.write(path, tones(text).numpy(), 13000)
        seconds = soundfile.info(path).duration
        utterances.append(Utterance(str(number), seconds, str(path), "a", text))
    report = evaluate_set(
        Recognizer(*tone_model[:2], DecodingOptions(decoder)),
        utterances,
        batch_seconds=5.0,
        progress=False,
    )
    assert report.wer > 20.0
    reader = Transcriber(tone_folder, "cpu", {"decoder": decoder}, 3)
    found = reader.transcribe([u.wav for u in utterances])
    heard = [transcript.text for transcript in found]
    assert heard == [" ".join(u.hypothesis) for u in report.utterances]
    assert len(set(heard)) > 4


@pytest.mark.parametrize("batch_size", [1, 3])
def test_text_does_not_depend_on_the_batch(
    tone_folder: Path, tmp_path: Path, batch_size: int
) -> None:
    said = ["A", "BD CAB", "DD", "ABC D BB", "C"]
    paths = [write(tmp_path / f"{text}.wav", text) for text in said]
    reader = Transcriber(tone_folder, device="cpu", batch_size=batch_size)
    assert [t.text for t in reader.transcribe(paths)] == said


def test_any_rate_and_channels(
    transcriber: Transcriber, tmp_path: Path
) -> None:
    paths = [
        write(tmp_path / "a.wav", "AB D", rate=8000),
        write(tmp_path / "b.flac", "BA", rate=44100, channels=2),
        write(tmp_path / "c.ogg", "DC", rate=48000, channels=1),
    ]
    found = [t.text for t in transcriber.transcribe(paths)]
    assert found == ["AB D", "BA", "DC"]


def test_a_bad_file_does_not_stop_the_others(
    transcriber: Transcriber, tmp_path: Path
) -> None:
    good = [write(tmp_path / f"{t}.wav", t) for t in ("AB", "CD A", "B")]
    text, empty, cut, nan = (
        tmp_path / name
        for name in ("text.wav", "empty.wav", "cut.flac", "n.wav")
    )
    text.write_text("not audio")
    empty.touch()
    write(cut, "AB CD")
    cut.write_bytes(cut.read_bytes()[:-3000])
    soundfile.write(nan, np.full(8000, np.nan), 16000, subtype="FLOAT")
    missing = tmp_path / "missing.wav"
    paths = [text, good[0], cut, empty, good[1], missing, nan, good[2]]
    bad: list[str] = []

    def report(recording: Recording, error: AudioError) -> None:
        assert recording.path in str(error)
        assert "\n" not in str(error)
        bad.append(recording.path)

    found = list(transcriber.transcribe(paths, report))
    assert [t.text for t in found] == ["AB", "CD A", "B"]
    assert [t.path for t in found] == good
    assert set(bad) == set(map(str, (text, empty, cut, nan, missing)))


def test_without_a_listener_an_error_is_raised(
    transcriber: Transcriber, tmp_path: Path
) -> None:
    with pytest.raises(AudioError, match="missing.wav"):
        list(transcriber.transcribe([tmp_path / "missing.wav"]))


def test_same_name_in_two_folders(
    transcriber: Transcriber, tmp_path: Path
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    paths = [
        write(tmp_path / "one" / "a.wav", "AB"),
        write(tmp_path / "two" / "a.wav", "CD"),
    ]
    twice = [*paths, paths[0]]
    found = [t.text for t in transcriber.transcribe(twice)]
    assert found == ["AB", "CD", "AB"]


def test_one_path_alone(transcriber: Transcriber, tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", "CAB")
    for given in (path, Path(path)):
        assert [t.text for t in transcriber.transcribe(given)] == ["CAB"]


def test_hardly_any_audio(transcriber: Transcriber, tmp_path: Path) -> None:
    paths = []
    for samples in (1, 80, 400):
        path = tmp_path / f"{samples}.wav"
        soundfile.write(path, np.zeros(samples), 16000)
        paths.append(path)
    assert len(list(transcriber.transcribe(paths))) == 3


def test_results_come_while_files_are_still_waiting(
    transcriber: Transcriber, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.wav", "A")
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield path

    assert next(transcriber.transcribe(endless())).text == "A"
    assert taken < 1000


def test_the_decoder_can_be_chosen(tone_folder: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", "AB C")
    scores = {}
    for decoder, beam_size in (
        (None, None),
        ("ctc_greedy", None),
        ("joint", 1),
        ("joint", 5),
    ):
        decoding = {"decoder": decoder, "beam_size": beam_size}
        reader = Transcriber(tone_folder, "cpu", decoding)
        (found,) = reader.transcribe(path)
        scores[decoder, beam_size] = found.segments[0].hypothesis.score
        if decoder != "joint":
            assert found.text == "AB C"
    assert scores[None, None] == scores["ctc_greedy", None]
    assert scores["joint", 5] != scores["ctc_greedy", None]


@pytest.mark.parametrize(
    "decoding", [[1], {"lm_wait": 0.5}, {"decoder": "rnnt"}]
)
def test_a_decoding_of_another_version(
    tone_model: ToneModel, tmp_path: Path, decoding: object
) -> None:
    folder = save_model_folder(
        tmp_path / "m",
        tone_model.model,
        tone_model.tokenizer_path,
        facts={"decoding": decoding},
    )
    with pytest.raises(ModelFolderError, match="upgrade mala_asr"):
        Transcriber(folder, device="cpu")


def test_long_files_are_not_put_together(
    transcriber: Transcriber, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write(tmp_path / f"{n}.wav", "ABAB") for n in range(3)]
    recognize, sizes = transcriber.recognizer.waves, []

    def counting(waves: list) -> list:
        sizes.append(len(waves))
        return recognize(waves)

    monkeypatch.setattr(transcriber.recognizer, "waves", counting)
    list(transcriber.transcribe(paths))
    seconds = 2.5 * len(tones("ABAB")) / 16000
    monkeypatch.setattr(
        "mala_asr.inference.transcriber.MAX_BATCH_SECONDS", seconds
    )
    list(transcriber.transcribe(paths))
    assert sizes == [3, 2, 1]


def test_refusals(tone_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match="no model folder at"):
        Transcriber(tmp_path / "hub/name")
    with pytest.raises(DeviceError, match="'warp' is not available"):
        Transcriber(tone_folder, device="warp")
    with pytest.raises(DeviceError, match="'meta' is not available"):
        Transcriber(tone_folder, device="meta")
    with pytest.raises(DecodingError, match="unknown decoder"):
        Transcriber(tone_folder, "cpu", {"decoder": "magic"})
    with pytest.raises(DecodingError, match="ctc_greedy has no beam_size"):
        Transcriber(tone_folder, "cpu", {"beam_size": 3})
    with pytest.raises(DecodingError, match="did you mean beam_size"):
        Transcriber(tone_folder, "cpu", {"beamsize": 3})
