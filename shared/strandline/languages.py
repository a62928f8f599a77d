"""The language of a text, told from its script and its most frequent words, and stems."""

import re
import threading
from collections.abc import Iterator, Mapping
from typing import Protocol, cast

READ_CHARS = 2_000
"""So much of a text tells its language."""
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_LATIN_SHARE = 0.7
"""A text with fewer Latin letters than this is not in English, whatever names it holds."""
_LAST_LATIN = "\u024f"
_CYRILLIC = re.compile(r"[\u0400-\u04ff]")

SNOWBALL_NAMES: Mapping[str, str] = {
    "de": "german",
    "en": "english",
    "es": "spanish",
    "fr": "french",
    "it": "italian",
    "nl": "dutch",
    "pt": "portuguese",
    "ru": "russian",
}
"""The languages with a stemmer, as snowballstemmer names them."""
STOP_WORDS: Mapping[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": "a about after all am an and any are as at be because been before but by can could "
        "did do does don't for from had has have he her here him his how i i'm if in into is it "
        "it's its just like me more most my no not now of on one or other our out over she should "
        "so some than that the their them then there these they this to too up us very was we "
        "were what when where which who why will with would you your",
        "de": "aber als am an auch auf aus bei bin bis da dann das dass dein dem den der des die "
        "doch du durch ein eine einem einen einer er es für habe haben hat hatte hier ich ihr im "
        "in ist ja jetzt kann kein keine mein meine mich mir mit nach nicht noch nur oder schon "
        "sehr sein sich sie sind so über um und uns unser von vor war waren warum was wann wenn "
        "welche welcher welches wer wie wieder wir wird wo zu zum zur",
        "es": "a al algo como con cual cuando cuál cuándo cómo de del desde donde dónde el ella en "
        "entre era es eso esta este esto está están fue ha hace han hasta hay he la las le les lo "
        "los me mi mis mucho muy más nada ni no nos nuestra nuestro o para pero por porque que "
        "quien quién qué se ser si sin sobre son soy su sus sí también te tengo tiene todo tu tus "
        "un una ya y yo",
        "fr": "ai au aussi aux avec avez avons c'est ce ces cette comme comment d'un d'une dans de "
        "des donc du elle elles en est et eu fait il ils j'ai je l'on la le les leur lui ma mais "
        "me mes mon même n'est ne nos notre nous on ont ou où par pas plus pour pourquoi qu'il "
        "quand que quel quelle qui quoi sa sans se ses son sont sur ta te tes ton toi tu très un "
        "une vous à était été être",
        "it": "ai al alla anche che chi ci come con cosa da dal dalla degli dei del della delle di "
        "dove e ed era gli ha hai hanno ho i il in io la le lei lo loro lui ma mi mia mio molto "
        "nel nella noi non nostra nostro o per perché però più qual quale quando quello questa "
        "questo se sei si siamo sono sta su sua suo ti tu tutto un una uno è",
        "nl": "aan al als bij dan dat de deze die dit doen door een en er geen had heb hebben "
        "heeft het hij hoe ik in is je kan maar me meer met mij mijn naar niet nog nu of om ons "
        "onze ook op over te toch tot uit van veel voor waar waarom wanneer wat we wel werd wie "
        "wij worden ze zijn zo zou",
        "pt": "a ao aos as até com como da das de dela dele depois do dos e ela ele em entre era "
        "essa esse esta este está estão eu foi há isso isto já lhe mais mas me meu meus minha "
        "muito na nas no nos nossa nosso não o os ou para pela pelo por porque pra quando que quem "
        "qual se sem ser seu sobre somos sou sua são também te tem tenho uma um você",
    }.items()
}
"""By language (ISO 639-1), the words that nearly every text of it holds, in lower case."""
_LANGUAGES_OF: Mapping[str, tuple[str, ...]] = {
    word: tuple(language for language, words in STOP_WORDS.items() if word in words)
    for word in frozenset[str]().union(*STOP_WORDS.values())
}
UNKNOWN = "und"
"""The code of ISO 639 for a language that is not determined."""


def split_into_lowercase_words(text: str) -> Iterator[str]:
    """The words of a text in lower case; digits and marks are none."""
    return iter(_WORD.findall(text.lower().replace("’", "'")))  # noqa: RUF001


def detect_language(text: str) -> str:
    """The language of a text: one of STOP_WORDS, `ru` for Cyrillic letters, UNKNOWN for another
    script. Anything else counts as English unless two signs speak for another language, and more
    than for English: each word of its list is a sign, and one letter with an accent is one more."""
    head = text[:READ_CHARS]
    accent = 0
    if not head.isascii():
        letters = [char for char in head if char.isalpha()]
        if sum(char <= _LAST_LATIN for char in letters) < _LATIN_SHARE * len(letters):
            return "ru" if 2 * len(_CYRILLIC.findall(head)) > len(letters) else UNKNOWN
        accent = int(any(char > "\x7f" for char in letters))
    signs = {language: accent * (language != "en") for language in STOP_WORDS}
    for word in split_into_lowercase_words(head):
        for language in _LANGUAGES_OF.get(word, ()):
            signs[language] += 1
    best = max(signs, key=lambda language: (signs[language], language == "en"))
    return best if signs[best] > 1 else "en"


class Stemmer(Protocol):
    """The one method of snowballstemmer that is used; the package has no types."""

    def stemWord(self, word: str) -> str: ...


_thread_local = threading.local()


def get_stemmer(language: str) -> Stemmer:
    """This thread's stemmer of a language that `SNOWBALL_NAMES` has: a stemmer keeps its current
    word as state, and another thread's word would become a word of this text."""
    stemmer = cast("Stemmer | None", getattr(_thread_local, language, None))
    if stemmer is None:
        import snowballstemmer  # loads 30 languages: only when a text is there

        stemmer = cast("Stemmer", snowballstemmer.stemmer(SNOWBALL_NAMES[language]))  # pyright: ignore[reportUnknownMemberType]
        setattr(_thread_local, language, stemmer)
    return stemmer
