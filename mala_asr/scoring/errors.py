"""What scoring refuses."""

from mala_asr.errors import MalaError


class ScoringError(MalaError):
    """References and hypotheses that cannot be read or do not pair up.

    Example
    -------
    >>> str(ScoringError("hyp.trn: no transcripts in this file"))
    'hyp.trn: no transcripts in this file'
    """
