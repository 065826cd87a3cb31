"""A model as a graph gives what the model gives, without the model."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch

from mala_asr.cli.main import main
from mala_asr.inference.engine import Engine
from mala_asr.inference.export import export_model_folder
from mala_asr.inference.graph import (
    TOLERANCE,
    GraphError,
    WaveToLogProbs,
    write_exported_program,
    write_onnx,
)
from mala_asr.inference.model_folder import (
    GRAPHS,
    ModelFolderError,
    load_model_folder,
    save_model_folder,
)
from mala_asr.inference.onnx_model import OnnxError, OnnxModel
from mala_asr.inference.transcriber import Transcriber
from mala_asr.models import MalaASR
from tests.tones import ToneModel, texts, tones

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

EXTRAS = {
    "sharpness": "learned",
    "rotary": True,
    "gate": True,
    "lepe_kernel": 5,
}


@pytest.fixture(scope="module")
def folder(tone_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of tones with every graph, not to be changed."""
    dest = tmp_path_factory.mktemp("graphs") / "tones"
    return export_model_folder(tone_folder, dest, graphs=GRAPHS)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files of several lengths, by what is said in them."""
    place = tmp_path_factory.mktemp("recordings")
    found = {}
    for text in texts(9, seed=77):
        path = place / f"{text.replace(' ', '-')}.wav"
        soundfile.write(path, tones(text).numpy(), 16000)
        found[text] = str(path)
    return found


def alone(script: str, *argv: object) -> Any:
    """Run a script in a process of its own; it prints JSON."""
    command = [sys.executable, "-c", script, *map(str, argv)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["ctc_greedy", "joint"])
@pytest.mark.parametrize("quantize", [None, "int8"])
def test_the_same_words_from_onnx(
    folder: Path, recordings: dict[str, str], decoder: str, quantize: str | None
) -> None:
    engine = Engine("onnx", quantize=quantize)
    reader = Transcriber(
        folder, "auto", {"decoder": decoder}, 4, True, engine=engine
    )
    plain = Transcriber(folder, "cpu", {"decoder": decoder}, 4, True)
    found = list(reader.transcribe(recordings.values()))
    assert [t.text for t in found] == list(recordings)
    for ours, theirs in zip(
        found, plain.transcribe(recordings.values()), strict=True
    ):
        assert ours.text == theirs.text
        assert [w.start for w in ours.words] == [w.start for w in theirs.words]


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="reads memory from /proc"
)
def test_what_a_long_recording_took_is_given_back(folder: Path) -> None:
    script = """
import json, sys
import torch
from pathlib import Path
from mala_asr.inference.onnx_model import OnnxModel

def resident():
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024

model = OnnxModel(Path(sys.argv[1]).read_bytes(), "model.onnx")
wave, length = torch.zeros(1, 16000 * 300), torch.tensor([16000 * 300])
before = resident()
rest = []
for release in (True, False):
    out = model.run(wave, length, release)
    del out
    rest.append(resident() - before)
print(json.dumps(rest))
"""
    released, kept = alone(script, folder / "model.onnx")
    assert kept > 100
    assert released < 0.5 * kept


@pytest.mark.slow
def test_int8_is_smaller_and_not_exact(folder: Path) -> None:
    exact, rounded = folder / "model.onnx", folder / "model.int8.onnx"
    assert rounded.stat().st_size < 0.8 * exact.stat().st_size
    wave = tones("AB CD")[None]
    batch = wave, torch.tensor([wave.shape[1]])
    first, second = (
        OnnxModel(path.read_bytes(), path.name).run(*batch)[0]
        for path in (exact, rounded)
    )
    assert 1e-5 < float((first - second).abs().max()) < 2.0


@pytest.mark.slow
def test_the_file_alone_tells_the_words(
    folder: Path, recordings: dict[str, str]
) -> None:
    script = """
