"""Model folders and audio files in, figures out."""

import base64
import html
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch

from mala_asr.data.audio import AudioError, read_audio
from mala_asr.inference.inspection import (
    Inspection,
    InspectionError,
    inspect_files,
)
from mala_asr.inference.inspection_page import write_files, write_page
from mala_asr.inference.inspection_report import (
    MEANINGS,
    SCALING_MEANINGS,
    inspection_record,
    summarize,
    table_rows,
    table_text,
)
from mala_asr.inference.model_folder import (
    load_model_folder,
    save_model_folder,
)
from mala_asr.models import MalaASR
from mala_asr.models.attention import ModelOptionError
from mala_asr.models.inspection import inspect_encoder
from tests.tones import ToneModel, tones

READINGS = ["linear", "softmax"]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("recordings")
    paths = [str(folder / f"{name}.flac") for name in ("AB CD", "D")]
    for path in paths:
        soundfile.write(path, tones(Path(path).stem).numpy(), 16000)
    return paths


@pytest.fixture(scope="module")
def inspection(tone_folder: Path, recordings: list[str]) -> Inspection:
    return inspect_files(
        [tone_folder], recordings, READINGS, untrained_seed=3, device="cpu"
    )


def test_every_model_and_reading_is_there(
    inspection: Inspection, tone_folder: Path, recordings: list[str]
) -> None:
    untrained = f"{tone_folder}, untrained (seed 3)"
    assert [(m.model, m.attention, m.is_own) for m in inspection.models] == [
        (str(tone_folder), "mala", True),
        (str(tone_folder), "linear", False),
        (str(tone_folder), "softmax", False),
        (untrained, "mala", True),
        (untrained, "linear", False),
        (untrained, "softmax", False),
    ]
    assert list(inspection.seconds) == recordings
    assert inspection.seconds[recordings[1]] == pytest.approx(
        soundfile.info(recordings[1]).duration
    )


def test_figures_are_those_of_the_model_alone(
    inspection: Inspection, tone_folder: Path, recordings: list[str]
) -> None:
    model = load_model_folder(tone_folder).model
    parts = []
    for path in recordings:
        wave = read_audio(path)
        feats, n_frames = model.features(wave[None], torch.tensor([len(wave)]))
        parts.append(inspect_encoder(model, feats, n_frames)[0].figures)
    expected = parts[0].pool(parts[1])
    got = inspection.models[0].layers[0]
    assert torch.equal(got.smallest, expected.smallest)
    assert torch.equal(got.log_scaled_ratio, expected.log_scaled_ratio)


def test_the_untrained_model_is_of_its_seed(
    tone_folder: Path, recordings: list[str]
) -> None:
    def smallest(seed: int, callers: int) -> tuple[torch.Tensor, float]:
        torch.manual_seed(callers)
        found = inspect_files(
            [tone_folder], recordings[:1], (), seed, device="cpu"
        )
        return found.models[1].layers[0].smallest, float(torch.rand(()))

    (one, first), (same, _), (other, third) = (
        smallest(3, 100),
        smallest(3, 101),
        smallest(4, 100),
    )
    assert torch.equal(one, same) and not torch.equal(one, other)
    # What the caller draws next does not depend on it.
    assert first == third


def test_some_queries_alone_have_their_scores_formed(
    tone_folder: Path, recordings: list[str]
) -> None:
    found = inspect_files(
        [tone_folder], recordings, max_queries=5, device="cpu"
    )
    layer = found.models[0].layers[0]
    assert layer.smallest.shape == (4, 5 * len(recordings))
    assert layer.z.shape[1] > layer.smallest.shape[1]


