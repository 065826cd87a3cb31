"""The grammar that the synthetic corpus draws its sentences from.

Upper case is a word, lower case the name of a rule. A rule is a list of
alternatives separated by "|"; one-word alternatives may also be given as a
plain list of words. Words that sound like another word are left out, so that a
recogniser without a language model can tell what was said.
"""

from __future__ import annotations

import random
from functools import cache

_PHRASES = {
    "sentence": """
        happening | happening when | when happening | happening link happening
        | opinion | opinion BECAUSE happening | request | request when
        | opinion | when happening where | report
    """,
    "report": """
        somebody SAID THAT happening | somebody BELIEVED THAT happening
        | THE NEWSPAPER REPORTED THAT happening
    """,
    "happening": """
        somebody handled thing | somebody handled thing
        | somebody noticed animal | animal moved where
        | somebody moved where | somebody ate food
        | somebody gave thing TO somebody | weather
        | somebody bought count things | somebody noticed count creatures
        | somebody ate food where
    """,
    "opinion": """
        thing IS quality | thing IS ALWAYS quality
        | somebody SEEMED VERY mood | somebody BECAME rather mood
        | food TASTES rather quality
        | THE place IS NEVER quality
    """,
    "request": """
        PLEASE order thing | PLEASE order count things
        | COULD YOU order thing | DO NOT order thing
        | PLEASE order thing AND order thing
    """,
    "weather": """
        THE change BECAME quality | IT WAS quality OUTSIDE
    """,
    "somebody": """
        THE person | MY person | THE trait person | ANOTHER person
        | EVERY trait person | name | name
    """,
    "animal": "THE creature | THE shade creature | A trait creature",
    "thing": """
        THE object | THE shade object | THE made object | MY object
        | THAT made object
    """,
    "food": "SOME dish | THE dish | A quality dish",
    "where": """
        INTO THE place | BEHIND THE place | ACROSS THE place | NEAR THE place
        | TOWARDS THE place | AROUND THE place | BETWEEN THE place AND THE place
    """,
    "when": """
        moment | BEFORE meal | AFTER meal | EVERY day | LAST season
        | period AGO
    """,
    "moment": """
        YESTERDAY | THIS MORNING | IN THE EVENING | AT MIDNIGHT | TONIGHT
        | SUDDENLY
    """,
    "period": "A MONTH | A FORTNIGHT | SEVERAL YEARS | count MINUTES",
    "link": "AND | WHILE | BECAUSE | UNTIL | ALTHOUGH",
    "rather": "RATHER | ALMOST | REALLY",
}

