"""Faster encoders: the same words, and each choice has its effect."""

from pathlib import Path

import pytest
import torch

from mala_asr.cli.main import main
from mala_asr.devices import DeviceError
from mala_asr.errors import UsageError
from mala_asr.inference.engine import Engine
from mala_asr.inference.engines import CompileError
from mala_asr.inference.transcriber import Transcriber
from tests.tones import texts, tones

ROUNDED = [
    Engine(dtype="bfloat16"),
    Engine(dtype="float16"),
    Engine(quantize="int8"),
]
SAID = texts(8, seed=78)


def states(transcriber: Transcriber) -> torch.Tensor:
    return transcriber.recognizer.encode([tones(SAID[0])]).states


@pytest.mark.parametrize("decoder", ["ctc_greedy", "joint"])
@pytest.mark.parametrize("engine", ROUNDED, ids=str)
def test_rounded_yet_the_same_words(
    tone_folder: Path, engine: Engine, decoder: str
) -> None:
    options = {"decoder": decoder}
    plain = Transcriber(tone_folder, "cpu", options)
    rounded = Transcriber(tone_folder, "cpu", options, engine=engine)
    waves = [tones(text) for text in SAID]
    found = rounded.recognizer.waves(waves)
    assert [one.text for one in found] == SAID
    assert states(rounded).dtype == torch.float32
    gap = float((states(plain) - states(rounded)).abs().max())
    assert 1e-4 < gap < 0.5


@pytest.mark.parametrize("engine", ROUNDED, ids=str)
def test_long_recordings_are_rounded_as_well(
    tone_folder: Path, engine: Engine
) -> None:
    plain = Transcriber(tone_folder, "cpu").recognizer
    rounded = Transcriber(tone_folder, "cpu", engine=engine).recognizer
    wave = torch.cat([tones(text) for text in SAID * 3])
    exact, found = plain.encode_long(wave), rounded.encode_long(wave)
    assert found.states.dtype == torch.float32
    gap = float((exact.states - found.states).abs().max())
    assert 1e-4 < gap < 0.5
    (first,), (second,) = plain.decode(exact), rounded.decode(found)
    assert first.text == second.text


@pytest.mark.slow
def test_compiled(tone_folder: Path) -> None:
    plain = Transcriber(tone_folder, "cpu")
    compiled = Transcriber(tone_folder, "cpu", engine=Engine(compile=True))
    layer = compiled.recognizer.model.transformer.encoder.layers[0]
    assert layer.ffn_module1._compiled_call_impl is not None
    waves = [tones(text) for text in SAID]
    found = compiled.recognizer.waves(waves)
    assert [one.text for one in found] == SAID
    torch.testing.assert_close(
        states(plain), states(compiled), atol=1e-4, rtol=0
    )
    called = []
    run = layer.ffn_module1._compiled_call_impl
    layer.ffn_module1._compiled_call_impl = lambda *x: called.append(1) or run(
        *x
    )
    stream = compiled.stream()
    stream.push(waves[0])
    stream.finish()
    assert called


@pytest.mark.slow
def test_without_a_compiler(
    tone_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import config

    torch._dynamo.reset()
    monkeypatch.setattr(config.cpp, "cxx", (None, "no-such-compiler"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with pytest.raises(CompileError, match=r"C\+\+ compiler") as caught:
        Transcriber(tone_folder, "cpu", engine=Engine(compile=True))
    assert "\n" not in str(caught.value)
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "choices, said",
    [
        ({"backend": "tensorflow"}, "choose from torch, onnx"),
        ({"dtype": "int4"}, "choose from float32"),
        ({"quantize": "int4"}, "choose from int8"),
        ({"backend": "onnx", "dtype": "bfloat16"}, "leave out dtype"),
        ({"backend": "onnx", "compile": True}, "leave out dtype and compile"),
        ({"quantize": "int8", "dtype": "bfloat16"}, "give one of them"),
        ({"quantize": "int8", "compile": True}, "give one of them"),
    ],
)
def test_choices_that_do_not_go_together(choices: dict, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Engine(**choices)


@pytest.mark.parametrize(
    "engine", [Engine("onnx"), Engine(quantize="int8")], ids=str
)
def test_a_device_that_cannot(tone_folder: Path, engine: Engine) -> None:
    with pytest.raises(DeviceError):
        Transcriber(tone_folder, "cuda", engine=engine)


def test_the_command_takes_the_choices(
    tone_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import soundfile

    path = tmp_path / "a.wav"
    soundfile.write(path, tones("AB").numpy(), 16000)
    built: list[Engine] = []
    monkeypatch.setattr(
        "mala_asr.inference.transcriber.build_recognizer",
        lambda *given: built.append(given[-1]) or (_ for _ in ()).throw(Stop),
    )
    command = ["transcribe", "--model", str(tone_folder), str(path)]
    for options in (
        ["--backend", "onnx", "--quantize", "int8"],
        ["--dtype", "bfloat16", "--compile"],
    ):
        with pytest.raises(Stop):
            main([*command, *options])
    assert built == [
        Engine("onnx", quantize="int8"),
        Engine(dtype="bfloat16", compile=True),
    ]
    assert main([*command, "--backend", "onnx", "--compile"]) == 2


class Stop(BaseException):
    """Ends a run whose arguments were read."""
