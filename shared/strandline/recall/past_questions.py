# ruff: noqa: RUF001 -- words of Russian
"""Whether a question asks for what was, told by its language's past tense."""

import re
from collections.abc import Mapping
from functools import cache

_PAST_FORMS: Mapping[str, str] = {
    "en": r"\b(?:did|was|were|had|happened)\b|\b(?:who|what|(?:which|whose|how\s+many)"
    r"(?:\s+\w+){1,2})\s+(?:asked|ate|bought|broke|brought|called|came|failed|fixed|found|gave|got"
    r"|left|made|met|paid|rang|said|saw|sent|told|took|visited|went|wrote)\b",
    "de": r"\b(?:war|waren|hatten?|wurden?|gab|sagten?|ging|gingen|kam|kamen|machten?|rief"
    r"|schrieb|kaufte|traf|trafen|sprach|brachte|fand|erzählte|geschah|passierte)\b"
    r"|\b(?:hat|habe|haben|hast|habt)\b[^!?]{0,200}\s(?-i:\w{0,12}ge(?!öffnet|schlossen)\w{2,20}(?:t|en)"
    r"|\w{0,12}(?:be|ver|er|ent)\w{2,20}(?:t|en)|\w{2,20}iert)\s*(?:[.!?,]|$)"
    r"|\b(?:\w{0,12}ge(?!öffnet|schlossen)\w{2,20}(?:t|en)|passiert)\s+(?:hat|habe|haben|ist|sind)\b"
    r"|\b(?:bin|bist|ist|sind)\b[^!?]{0,200}\s(?:\w{0,12}(?:gegangen|gekommen|gefahren|geflogen|gelaufen"
    r"|geblieben)|gewesen|geworden|geschehen|passiert)\b",
    "es": r"\b(?:fue|fui|fuimos|fueron|era|estaba|estuv\w+|había|hab[íi]amos|dij\w+|hic\w+"
    r"|hizo|vin[oei]\w*|tuv\w+|dio|dieron|pus[oei]\w*|traj\w+|vi|vio|vimos|comí|compré|llamé"
    r"|hablé|gasté|pagué|dejé|encontré|(?-i:[a-zñ]{2,}ó)|\w{2,}(?:aron|ieron|aste|iste|aba|aban))\b"
    r"|\b(?:he|has|ha|hemos|han)\s+(?:\w+\s+)?\w+(?:ado|ido|icho|echo|isto|ito|erto|esto)\b",
    "fr": r"\b(?:était|étaient|étions|avait|avaient|avions|fut|fallait)\b"
    r"|(?:\b(?:ai|as|avons|avez|ont|a)(?:-t)?(?:-\w+)?)\s+"
    r"(?:(?!le\b|la\b|les\b|une?\b|des\b|mon\b|ma\b|ce\b|du\b|au\b|à\b|de\b)\w+\s+)?"
    r"(?:[a-zà-ÿ]{2,}é(?:e?s?)|dit|fait|vu|pris|mis|eu|été|écrit|reçu|lu|bu|ouvert|promis"
    r"|appris|vendu|perdu|entendu|répondu|fini|choisi)\b"
    r"|\b(?:est|sont|suis|sommes|êtes)(?:-\w+){0,2}\s+(?:\w+\s+)?(?:allé|venu|parti|arrivé"
    r"|passé|resté|rentré|sorti|tombé|revenu)e?s?\b",
    "it": r"\b(?:era|erano|aveva|avevano|avevo|avevamo|stava|disse|fece)\b"
    r"|\b(?:ha|ho|hai|hanno|abbiamo|avete)\s+(?:\w+\s+)?(?:\w{2,}(?:at|ut|it)[oaie]|detto|fatto"
    r"|visto|scritto|preso|messo|letto|aperto|chiuso|chiesto|speso|perso|deciso|promesso)\b"
    r"|(?:\bè|\bsono|\bsiamo|\bc'è)\s+(?:\w+\s+)?(?:stat|andat|venut|arrivat|successo|partit"
    r"|rimast|tornat|uscit|accadut)\w*\b",
    "nl": r"\b(?:was|waren|hadden|had|werd|werden|zei|zeiden|deed|deden|ging|gingen|kwam"
    r"|kwamen|gaf|kocht|kochten|gebeurde|vertelde|belde|schreef)\b"
    r"|\b(?:heb|hebt|heeft|hebben)\b[^!?]{0,200}\s(?-i:\w{0,12}ge\w{2,20}(?:d|t|en|aan)"
    r"|(?:be|ver|ont)\w{2,20}(?:d|t|en))\b|\b(?:is|zijn|ben)\b[^!?]{0,200}\s(?:gebeurd|geweest"
    r"|gegaan|gekomen|vertrokken|gebleven)\b",
    "pt": r"\b(?:foi|fui|fomos|foram|era|estava|tinha|disse\w*|fez|fiz|fizemos|fizeram|teve"
    r"|tive|veio|vieram|deu|estive|houve|aconteceu|recebeu|recebi|vendeu|vendi|escreveu|comeu"
    r"|comi|prometeu|comprei|falei|liguei|(?!estou)\w{3,}ou|\w{2,}(?:aram|eram|iram|ava))\b",
    "ru": r"\b(?:был[аои]?|(?:(?:по|на|с|за|при|у|пере|вы|рас|об|от|про|до|под)?(?:сказ|дел"
    r"|пис|говор|звон|обещ|куп|реш|вид|встрет|ходи|езди|работ|получ|слуш|стрет|прос|луч|бы|еха"
    r"|да|пригласи))[аеиоя]?л[аои]?(?:с[ья])?|при[шх]\w+|уш[её]?л[аои]?|произош\w+)\b",
}
"""By language, forms of the past tense that are seldom anything else."""
_OTHER_FORMS: Mapping[str, str] = {
    "en": r"\b(?:will|would|shall|should|must|going\s+to|plann\w+|suppos\w+|schedul\w+|due"
    r"|want\w*|need\w*|(?:have|has|had)\s+to|to\s+(?:attend|be|bring|buy|call|come|deliver|do"
    r"|finish|get|go|have|make|meet|pay|pick|see|send|ship|take|visit)"
    r"|weekly|usual\w*|always|regular\w*|normally|every|each|when\s+(?:was|were))\b",
    "de": r"\b(?:werde|werden|wird|würde\w*|soll\w*|muss\w*|müss\w+|plan(?:en|st|t|te\w*)|geplant"
    r"|vorhat\w*|wollt\w+|fällig"
    r"|wöchentlich\w*|immer|jede\w*|üblich\w*|normalerweise)\b",
    "es": r"\b(?:va|vamos|voy|van|iba|tengo|tiene|tenía|debo|debe|debía|hay\s+que"
    r"|había\s+que|plane\w+|previst\w+|quer\w+|(?!maría\b)\w*(?:[aeidb]r(?:é|á|emos|án|ía))"
    r"|siempre|cada|semanal\w*|normalmente|todos)\b",
    "fr": r"\b(?:va|vais|vont|allons|dois|doit|devait|devais|faut|fallait|prévu\w*"
    r"|\w+(?:erai|era|erons|eront|rait)"
    r"|toujours|chaque|hebdomadaire|tous)\b",
    "it": r"\b(?:devo|deve|dovevo|doveva|dobbiamo|vuole|voleva|previst\w+|\w+[aei](?:rò|rà"
    r"|remo|ranno|rebbe)"
    r"|sempre|ogni|settimanal\w+|tutti)\b",
    "nl": r"\b(?:zal|zullen|zou|zouden|ga|gaat|gaan|moet|moest|moeten|moesten|gepland|plannen"
    r"|altijd|elke|iedere|wekelijks\w*)\b",
    "pt": r"\b(?:vai|vou|vamos|vão|ia|tenho|tem\s+de|tem\s+que|tinha\s+de|tinha\s+que|devo"
    r"|deve|devia|quer|queria|previst\w+|marcad\w+|plane\w+|\w*[aei](?:rei|rá|remos|rão|ria)"
    r"|sempre|cada|semanal\w*|tod[ao]s)\b",
    "ru": r"\b(?:буд\w+|долж\w+|нужно|надо|запланир\w+|собира\w+"
    r"|всегда|кажд\w+|обычно|еженедельн\w+)\b",
}
"""By language, words that tell that a habit is asked for, or what was then still to come."""


def asks_for_what_was(text: str, language: str) -> bool:
    """Whether a question is in the past tense, and for neither plans nor habits."""
    past, other = _compile(language)
    return past.search(text) is not None and other.search(text) is None


@cache
def _compile(language: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    forms = _PAST_FORMS[language], _OTHER_FORMS[language]
    past, other = (re.compile(form, re.IGNORECASE) for form in forms)
    return past, other
