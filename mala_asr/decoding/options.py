"""Which decoder, and how: one set of options for configs, commands and API.

Nothing heavy is imported here, so that a command can check its arguments and
print its help at once.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from mala_asr.decoding.errors import DecodingError

NO_LM = "none"

_BEAM: dict[str, Any] = {
    "beam_size": 100,
    "token_beam": 30,
    "beam_threshold": 25.0,
    "word_score": 0.0,
    "lm": NO_LM,
}

# The options that each decoder uses, with their defaults.
DEFAULTS: dict[str, dict[str, Any]] = {
    "ctc_greedy": {},
    "ctc_beam": _BEAM,
    "joint": {"beam_size": 10, "ctc_weight": 0.4},
    "rescore": {**_BEAM, "n_best": 20, "ctc_weight": 0.4},
}
LM_WEIGHT = 0.5  # where there is a language model

# The least and the most that each number may be.
_LIMITS: dict[str, tuple[float, float]] = {
    "beam_size": (1, 100_000),
    "token_beam": (1, 1_000_000),
    "n_best": (1, 100_000),
    "beam_threshold": (1e-3, 1e6),
    "ctc_weight": (0.0, 1.0),
    "lm_weight": (0.0, 100.0),
    "word_score": (-100.0, 100.0),
}
_WHOLE = ("beam_size", "token_beam", "n_best")


@dataclass(frozen=True)
class DecodingOptions:
    """A decoder and its options; an option left at None has its default.

    Arguments
    ---------
    decoder : str
        ``ctc_greedy``: the best label of each frame. ``ctc_beam``: beam
        search over CTC, with an n-gram language model where one is given.
        ``joint``: beam search by attention decoder and CTC. ``rescore``: the
        best of ``ctc_beam``, reordered by the attention decoder.
    beam_size : int, optional
        Hypotheses kept at each step: 100, of ``joint`` 10.
    token_beam : int, optional
        Tokens tried at each frame by ``ctc_beam``: the 30 best.
    beam_threshold : float, optional
        Hypotheses this much worse than the best are dropped by ``ctc_beam``:
        25.
    lm : str, optional
        A language model made by ``mala-asr train-lm``, or an ARPA file;
        ``none`` to do without.
    lm_weight : float, optional
        Of the language model's log-probability: 0.5.
    word_score : float, optional
        Added for each word: 0.
    n_best : int, optional
        Hypotheses that ``rescore`` reorders: 20.
    ctc_weight : float, optional
        Share of CTC against the attention decoder: 0.4.

    Raises
    ------
    DecodingError
        For an unknown decoder, an option that it does not use, or a number
        out of its range.

    Example
    -------
    >>> DecodingOptions("joint", beam_size=20).settings()
    {'decoder': 'joint', 'beam_size': 20, 'ctc_weight': 0.4}
    >>> DecodingOptions("ctc_greedy", beam_size=20)
    Traceback (most recent call last):
    ...
    mala_asr.decoding.errors.DecodingError: ctc_greedy has no beam_size; \