def test_a_bad_file_is_reported_and_the_rest_go_on(
    tone_folder: Path, recordings: list[str], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.wav"
    bad.write_text("not audio")
    failed: list[str] = []

    def report(path: str, error: AudioError) -> None:
        failed.append(path)

    paths = [bad, recordings[0]]
    found = inspect_files([tone_folder], paths, device="cpu", on_error=report)
    assert failed == [str(bad)] and list(found.seconds) == [recordings[0]]
    with pytest.raises(AudioError, match="not audio"):
        inspect_files([tone_folder], paths, device="cpu")
    with pytest.raises(InspectionError, match="no recording"):
        inspect_files([tone_folder], [bad], device="cpu", on_error=report)


def test_a_model_without_scores_is_refused_before_any_audio(
    tone_model: ToneModel, tmp_path: Path
) -> None:
    config = {**tone_model.model.config, "attention": "hypermixing"}
    folder = save_model_folder(
        tmp_path / "mixing", MalaASR(**config), tone_model.tokenizer_path
    )
    with pytest.raises(ModelOptionError, match="no attention scores"):
        inspect_files([folder], ["no-such-file.wav"], device="cpu")


def test_a_summary_is_of_the_values(inspection: Inspection) -> None:
    figures = inspection.models[0].layers[0]
    summary = summarize(figures)
    for name in MEANINGS:
        values = getattr(figures, name)
        found = summary[name]
        assert found["min"] == float(values.min())
        assert found["max"] == float(values.max())
        assert found["mean"] == pytest.approx(float(values.mean()))
        below = (values < found["median"]).double().mean()
        above = (values > found["median"]).double().mean()
        assert below <= 0.5 and above <= 0.5
        order = ["min", "p05", "p25", "median", "p75", "p95", "max"]
        ranked = [found[quantile] for quantile in order]
        assert ranked == sorted(ranked)
    for number, at in enumerate(summary["scaling"]):
        assert set(at) == set(SCALING_MEANINGS)
        factor = figures.factors[number]
        positive = (figures.largest_factor > factor).double().mean()
        assert at["positive_rows"] == pytest.approx(float(positive))
    rising = [at["rising_pairs"] for at in summary["scaling"]]
    assert rising[0] == 0 and rising[1:] == sorted(rising[1:], reverse=True)
    assert summary["scaling"][2]["growth"] == pytest.approx(
        math.log(summary["scaling"][2]["scaled_ratio"])
        / math.log(summary["scaling"][2]["ratio"])
    )


def test_linear_and_softmax_bound_the_growth(inspection: Inspection) -> None:
    _, linear, softmax = (
        summarize(found.whole)["scaling"] for found in inspection.models[:3]
    )
    for at in linear:
        assert at["growth"] == pytest.approx(1) and at["rising_pairs"] == 0
    for at in softmax:
        assert at["growth"] == pytest.approx(at["factor"])
        assert at["rising_pairs"] == (at["factor"] > 1)
    assert inspection.models[2].whole.z.numel() == 0


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        items = value.values() if isinstance(value, dict) else value
        for item in items:
            yield from leaves(item)
    else:
        yield value


def test_the_record_holds_every_layer_and_head(inspection: Inspection) -> None:
    record = inspection_record(inspection)
    assert [len(r) for r in (record["recordings"], record["models"])] == [2, 6]
    first = record["models"][0]
    assert first["attention"] == "mala" and len(first["layers"]) == 1
    layer = first["layers"][0]
    assert len(layer["heads"]) == 4
    # One layer: the model is that layer, and the layer is its heads.
    assert layer["all"] == first["all"]
    shares = [head["nonpositive_share"]["mean"] for head in layer["heads"]]
    assert sum(shares) / 4 == pytest.approx(
        layer["all"]["nonpositive_share"]["mean"]
    )
    softmax = record["models"][2]["all"]
    assert softmax["z"] is None and softmax["largest_factor"]["min"] is None
    numbers = [x for x in leaves(record) if isinstance(x, float)]
    assert all(map(math.isfinite, numbers)) and len(numbers) > 1000


@pytest.mark.parametrize("by, rows", [("model", 1), ("layer", 2), ("head", 6)])
def test_the_table_has_a_row_for_each(
    inspection: Inspection, by: str, rows: int
) -> None:
    head, *body = table_rows(inspection, by)
    assert len(body) == 6 * rows
    assert all(len(row) == len(head) for row in body)
    cells = dict(zip(head, body[rows - 1], strict=True))
    whole = summarize(inspection.models[0].whole)
    share = 100 * whole["nonpositive_share"]["mean"]
    assert cells["A <= 0"] == f"{share:.1f} %"
    rising = 100 * whole["scaling"][1]["rising_pairs"]
    assert cells["p_m > p at 1.5"] == f"{rising:.1f} %"
    softmax = dict(zip(head, body[3 * rows - 1], strict=True))
    assert softmax["attention"] == "as softmax"
    assert softmax["z"] == "–" and softmax["a*"] == "none"
    lines = table_text(inspection, by).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert len(lines) == len(body) + 2


def test_files_and_page(inspection: Inspection, tmp_path: Path) -> None:
    written = write_files(tmp_path / "new", inspection)
    assert sorted(path.name for path in written) == [
        "concentration.png",
        "inspection.json",
        "magnitudes.png",
        "positivity.png",
    ]
    assert sorted((tmp_path / "new").iterdir()) == sorted(written)
    record = json.loads(written[0].read_text(encoding="utf-8"))
    assert record == inspection_record(inspection)
    pictures = [path.read_bytes() for path in written[1:]]
    assert all(picture.startswith(PNG) for picture in pictures)

    page = tmp_path / "page.html"
    write_page(page, inspection, "<model> & co")
    text = page.read_text(encoding="utf-8")
    assert "<h1>&lt;model&gt; &amp; co</h1>" in text
    # Nothing is loaded from anywhere, and nothing runs.
    embedded = re.findall(r'src="data:image/png;base64,([^"]+)"', text)
    assert [base64.b64decode(data) for data in embedded] == pictures
    assert len(re.findall(r"\b(?:src|href)=", text)) == len(embedded)
    assert "<script" not in text
    for row in table_rows(inspection, "head"):
        assert all(f">{html.escape(cell)}<" in text for cell in row)
