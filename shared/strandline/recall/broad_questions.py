"""Questions that need a list, an order or a summary, told from a few forms of words."""

import re

_FORMS_BY_LANGUAGE = {
    "en": (
        r"^(?:please )?(?:(?:can|could|would|will) you )?(?:please )?(?:"
        r"(?:summari[sz]e|recap|sum up)\b"
        r"|(?:list|name|tell me|show me) (?:all|every|each|everything|the order|in order)\b"
        r"|walk me through (?:all|everything|the order|the history)\b"
        r"|(?:give|write|make|show|provide)(?: me| us)? (?:an?|the) (?:[\w-]+ ){0,2}"
        r"(?:summary|overview|recap|timeline|list) (?:of|about|on)\b)",
        r"\b(?:in (?:which|what) order|the order in which|in chronological order)\b",
        r"\beverything (?:about|(?:that )?(?:we|you|i)(?:'ve| have)\b)",
        r"\bhow many\b.*\b(?:in total|altogether|in all|so far)\b",
        r"\b(?:across|throughout|over) (?:all )?(?:of )?(?:my|our|the|these)"
        r" (?:\w+ )?(?:sessions|conversations|chats|discussions|requests|messages|questions)\b",
    ),
    "de": (
        r"^(?:bitte )?(?:fasse?|nenne?|liste|zeige?)\b.*\b(?:zusammen|alle|alles|auf)\b",
        r"\b(?:in welcher reihenfolge|zusammenfassung (?:von|der|des|aller)|alles über)\b",
        r"\bwie (?:viele|oft)\b.*\b(?:insgesamt|bisher)\b",
    ),
    "es": (
        r"^¿?(?:por favor,? )?(?:puedes |podrías )?(?:resum(?:e|ir)|enumera|lista) ",
        r"\b(?:en qué orden|un resumen de|todo (?:sobre|lo que))\b",
        r"\bcuánt[oa]s\b.*\b(?:en total|hasta ahora)\b",
    ),
    "fr": (
        r"^(?:peux-tu |pouvez-vous )?(?:me )?(?:résumer?|résumez|énum[ée]re[rz]?|liste[rz]?) ",
        r"\b(?:dans quel ordre|un résumé de|tout ce (?:que|qui))\b",
        r"\bcombien\b.*\b(?:au total|en tout|jusqu'ici)\b",
    ),
    "it": (
        r"^(?:puoi )?(?:riassum(?:i|ere)|elenca(?:re)?) ",
        r"\b(?:in (?:che|quale) ordine|un riassunto d\w+|tutto (?:su\w*|quello che))\b",
        r"\bquant[ie]\b.*\b(?:in totale|finora)\b",
    ),
    "nl": (
        r"^(?:kun je )?(?:vat|som)\b.*\b(?:samen|op)\b",
        r"\b(?:in welke volgorde|een samenvatting van|alles over)\b",
        r"\bhoeveel\b.*\b(?:in totaal|tot nu toe)\b",
    ),
    "pt": (
        r"^(?:podes |pode |você pode )?(?:resum(?:e|a|ir)|enumer(?:e|a|ar)|list(?:e|a|ar)) ",
        r"\b(?:em que ordem|um resumo d\w+|tudo (?:sobre|o que))\b",
        r"\bquant[oa]s\b.*\b(?:no total|ao todo|até agora)\b",
    ),
    "ru": (
        r"^(?:пожалуйста,? )?(?:перечисли|подытожь|обобщи|резюмируй)(?:те)?\b",
        r"\b(?:в каком порядке|вс[её] о(?:б|бо)?|краткое содержание)\b",  # noqa: RUF001
        r"\bсколько\b.*\b(?:всего|в общей сложности)\b",  # noqa: RUF001
    ),
    "ja and zh": (
        r"要約|まとめて|すべて教え|全部教え|どの順|どういう順|时间顺序|時系列|合計で?何",
        r"总结|總結|列出(?:所有|全部)|按(?:什么|照什么|什麼)顺?順?序|一共(?:有)?(?:多少|几)",
    ),
}
_BROAD = re.compile(
    "|".join(f"(?:{form})" for forms in _FORMS_BY_LANGUAGE.values() for form in forms),
    re.IGNORECASE,
)
_READ_CHARS = 500
"""A longer text is no plain question: only so much of its beginning is read."""


def asks_for_breadth(question: str) -> bool:
    """Whether a question asks for a list, an order or a summary, by its form. The forms are few and
    precise: a question about one fact has practically none of them."""
    return _BROAD.search(question[:_READ_CHARS].strip().replace("’", "'")) is not None  # noqa: RUF001


def is_broad(question: str | None, breadth: bool | None) -> bool:
    """Whether to answer with breadth: what the caller says, else what the question's form says."""
    if question is None:
        return False
    return asks_for_breadth(question) if breadth is None else breadth
