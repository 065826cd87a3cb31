"""Manifests survive a round trip and are refused by the name of the fault."""

import pytest

from mala_asr.data.manifest import (
    ManifestError,
    Utterance,
    read_manifest,
    write_manifest,
)

HEADER = "ID,duration,wav,spk_id,wrd"


@pytest.mark.parametrize(
    "utterances",
    [
        [],
        [Utterance("a", 1.25, "/x, y/a.flac", "7", 'SAY "GO", THEN GO')],
        [
            Utterance("a", 1.0, "long.flac", "7", "ÉTÉ", 0.0, 1.0),
            Utterance("b", 0.1 + 0.2, "b.flac", "8", ""),
        ],
    ],
)
def test_round_trip(tmp_path, utterances):
    path = tmp_path / "new" / "set.csv"
    write_manifest(path, utterances)
    assert read_manifest(path) == utterances


def test_it_is_the_csv_that_speechbrain_reads(tmp_path):
    from speechbrain.dataio.dataio import load_data_csv

    path = tmp_path / "set.csv"
    write_manifest(path, [Utterance("a", 1.5, "a.flac", "7", "GO ON")])
    data = load_data_csv(path)
    assert data["a"]["duration"] == 1.5 and data["a"]["wrd"] == "GO ON"


def test_columns_may_be_more_and_in_another_order(tmp_path):
    path = tmp_path / "set.csv"
    path.write_text("wrd,sex,ID,spk_id,wav,duration\nGO,F,a,7,a.flac,2\n")
    assert read_manifest(path) == [Utterance("a", 2.0, "a.flac", "7", "GO")]


@pytest.mark.parametrize(
    "text, fault",
    [
        ("", "no column ID, duration, wav, spk_id, wrd"),
        ("ID,wav,wrd\n", "no column duration, spk_id"),
        (f"{HEADER}\na,1,a.flac,7,GO\na,1,b.flac,7,GO\n", "'a' appears twice"),
        (f"{HEADER}\na,1,a.flac,7,GO\nb,long,b.flac,7,GO\n", "line 3.*'long'"),
        (f"{HEADER}\na,nan,a.flac,7,GO\n", "duration is 'nan'"),
        (f"{HEADER}\na,,a.flac,7,GO\n", "duration is empty"),
        (f"{HEADER}\na,1,a.flac\n", "line 2: no value for spk_id, wrd"),
        (f'{HEADER}\na,1,"a.flac,7,GO\n', "not a CSV"),
    ],
)
def test_a_fault_is_named(tmp_path, text, fault):
    path = tmp_path / "set.csv"
    path.write_text(text)
    with pytest.raises(ManifestError, match=fault) as caught:
        read_manifest(path)
    assert "set.csv" in str(caught.value) and "\n" not in str(caught.value)


def test_missing_and_binary_files_are_refused(tmp_path):
    with pytest.raises(ManifestError, match="No such file"):
        read_manifest(tmp_path / "none.csv")
    (tmp_path / "set.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(ManifestError, match="UTF-8"):
        read_manifest(tmp_path / "set.csv")


def test_a_duplicate_is_not_written_and_the_old_file_stays(tmp_path):
    path = tmp_path / "set.csv"
    said = Utterance("a", 1.0, "a.flac", "7", "GO")
    write_manifest(path, [said])
    with pytest.raises(ManifestError, match="'a' appears twice"):
        write_manifest(path, [said, said])
    assert read_manifest(path) == [said]
