"""A corpus of tones in LibriSpeech's layout, and options for a short run."""

from pathlib import Path

import soundfile

from tests.tones import SAMPLE_RATE, texts, tones

SPLITS = {"tone-train": 24, "tone-dev": 4, "tone-test": 6}

# A training of seconds; the config's other keys stay as they are.
SHORT = {
    "train_splits": "[tone-train]",
    "valid_splits": "[tone-dev]",
    "test_splits": "[tone-test]",
    "token_type": "char",
    "vocab_size": "null",
    "feature_cache": "memory",
    "number_of_epochs": "2",
    "batch_seconds": "8",
    "num_buckets": "2",
    "average_checkpoints": "2",
    "ctc_weight": "0.6",
    "model": (
        "{frontend: conv4, d_model: 64, num_encoder_layers: 1, "
        "num_decoder_layers: 1, d_ffn: 64, kernel_size: 7, n_mels: 40}"
    ),
    "schedule": "{warmup_steps: 4}",
}


def make_tone_corpus(folder: Path) -> Path:
    """Write the corpus; the last test text is too long for its audio."""
    for number, (split, count) in enumerate(SPLITS.items()):
        chapter = folder / split / "1" / "2"
        chapter.mkdir(parents=True)
        said = texts(count, seed=number)
        lines = []
        for index, text in enumerate(said):
            name = f"1-2-{number}{index:03d}"
            samples = tones(text)
            if split == "tone-test" and index == count - 1:
                samples = samples[: SAMPLE_RATE // 20]
            soundfile.write(chapter / f"{name}.flac", samples, SAMPLE_RATE)
            lines.append(f"{name} {text}\n")
        (chapter / "1-2.trans.txt").write_text("".join(lines))
    return folder


def arguments(corpus: Path, output: Path, **changes: str) -> list[str]:
    """The command line of a short run, with keys changed."""
    options = {
        "data_folder": str(corpus),
        "output_folder": str(output),
        "device": "cpu",
        **SHORT,
        **changes,
    }
    return [f"--{key}={value}" for key, value in options.items()]
