"""Word error rates and the files they are written to."""

from mala_asr.scoring.formats import (
    FORMATS,
    read_transcripts,
    write_trn,
)
from mala_asr.scoring.report import summary_text, wer_text, write_wer_files
from mala_asr.scoring.wer import (
    AlignedWord,
    EditCounts,
    ScoringError,
    UtteranceScore,
    WerReport,
    score,
)

__all__ = [
    "FORMATS",
    "AlignedWord",
    "EditCounts",
    "ScoringError",
    "UtteranceScore",
    "WerReport",
    "read_transcripts",
    "score",
    "summary_text",
    "wer_text",
    "write_trn",
    "write_wer_files",
]
