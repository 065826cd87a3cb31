"""Word and character error rates.

One function aligns every utterance (with jiwer) and returns a report that
holds everything; what is written or printed only reads from it. An alignment
has the fewest errors there can be: substitution, deletion and insertion cost
1 each (Levenshtein).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import jiwer

from mala_asr.scoring.pairs import pair

EDIT_COSTS = {"substitution": 1, "deletion": 1, "insertion": 1}
# Utterances whose alignments by character are held at a time.
_BLOCK = 1000


@dataclass(frozen=True)
class EditCounts:
    """How many words of a reference were found, and what went wrong.

    Arguments
    ---------
    hits : int
        Words that are right.
    substitutions : int
        Words replaced by another.
    deletions : int
        Words of the reference that are missing.
    insertions : int
        Words of the hypothesis that are too many.

    Example
    -------
    >>> counts = EditCounts(8, substitutions=1, deletions=1, insertions=0)
    >>> counts.errors, counts.words, counts.wer, counts.mer
    (2, 10, 20.0, 20.0)
    """

    hits: int
    substitutions: int
    deletions: int
    insertions: int

    @property
    def errors(self) -> int:
        """Substitutions, deletions and insertions together."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def words(self) -> int:
        """Words in the reference."""
        return self.hits + self.substitutions + self.deletions

    @property
    def wer(self) -> float | None:
        """Word error rate in percent; None without words to recognize."""
        return 100.0 * self.errors / self.words if self.words else None

    @property
    def mer(self) -> float | None:
        """Match error rate in percent; None without words to recognize.

        The share of the aligned pairs that are wrong, 100 at most (Morris,
        Maier and Green, "From WER and RIL to MER and WIL", Interspeech 2004).
        """
        pairs = self.words + self.insertions
        return 100.0 * self.errors / pairs if self.words else None

    @property
    def wil(self) -> float | None:
        """Word information lost in percent; None without words to recognize.

        100 (1 - H/N · H/P) with N words in the reference and P in the
        hypothesis (from the same paper).
        """
        if not self.words:
            return None
        heard = self.hits + self.substitutions + self.insertions
        kept = self.hits**2 / (self.words * heard) if heard else 0.0
        return 100.0 * (1.0 - kept)


def total(parts: Iterable[EditCounts]) -> EditCounts:
    """Add up the counts of several utterances.

    Arguments
    ---------
    parts : Iterable[EditCounts]
        Such as the utterances of a speaker.

    Returns
    -------
    EditCounts
        Their sum.

    Example
    -------
    >>> total([EditCounts(1, 0, 0, 2), EditCounts(3, 1, 0, 0)])
    EditCounts(hits=4, substitutions=1, deletions=0, insertions=2)
    """
    hits = substitutions = deletions = insertions = 0
    for part in parts:
        hits += part.hits
        substitutions += part.substitutions
        deletions += part.deletions
        insertions += part.insertions
    return EditCounts(hits, substitutions, deletions, insertions)


@dataclass(frozen=True)
class AlignedWord:
    """One step of an alignment.

    Arguments
    ---------
    operation : str
        ``=`` right, ``S`` substituted, ``D`` deleted, ``I`` inserted.
    reference : str, optional
        The word of the reference; None for an insertion.
    hypothesis : str, optional
        The word of the hypothesis; None for a deletion.
    """

    operation: str
    reference: str | None
    hypothesis: str | None


@dataclass(frozen=True)
class UtteranceScore(EditCounts):
    """The counts of one utterance and the words behind them.

    Arguments
    ---------
    id : str
        The utterance's id.
    reference : list[str]
        The words that were said.
    hypothesis : list[str]
        The words that were recognized.
    chunks : list[jiwer.AlignmentChunk]
        jiwer's alignment; `alignment` spells it out.
    """

    id: str
    reference: list[str]
    hypothesis: list[str]
    chunks: list[jiwer.AlignmentChunk]

    def alignment(self) -> Iterator[AlignedWord]:
        """Walk through reference and hypothesis word by word."""
        for chunk in self.chunks:
            said = self.reference[chunk.ref_start_idx : chunk.ref_end_idx]
            heard = self.hypothesis[chunk.hyp_start_idx : chunk.hyp_end_idx]
            if chunk.type == "insert":
                yield from (AlignedWord("I", None, h) for h in heard)
            elif chunk.type == "delete":
                yield from (AlignedWord("D", r, None) for r in said)
            else:
                operation = "=" if chunk.type == "equal" else "S"
                pairs = zip(said, heard, strict=True)
                yield from (AlignedWord(operation, r, h) for r, h in pairs)