import json, sys
import numpy, onnxruntime, sentencepiece, soundfile
folder, wav = sys.argv[1:]
session = onnxruntime.InferenceSession(folder + "/model.onnx")
facts = session.get_modelmeta().custom_metadata_map
samples, rate = soundfile.read(wav, dtype="float32")
assert rate == int(facts["sample_rate"])
log_probs, lengths, states = session.run(
    None, {"waves": samples[None], "samples": numpy.array([len(samples)])}
)
best = log_probs[0].argmax(-1)
kept = [int(b) for a, b in zip([-1, *best], best) if a != b]
pieces = sentencepiece.SentencePieceProcessor(folder + "/tokenizer.model")
text = pieces.decode([i for i in kept if i != int(facts["blank"])])
assert not {"torch", "mala_asr"} & set(sys.modules)
print(json.dumps([text, facts, int(lengths[0]), len(best)]))
"""
    for said, path in list(recordings.items())[:3]:
        text, facts, length, frames = alone(script, folder, path)
        assert text == said
        assert length == frames
        assert facts["frame_shift"] == "0.04"


@pytest.mark.slow
def test_the_exported_program_needs_torch_alone(
    folder: Path, tone_model: ToneModel, tmp_path: Path
) -> None:
    script = """
import sys, torch
graph = torch.export.load(sys.argv[1]).module()
batch = torch.load(sys.argv[2])
torch.save([x.detach() for x in graph(*batch)], sys.argv[3])
assert "mala_asr" not in sys.modules
print(1)
"""
    waves = [tones("AB CD AB"), tones("D")]
    samples = torch.tensor([len(wave) for wave in waves])
    padded = torch.nn.utils.rnn.pad_sequence(waves, batch_first=True)
    torch.save((padded, samples), tmp_path / "in.pt")
    alone(script, folder / "model.pt2", tmp_path / "in.pt", tmp_path / "out.pt")
    given = torch.load(tmp_path / "out.pt")
    with torch.no_grad():
        wanted = WaveToLogProbs(tone_model.model)(padded, samples)
    assert torch.equal(given[1], wanted[1])
    for row, count in enumerate(wanted[1]):
        torch.testing.assert_close(
            given[0][row, :count],
            wanted[0][row, :count],
            atol=TOLERANCE,
            rtol=0,
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "attention, options, frontend",
    [
        ("mala", EXTRAS, "separable8"),
        ("linear", {"feature_map": "relu"}, "conv4"),
        ("inline", {"feature_map": "exp"}, "separable4"),
        ("softmax_relpos", {}, "conv4"),
        ("hypermixing", {}, "conv4"),
    ],
)
def test_every_attention(
    tmp_path: Path, attention: str, options: dict[str, Any], frontend: str
) -> None:
    torch.manual_seed(0)
    model = MalaASR(
        30,
        frontend=frontend,
        attention=attention,
        attention_options=options,
        d_model=64,
        num_encoder_layers=1,
        d_ffn=64,
        ctc_weight=1.0,
        ctc_upsampling=2,
    ).eval()
    path = tmp_path / "model.onnx"
    write_onnx(model, path)
    # Of other lengths than those that the writer itself compares.
    samples = torch.tensor([40_000, 161, 1, 23_456])
    waves = 0.1 * torch.randn(4, 40_000)
    waves *= torch.arange(40_000) < samples[:, None]
    given = OnnxModel(path.read_bytes(), path.name).run(waves, samples)
    with torch.no_grad():
        wanted = WaveToLogProbs(model)(waves, samples)
    assert torch.equal(given[1], wanted[1])
    for row, count in enumerate(wanted[1]):
        gap = given[0][row, :count] - wanted[0][row, :count]
        assert float(gap.abs().max()) < TOLERANCE


@pytest.mark.slow
def test_what_holds_for_one_length_alone_is_refused(tmp_path: Path) -> None:
    model = MalaASR(
        30,
        attention="softmax_rope",
        d_model=64,
        num_encoder_layers=1,
        d_ffn=64,
        ctc_weight=1.0,
    ).eval()
    with pytest.raises(GraphError, match="attention softmax_rope") as caught:
        write_onnx(model, tmp_path / "model.onnx")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_graph_that_differs_is_refused(
    tone_model: ToneModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mala_asr.inference.graph.TOLERANCE", 0.0)
    with pytest.raises(GraphError, match="off by"):
        write_onnx(tone_model.model, tmp_path / "model.onnx")
    monkeypatch.undo()
    write_exported_program(tone_model.model, tmp_path / "model.pt2")


@pytest.mark.slow
def test_a_model_folder_exported_again_keeps_what_it_had(
    tone_folder: Path, folder: Path
) -> None:
    before = load_model_folder(tone_folder).config
    after = load_model_folder(folder).config
    assert after["decoding"] == before["decoding"]
    assert (folder / "README.md").read_text() == "# tones\n"
    assert set(after["sha256"]) - set(before["sha256"]) == set(GRAPHS)
    again = export_model_folder(folder, folder.parent / "plain")
    assert load_model_folder(again).config["sha256"] == before["sha256"]


def fake_graph(tone_model: ToneModel, dest: Path, content: bytes) -> Path:
    writers = {"model.onnx": lambda _, path: path.write_bytes(content)}
    return save_model_folder(dest, *tone_model[::2], graphs=writers)


@pytest.mark.parametrize("content", [b"", b"not a graph"])
def test_a_graph_that_is_none(
    tone_model: ToneModel, tmp_path: Path, content: bytes
) -> None:
    made = fake_graph(tone_model, tmp_path / "m", content)
    with pytest.raises(OnnxError, match="model.onnx cannot be loaded"):
        Transcriber(made, engine=Engine("onnx"))


def test_a_changed_graph_is_refused(
    tone_model: ToneModel, tmp_path: Path
) -> None:
    made = fake_graph(tone_model, tmp_path / "m", b"some graph")
    (made / "model.onnx").write_bytes(b"same graph")
    with pytest.raises(ModelFolderError, match="model.onnx is damaged or was"):
        Transcriber(made, engine=Engine("onnx"))
    (made / "model.onnx").unlink()
    with pytest.raises(ModelFolderError, match="model.onnx is missing"):
        Transcriber(made, engine=Engine("onnx"))


def test_a_graph_cannot_refer_to_other_files(
    tone_model: ToneModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnx

    secret = tmp_path / "secret"
    secret.write_bytes(bytes(16))
    weight = onnx.TensorProto(name="w", data_type=1, dims=[4])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="secret")
    out = onnx.helper.make_tensor_value_info("log_probs", 1, [4])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["w"], ["log_probs"])],
        "g",
        [],
        [out],
        [weight],
    )
    content = onnx.helper.make_model(graph).SerializeToString()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OnnxError, match="cannot be loaded"):
        OnnxModel(content, "model.onnx")


def test_a_folder_without_a_graph_names_the_option(tone_folder: Path) -> None:
    with pytest.raises(ModelFolderError, match="again with --onnx$"):
        Transcriber(tone_folder, engine=Engine("onnx"))
    with pytest.raises(ModelFolderError, match="--onnx --quantize int8$"):
        Transcriber(tone_folder, engine=Engine("onnx", quantize="int8"))


@pytest.mark.parametrize("library", ["onnxscript", "onnxruntime"])
def test_a_missing_library_names_the_extra(
    tone_folder: Path,
    tmp_path: Path,
    library: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    command = ["export", str(tone_folder), str(tmp_path / "m"), "--onnx"]
    assert main(command) == 1
    err = capsys.readouterr().err
    assert 'pip install "mala_asr[onnx]"' in err
    assert err.count("\n") == 1
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "option, said",
    [
        (["--quantize", "int8"], "--onnx"),
        (["--average", "2"], "--average"),
    ],
)
def test_options_that_change_nothing_are_refused(
    tone_folder: Path,
    tmp_path: Path,
    option: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["export", str(tone_folder), str(tmp_path / "m"), *option]) == 2
    assert said in capsys.readouterr().err
