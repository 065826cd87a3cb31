"""Packaging of mala_asr."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent


def version() -> str:
    """Read the version where the package itself keeps it."""
    source = (ROOT / "mala_asr" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    if found is None:
        raise RuntimeError("mala_asr/__init__.py states no __version__")
    return found.group(1)


DEMO = ["espeakng-loader>=0.2.4"]
# Whisper's normalizer of English text, for scoring.
ENGLISH = ["whisper-normalizer>=0.1.12"]
# Beam search over CTC with n-gram language models. flashlight-text, which
# brings KenLM along, has no wheels beyond Python 3.12.
LM = [
    'flashlight-text>=0.0.7; python_version < "3.13"',
    "kaldingram>=0.1.2",
]
# Export to ONNX, and ONNX Runtime to run it.
ONNX = ["onnx>=1.17", "onnxruntime>=1.20", "onnxscript>=0.5"]
MICROPHONE = ["sounddevice>=0.4.6"]
TENSORBOARD = ["tensorboard>=2.16"]
DEV = [
    # A scorer that ours is compared with.
    "kaldialign>=0.9",
    "mypy>=1.11",
    # Drives an installed Chromium; brings none along.
    "playwright>=1.50",
    # Readers of the subtitles and TextGrids that ours are tested with.
    "praatio>=6",
    "pysubs2>=1.7",
    "pytest>=8",
    "ruff==0.12.4",
    "webvtt-py>=0.5",
    "yamllint==1.35.1",
]

setup(
    name="mala_asr",
    version=version(),
    description=(
        "Speech recognition with Magnitude-Aware Linear Attention (MALA), "
        "inside SpeechBrain"
    ),
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Multimedia :: Sound/Audio :: Speech",
    ],
    # The configs live at the top of the repository, where people look for
    # them, and inside the package in an installed copy.
    packages=[
        *find_packages(include=["mala_asr", "mala_asr.*"]),
        "mala_asr.hparams",
    ],
    package_dir={"mala_asr.hparams": "hparams"},
    package_data={
        "mala_asr": ["pretrained/*/*"],
        "mala_asr.hparams": ["*.yaml"],
        "mala_asr.scoring": ["assets/*"],
    },
    python_requires=">=3.10",
    install_requires=[
        "hyperpyyaml>=1.2.2",
        "jiwer>=4,<5",
        "matplotlib>=3.8",
        "numpy>=1.26",
        "packaging>=23",
        "safetensors>=0.4.3",
        "sentencepiece>=0.2",
        "soundfile>=0.12.1",
        # Layers of SpeechBrain are subclassed, so its minor version counts.
        "speechbrain>=1.1.2,<1.2",
        "torch>=2.7.1",
        "torchaudio>=2.7.1",
        "tqdm>=4.66",
    ],
    extras_require={
        # The demo's speech comes from eSpeak NG, which is under the GPL.
        "demo": DEMO,
        "english": ENGLISH,
        "lm": LM,
        "onnx": ONNX,
        "microphone": MICROPHONE,
        "tensorboard": TENSORBOARD,
        "dev": [*DEMO, *ENGLISH, *LM, *ONNX, *TENSORBOARD, *DEV],
    },
    entry_points={"console_scripts": ["mala-asr = mala_asr.cli.main:main"]},
)
