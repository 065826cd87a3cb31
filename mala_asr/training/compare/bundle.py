"""Speech small enough to carry to a machine without a network.

A bundle is a tar file of Opus at about 16 kbit/s, seven minutes of speech in
a megabyte, with the transcripts; unpacked, it is FLAC in LibriSpeech's layout.

  python -m mala_asr.training.compare.bundle pack data speech.tar dev-clean-2
  python -m mala_asr.training.compare.bundle unpack speech.tar data
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tarfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import soundfile

from mala_asr.data.audio import SAMPLE_RATE, audio_info, read_audio
from mala_asr.data.files import replacing
from mala_asr.data.librispeech import (
    AUDIO_SUFFIXES,
    TRANSCRIPT_SUFFIX,
    split_folder,
)
from mala_asr.errors import MalaError, os_error_text

_OPUS = ".opus"
# libsndfile's scale from 0 (256 kbit/s) to 1 (6 kbit/s).
_COMPRESSION = 0.96


class BundleError(MalaError):
    """A bundle that cannot be made or unpacked."""


def pack(
    data_folder: Path, splits: Sequence[str], path: Path, max_bytes: int
) -> int:
    """Put the speech of splits into a tar file.

    Arguments
    ---------
    data_folder : Path
        Holds the splits.
    splits : sequence of str
        Their names.
    path : Path
        The file to write.
    max_bytes : int
        The most that it may hold.

    Returns
    -------
    int
        Its size in bytes.

    Raises
    ------
    BundleError
        If it would be too large, or a recording is not of 16 kHz and mono.
    AudioError
        If a recording cannot be read whole.
    """
    roots = {name: split_folder(data_folder, name) for name in splits}
    with replacing(path) as temporary:
        with (
            tarfile.open(temporary, "w") as tar,
            ThreadPoolExecutor(os.cpu_count()) as pool,
        ):
            for split, root in roots.items():
                files = sorted(p for p in root.rglob("*") if _is_part(p))
                for file, content in zip(
                    files, pool.map(_packed, files), strict=True
                ):
                    name = Path(split, file.relative_to(root))
                    if file.suffix.lower() in AUDIO_SUFFIXES:
                        name = name.with_suffix(_OPUS)
                    info = tarfile.TarInfo(name.as_posix())
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
        size = temporary.stat().st_size
        if size > max_bytes:
            raise BundleError(
                f"{', '.join(splits)} make {size / 2**20:.1f} MiB, more than "
                f"{max_bytes / 2**20:.0f}; name fewer splits"
            )
    return size


def unpack(path: Path, folder: Path) -> int:
    """Write the speech of a bundle as FLAC, in LibriSpeech's layout.

    Arguments
    ---------
    path : Path
        What `pack` wrote.
    folder : Path
        Where the splits go; files that are there already are kept.

    Returns
    -------
    int
        Number of recordings.

    Raises
    ------
    BundleError
        If the file is no bundle.
    AudioError
        If a recording in it is damaged.
    """
    try:
        with tarfile.open(path, "r:") as tar:
            tar.extractall(folder, filter="data")
            # Any other ones that lie there are not ours to replace.
            packed = sorted(
                folder / name for name in tar.getnames() if name.endswith(_OPUS)
            )
    except tarfile.TarError as error:
        raise BundleError(
            f"{path} is no bundle ({error}); pack it anew"
        ) from error
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_write_flac, packed))
    return len(packed)


def _is_part(path: Path) -> bool:
    return path.is_file() and (
        path.suffix.lower() in AUDIO_SUFFIXES
        or path.name.endswith(TRANSCRIPT_SUFFIX)
    )


def _packed(path: Path) -> bytes:
    if path.name.endswith(TRANSCRIPT_SUFFIX):
        return path.read_bytes()
    info = audio_info(path)
    if (info.sample_rate, info.channels) != (SAMPLE_RATE, 1):
        raise BundleError(
            f"{path} has {info.sample_rate} Hz and {info.channels} channels; "
            f"a bundle holds {SAMPLE_RATE} Hz and one channel"
        )
    buffer = io.BytesIO()
    soundfile.write(
        buffer,
        read_audio(path).numpy(),
        SAMPLE_RATE,
        format="OGG",
        subtype="OPUS",
        compression_level=_COMPRESSION,
    )
    return buffer.getvalue()


def _write_flac(path: Path) -> None:
    target = path.with_suffix(".flac")
    if not target.exists():
        samples = read_audio(path).numpy()
        with replacing(target) as temporary:
            soundfile.write(temporary, samples, SAMPLE_RATE, format="FLAC")
    path.unlink()


def main(argv: Sequence[str] | None = None) -> int:
    """Pack or unpack a bundle.

    Arguments
    ---------
    argv : sequence of str, optional
        Arguments of the command line.

    Returns
    -------
    int
        0, or 1 after an expected error.
    """
    args = _parser().parse_args(argv)
    try:
        if args.command == "pack":
            size = pack(
                args.data_folder,
                args.splits,
                args.bundle,
                int(args.max_mib * 2**20),
            )
            print(f"{args.bundle}: {size / 2**20:.1f} MiB")
        else:
            count = unpack(args.bundle, args.data_folder)
            print(f"{args.data_folder}: {count} recordings")
    except (MalaError, OSError) as error:
        text = os_error_text(error) if isinstance(error, OSError) else error
        print(f"bundle: error: {text}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m mala_asr.training.compare.bundle",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="from splits to a bundle")
    packing.add_argument("data_folder", type=Path)
    packing.add_argument("bundle", type=Path)
    packing.add_argument("splits", nargs="+", metavar="split")
    packing.add_argument(
        "--max-mib",
        type=float,
        default=64.0,
        help="refuse to write more (default: 64)",
    )
    unpacking = commands.add_parser("unpack", help="from a bundle to FLAC")
    unpacking.add_argument("bundle", type=Path)
    unpacking.add_argument("data_folder", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