@dataclass(frozen=True)
class WerReport(EditCounts):
    """The counts of a whole set and of each of its utterances.

    Arguments
    ---------
    utterances : list[UtteranceScore]
        One per reference, in the order of the references.
    """

    utterances: list[UtteranceScore]

    @property
    def sentence_errors(self) -> int:
        """Utterances with at least one error."""
        return sum(u.errors > 0 for u in self.utterances)

    @property
    def ser(self) -> float | None:
        """Sentence error rate in percent; None without utterances."""
        if not self.utterances:
            return None
        return 100.0 * self.sentence_errors / len(self.utterances)

    def summary(self) -> dict[str, float | int | None]:
        """Give the totals as a dictionary that JSON can hold."""
        return {
            "WER": self.wer,
            "SER": self.ser,
            "words": self.words,
            "substitutions": self.substitutions,
            "deletions": self.deletions,
            "insertions": self.insertions,
            "utterances": len(self.utterances),
            "sentence_errors": self.sentence_errors,
        }


def score(
    references: Mapping[str, str], hypotheses: Mapping[str, str]
) -> WerReport:
    """Compare hypotheses with references, paired by id.

    Words are what white space separates; case and punctuation count. The
    totals are those of jiwer on the same words.

    Arguments
    ---------
    references : Mapping[str, str]
        What was said, by utterance id.
    hypotheses : Mapping[str, str]
        What was recognized, by utterance id; the same ids in any order.

    Returns
    -------
    WerReport
        Totals and utterances, in the order of the references.

    Raises
    ------
    ScoringError
        When an id is on one side only.

    Example
    -------
    >>> report = score({"a": "one two", "b": ""}, {"b": "oh", "a": "one too"})
    >>> report.wer, report.substitutions, report.insertions
    (100.0, 1, 1)
    >>> [step.operation for step in report.utterances[0].alignment()]
    ['=', 'S']
    """
    pair(references, hypotheses)
    aligned = jiwer.process_words(
        [" ".join(text.split()) for text in references.values()],
        [" ".join(hypotheses[key].split()) for key in references],
    )
    utterances = [
        UtteranceScore(
            **_counts(chunks),
            id=key,
            reference=said,
            hypothesis=heard,
            chunks=chunks,
        )
        for key, said, heard, chunks in zip(
            references,
            aligned.references,
            aligned.hypotheses,
            aligned.alignments,
            strict=True,
        )
    ]
    return WerReport(**vars(total(utterances)), utterances=utterances)


def character_counts(report: WerReport) -> EditCounts:
    """Count right and wrong characters, as jiwer's ``cer`` does.

    Each utterance is aligned anew, character by character, with one space
    between words; a space is a character.

    Arguments
    ---------
    report : WerReport
        What `score` returned.

    Returns
    -------
    EditCounts
        Characters in the place of words: ``wer`` is the character error
        rate.

    Example
    -------
    >>> counts = character_counts(score({"a": "one two"}, {"a": "one to"}))
    >>> counts.deletions, counts.words
    (1, 7)
    """
    utterances = report.utterances
    return total(
        _count_characters(utterances[start : start + _BLOCK])
        for start in range(0, len(utterances), _BLOCK)
    )


def _count_characters(utterances: Sequence[UtteranceScore]) -> EditCounts:
    aligned = jiwer.process_characters(
        [" ".join(u.reference) for u in utterances],
        [" ".join(u.hypothesis) for u in utterances],
    )
    return EditCounts(
        aligned.hits,
        aligned.substitutions,
        aligned.deletions,
        aligned.insertions,
    )


def _counts(chunks: list[jiwer.AlignmentChunk]) -> dict[str, int]:
    counts = dict.fromkeys(("equal", "substitute", "delete", "insert"), 0)
    for chunk in chunks:
        counts[chunk.type] += max(
            chunk.ref_end_idx - chunk.ref_start_idx,
            chunk.hyp_end_idx - chunk.hyp_start_idx,
        )
    return {
        "hits": counts["equal"],
        "substitutions": counts["substitute"],
        "deletions": counts["delete"],
        "insertions": counts["insert"],
    }
