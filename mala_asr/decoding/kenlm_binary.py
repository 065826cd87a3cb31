"""From an ARPA file to KenLM's binary, which loads in no time.

KenLM's own command for it, build_binary, comes in no Python package; the
library that does the work does, inside flashlight-text. It writes the binary
while it loads an ARPA file if its `lm::ngram::Config` says so, a C++ struct
whose layout is checked here against the defaults that its constructor sets.
C++ errors cannot be caught from Python, so a process of its own does this.
"""

from __future__ import annotations

import ctypes
import importlib.util
import struct
import subprocess
import sys
from pathlib import Path

from mala_asr.decoding.errors import DecodingError

# How every such file starts.
MAGIC = b"mmap lm http://kheafield.com/code"

_CONFIG_SIZE = 4096  # more than enough
# Where the fields that are set here lie.
_SHOW_PROGRESS, _MESSAGES, _WRITE_MMAP = 0, 8, 72

# Fields whose defaults are known, between which the others lie.
_DEFAULTS = (
    ("f", 36, -100.0),  # unknown_missing_logprob
    ("f", 40, 1.5),  # probing_multiplier
    ("N", 48, 1 << 30),  # building_memory
    ("P", _WRITE_MMAP, 0),
    ("i", 80, 1),  # write_method
    ("?", 84, True),  # include_vocab
)
_PROBING = 0


def is_binary(path: Path) -> bool:
    """Tell whether a file is KenLM's binary.

    Arguments
    ---------
    path : Path
        The file.

    Returns
    -------
    bool
        Whether it starts like one.
    """
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def write_binary(arpa: Path, binary: Path) -> None:
    """Write the binary of an ARPA file.

    Arguments
    ---------
    arpa : Path
        The ARPA file.
    binary : Path
        The file to write.

    Raises
    ------
    DecodingError
        When KenLM is missing or cannot read the file.
    """
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(arpa), str(binary)],
        capture_output=True,
        text=True,
    )
    if done.returncode or not binary.is_file() or not is_binary(binary):
        binary.unlink(missing_ok=True)
        lines = done.stderr.strip().splitlines() or ["it gave no reason"]
        raise DecodingError(
            f"KenLM cannot make a binary of {arpa} ({lines[-1]}); the ARPA "
            "file itself can be used as a language model"
        )


def _library() -> Path:
    found = importlib.util.find_spec("flashlight.lib.text")
    for place in (found.submodule_search_locations or ()) if found else ():
        site = Path(place).parents[2]
        for pattern in ("flashlight_text.libs/*", "flashlight/lib/text/**/*"):
            for path in site.glob(pattern):
                if path.name.startswith("libkenlm"):
                    return path
    raise SystemExit('KenLM is missing: pip install "mala_asr[lm]"')


def _write(arpa: str, binary: str) -> None:
    lib = ctypes.CDLL(str(_library()))
    config = ctypes.create_string_buffer(_CONFIG_SIZE)
    construct = lib["_ZN2lm5ngram6ConfigC1Ev"]
    construct.argtypes = [ctypes.c_void_p]
    construct.restype = None
    construct(config)
    for kind, offset, default in _DEFAULTS:
        if struct.unpack_from(kind, config, offset) != (default,):
            raise SystemExit("this version of KenLM is not known")
    name = ctypes.create_string_buffer(binary.encode())
    struct.pack_into("?", config, _SHOW_PROGRESS, False)
    struct.pack_into("P", config, _MESSAGES, 0)  # says nothing
    struct.pack_into("P", config, _WRITE_MMAP, ctypes.addressof(name))
    load = lib["_ZN2lm5ngram11LoadVirtualEPKcRKNS0_6ConfigENS0_9ModelTypeE"]
    load.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int]
    load.restype = ctypes.c_void_p
    load(arpa.encode(), config, _PROBING)


if __name__ == "__main__":
    _write(*sys.argv[1:])
