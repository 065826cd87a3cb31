"""Word error rates, how sure they are, and the files they are written to."""

from mala_asr.scoring.analysis import (
    GROUPINGS,
    Analysis,
    Comparison,
    analyze,
)
from mala_asr.scoring.errors import ScoringError
from mala_asr.scoring.formats import FORMATS, read_transcripts, write_trn
from mala_asr.scoring.normalize import NORMALIZERS, find_normalizer
from mala_asr.scoring.page import write_page
from mala_asr.scoring.pairs import MISSING, Pairs, pair
from mala_asr.scoring.record import analysis_record
from mala_asr.scoring.report import summary_text, wer_text, write_wer_files
from mala_asr.scoring.text import analysis_text
from mala_asr.scoring.transcripts import Transcripts
from mala_asr.scoring.wer import (
    AlignedWord,
    EditCounts,
    UtteranceScore,
    WerReport,
    character_counts,
    score,
)

__all__ = [
    "FORMATS",
    "GROUPINGS",
    "MISSING",
    "NORMALIZERS",
    "AlignedWord",
    "Analysis",
    "Comparison",
    "EditCounts",
    "Pairs",
    "ScoringError",
    "Transcripts",
    "UtteranceScore",
    "WerReport",
    "analysis_record",
    "analysis_text",
    "analyze",
    "character_counts",
    "find_normalizer",
    "pair",
    "read_transcripts",
    "score",
    "summary_text",
    "wer_text",
    "write_page",
    "write_trn",
    "write_wer_files",
]