leave it out, or choose a decoder that has: ctc_beam, joint, rescore
    """

    decoder: str = "ctc_greedy"
    beam_size: int | None = None
    token_beam: int | None = None
    beam_threshold: float | None = None
    lm: str | None = None
    lm_weight: float | None = None
    word_score: float | None = None
    n_best: int | None = None
    ctc_weight: float | None = None

    def __post_init__(self) -> None:
        if self.decoder not in DEFAULTS:
            raise DecodingError(
                f"unknown decoder '{self.decoder}'; choose from "
                + ", ".join(DEFAULTS)
            )
        given = self.given()
        del given["decoder"]
        for name, value in given.items():
            if name not in _used_by(self.decoder):
                having = [d for d in DEFAULTS if name in _used_by(d)]
                raise DecodingError(
                    f"{self.decoder} has no {name}; leave it out, or choose "
                    f"a decoder that has: {', '.join(having)}"
                )
            if name in _LIMITS:
                _check_number(name, value)
        if self.lm == NO_LM and self.lm_weight is not None:
            raise DecodingError(
                "lm_weight without a language model; name one with lm, or "
                "leave lm_weight out"
            )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> DecodingOptions:
        """Make options of a mapping that a user wrote.

        Arguments
        ---------
        values : Mapping[str, Any]
            Options by name.

        Returns
        -------
        DecodingOptions
            The options.

        Raises
        ------
        DecodingError
            For an unknown name, and for what the class refuses.
        """
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1, cutoff=0.0)
                raise DecodingError(
                    f"no decoding option '{name}'; did you mean {near[0]}?"
                )
        return cls(**values)

    @classmethod
    def stored(cls, values: Mapping[str, Any]) -> DecodingOptions:
        """Make options of what a training or an export has written.

        Arguments
        ---------
        values : Mapping[str, Any]
            Options by name. Those that the decoder does not use are left
            out: earlier versions wrote all of them.

        Returns
        -------
        DecodingOptions
            The options.

        Raises
        ------
        DecodingError
            For an unknown name, and for what the class refuses.
        """
        used = _used_by(values.get("decoder", cls.decoder))
        unused = set().union(*map(_used_by, DEFAULTS)) - used
        return cls.of({k: v for k, v in values.items() if k not in unused})

    def given(self) -> dict[str, Any]:
        """List the decoder and the options that are not left at None.

        Returns
        -------
        dict[str, Any]
            By name.
        """
        return {k: v for k, v in asdict(self).items() if v is not None}

    def settings(self) -> dict[str, Any]:
        """List the decoder and every option that it uses.

        Returns
        -------
        dict[str, Any]
            By name; defaults where nothing was given.
        """
        settings = {"decoder": self.decoder, **DEFAULTS[self.decoder]}
        settings |= self.given()
        if settings.get("lm", NO_LM) != NO_LM:
            settings.setdefault("lm_weight", LM_WEIGHT)
        elif "lm_weight" in settings:
            raise DecodingError(
                "lm_weight without a language model; name one with lm, or "
                "leave lm_weight out"
            )
        return settings

    def changed(self, changes: Mapping[str, Any]) -> DecodingOptions:
        """Change some options.

        Arguments
        ---------
        changes : Mapping[str, Any]
            Options by name; None changes nothing. Another decoder starts
            from its defaults: what was set or tuned for this one says
            nothing of it.

        Returns
        -------
        DecodingOptions
            The options after the change.

        Raises
        ------
        DecodingError
            As `of`.
        """
        changes = {k: v for k, v in changes.items() if v is not None}
        kept = self.given()
        if changes.get("decoder", self.decoder) != self.decoder:
            kept = {}
        if changes.get("lm") == NO_LM:
            kept.pop("lm_weight", None)
        return DecodingOptions.of({**kept, **changes})


def uses_lm(decoder: str) -> bool:
    """Tell whether a decoder can use a language model.

    Arguments
    ---------
    decoder : str
        Its name.

    Returns
    -------
    bool
        True for ctc_beam and rescore.
    """
    return "lm" in DEFAULTS.get(decoder, {})


def _used_by(decoder: str) -> set[str]:
    used = {"decoder", *DEFAULTS.get(decoder, {})}
    return used | ({"lm_weight"} if uses_lm(decoder) else set())


def _check_number(name: str, value: Any) -> None:
    kind: Any = int if name in _WHOLE else (int, float)
    low, high = _LIMITS[name]
    # Python counts True as a number.
    right = isinstance(value, kind) and not isinstance(value, bool)
    if not right or not low <= value <= high:
        what = "a whole number" if name in _WHOLE else "a number"
        raise DecodingError(
            f"{name} is {value}; give {what} from {low:g} to {high:g}"
        )