_WORDS = {
    "person": """
        FARMER TEACHER DOCTOR CAPTAIN PAINTER DRIVER WRITER SINGER STUDENT
        SOLDIER BROTHER SISTER MOTHER FATHER UNCLE COUSIN CARPENTER
        GARDENER NEIGHBOR POLICEMAN SCIENTIST VISITOR
    """,
    "name": """
        THOMAS ALICE ROBERT MARTHA EDWARD SUSAN OLIVER EMILY VICTOR HELEN
        ARTHUR DIANA
    """,
    "trait": """
        YOUNG QUIET BRAVE CLEVER SERIOUS TIRED FAMOUS LAZY GENTLE STRANGE
        CAREFUL POLITE
    """,
    "mood": "HAPPY ANGRY NERVOUS PROUD WORRIED CHEERFUL LONELY CURIOUS",
    "creature": """
        TIGER RABBIT MONKEY EAGLE CAMEL DONKEY ELEPHANT SPIDER LION KITTEN
        PUPPY SQUIRREL PARROT TURTLE WOLF
    """,
    "creatures": """
        TIGERS RABBITS MONKEYS EAGLES CAMELS ELEPHANTS
    """,
    "object": """
        WINDOW TABLE BASKET BOTTLE CAMERA CANDLE CARPET CURTAIN HAMMER JACKET
        LADDER LETTER MIRROR PENCIL PIANO PICTURE POCKET RIBBON SHOVEL TICKET
        TELEPHONE UMBRELLA VIOLIN BLANKET ENGINE GUITAR MACHINE
    """,
    "things": """
        BASKETS BOTTLES CANDLES JACKETS LETTERS MIRRORS PENCILS
        PICTURES TICKETS BUTTONS
    """,
    "shade": "YELLOW GREEN PURPLE ORANGE BROWN BLACK SILVER PINK CRIMSON",
    "made": "WOODEN BROKEN HEAVY EXPENSIVE ANCIENT GOLDEN EMPTY USEFUL",
    "quality": """
        WONDERFUL TERRIBLE DANGEROUS PERFECT PECULIAR PLEASANT DIFFICULT
        SIMPLE BEAUTIFUL COMFORTABLE DELICATE
    """,
    "handled": """
        OPENED CARRIED PAINTED REPAIRED MEASURED BORROWED RETURNED DISCOVERED
        CLEANED COVERED FINISHED COLLECTED DESTROYED
    """,
    "bought": "BOUGHT SOLD WANTED RECEIVED COUNTED ORDERED",
    "noticed": """
        NOTICED FOLLOWED WATCHED REMEMBERED FRIGHTENED CAPTURED PHOTOGRAPHED
        ADMIRED
    """,
    "gave": "GAVE OFFERED SHOWED EXPLAINED PROMISED",
    "moved": """
        WALKED JUMPED WANDERED CLIMBED MARCHED HURRIED ESCAPED TRAVELED DANCED
        VANISHED
    """,
    "ate": "COOKED TASTED PREPARED ENJOYED SWALLOWED SHARED",
    "dish": """
        BANANA BUTTER CHEESE CHICKEN CHOCOLATE HONEY LEMON ONION PEPPER
        POTATO PUDDING SALAD SANDWICH TOMATO COFFEE VEGETABLE
    """,
    "place": """
        GARDEN KITCHEN FOREST MOUNTAIN RIVER VILLAGE CASTLE HARBOR LIBRARY
        MARKET STATION HOSPITAL MUSEUM OFFICE BRIDGE CHURCH DESERT ISLAND
        FACTORY TEMPLE VALLEY BUILDING UNIVERSITY THEATER
    """,
    "order": """
        BRING OPEN CLEAN REPAIR MOVE FIND DESCRIBE REMOVE FORGET COLLECT
        EXAMINE
    """,
    "count": """
        THREE FIVE SIX SEVEN NINE ELEVEN TWELVE TWENTY THIRTY FORTY MANY
        SEVERAL
    """,
    "meal": "BREAKFAST LUNCH SUPPER SCHOOL CHRISTMAS SUNSET",
    "day": "MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY SUNDAY",
    "season": "SUMMER WINTER AUTUMN SPRING SEPTEMBER NOVEMBER APRIL",
    "change": "OCEAN JOURNEY MUSIC WATER",
}

RULES: dict[str, tuple[tuple[str, ...], ...]] = {
    **{
        name: tuple(tuple(option.split()) for option in text.split("|"))
        for name, text in _PHRASES.items()
    },
    **{
        name: tuple((word,) for word in text.split())
        for name, text in _WORDS.items()
    },
}


class SentenceSource:
    """Sentences without end.

    Each rule deals its alternatives like a pack of cards, all of them before
    any comes again, so that no word is rare by bad luck.

    Arguments
    ---------
    rng : random.Random
        Where the choices come from.

    Example
    -------
    >>> first = SentenceSource(random.Random(3)).draw()
    >>> first == SentenceSource(random.Random(3)).draw()
    True
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._packs: dict[str, list[tuple[str, ...]]] = {}

    def draw(self, symbol: str = "sentence") -> str:
        """Draw a sentence.

        Arguments
        ---------
        symbol : str
            The rule to expand, or a word to return as it is.

        Returns
        -------
        str
            Words in upper case, separated by spaces.
        """
        if symbol.isupper():
            return symbol
        pack = self._packs.setdefault(symbol, [])
        if not pack:
            pack.extend(RULES[symbol])
            self._rng.shuffle(pack)
        return " ".join([self.draw(part) for part in pack.pop()])


@cache
def vocabulary() -> frozenset[str]:
    """Every word that a sentence can hold.

    Returns
    -------
    frozenset of str
        The words, in upper case.

    Example
    -------
    >>> "HARBOR" in vocabulary()
    True
    """
    return frozenset(
        part
        for options in RULES.values()
        for option in options
        for part in option
        if part.isupper()
    )
