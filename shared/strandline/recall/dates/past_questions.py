# ruff: noqa: RUF001 -- words of Russian
"""Whether a question asks for what was, told by its language's past tense."""

import re
from collections.abc import Mapping
from functools import cache

_ENGLISH_PAST = (
    r"(?:(?!hundred)[a-z]{3,}(?<!e)ed|agreed|died|lied|owed|tied|used|ate|began|blew|bought|broke"
    r"|brought|built|burnt|came|caught|chose|dealt|drank|drew|drove|dug|fell|felt|flew|forgot|fought"
    r"|found|froze|gave|got|grew|heard|held|hid|kept|knew|laid|led|left|lent|lit|lost|made|met|paid"
    r"|ran|rang|rode|rose|said|sang|sank|sat|saw|sent|shook|shot|slept|sold|spent|spoke|stole|stood"
    r"|stuck|swam|swept|taught|threw|thought|told|took|understood|went|woke|won|wore|wrote)"
    r"\b(?!\s+by\b)"
)
_ENGLISH_WHO_OR_WHAT_DID = (
    r"(?:(?:^|[^\w\s])\s*|\b(?:about|and|know|me|or|remember|\w*day|afternoon|evening|morning|night)"
    r"\s+)who(?:\s+(?:all|also|else|first|just|last))?"
    rf"\s+(?:{_ENGLISH_PAST}|(?:beat|cost|cut|hit|hurt|let|put|quit|read|set|shut)\b)"
    rf"|\bwhat(?:\s+else)?\s+{_ENGLISH_PAST}"
    r"|\b(?:which|whose|how\s+many)(?:\s+(?!(?:am|are|be|can|do|does|get|has|have|is|may|must|should"
    r"|that|who|will)\b|(?:cost|feel|get|keep|like|look|need|remain|seem|stay|want)s?\b)\w+){1,3}?"
    rf"\s+{_ENGLISH_PAST}"
)
"""The past tense of a question without "did". After "who" only where it is no relative pronoun."""
_ENGLISH_PERFECT = (
    r"(?:\bha(?:s|ve)|['’]ve)\s+(?:\w+\s+){0,3}?(?:be(?:en|come|gun)|done|drunk|gone|run|sung|swum"
    r"|(?:brok|chos|driv|eat|fall|forgott|giv|hidd|ridd|ris|se|spok|stol|tak|wok|writt)en"
    rf"|(?:flow|grow|know|throw|wor)n|{_ENGLISH_PAST})\b[^!?]{{0,200}}\bthis\s+(?:week|month|quarter"
    r"|year)\b"
)
"""What has been, in a period that is not over. With a day it is a plan."""
_ENGLISH_DAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day\b"
ENGLISH_BEFORE_WEEKDAY = (
    r"(?:(?:on|happened|here|me|there|us)\s+"
    rf"|(?:did\s+(?!{_ENGLISH_DAY})[\w'’-]+|who)(?:,?\s+(?!{_ENGLISH_DAY})[\w'’-]+){{0,11}}?"
    r"\s+(?!(?:the|an?|my|your|his|our|their|this|that|next|last|past|every|each|any|some|one|on|of|for"
    r"|by|until|till|to|from|since|before|after|between|about|than|and|or|is|was|were|are|like|which"
    r"|what|if|whether|but|except|good|black|easter|palm|ash|holy|cyber|maundy|did)\s"
    r"|(?:book|cancel|choose|chose|confirm|mean|move|need|pick|prefer|propose|skip|suggest|want)"
    r"|\w+['’]s\s)[\w'’-]+\s+"
    r"(?=\w+(?:\s+(?:morning|afternoon|evening|night|noon))?(?:\s*(?:[?.!,;:)]|$)"
    r"|\s+(?:about|after|and|as|at|because|before|by|from|if|in|or|that|to|when|while|with)\b)))"
)
"""What precedes an English weekday that is a day: "on", or any word that does not make another noun
of it, where "did" or "who" comes before that word and the phrase ends with the weekday."""
_PAST_FORMS: Mapping[str, str] = {
    "en": rf"\b(?:did|was|were|had|happened)\b|{_ENGLISH_WHO_OR_WHAT_DID}|{_ENGLISH_PERFECT}",
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
    r"|\b(?:heb|hebt|heeft|hebben)\b[^!?]{0,200}\s(?-i:\w{0,12}ge(?:daan|had|\w{2,20}(?:d|t|en|aan))"
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
    "en": r"\b(?:used\s+to|weekly|usual\w*|always|regular\w*|normally|every|each"
    r"|when\s+(?:was|were))\b",
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
_PLAN_FORMS: Mapping[str, str] = {
    "en": r"\b(?:will|would|shall|should|must|could|might|going\s+to|plann\w+|suppos\w+|schedul\w+"
    r"|due(?!\s+to\b)|(?:have|has|had)\s+to|(?:he|I|it|she|they|we|you)['’](?:d|ll)"
    r"|am|are|arrives|can|comes|is|leaves|starts|(?:ask|wonder)(?:s|ed)?\s+(?:\w+\s+)?(?:if|whether)"
    r"|(?:say|said|think|thought)(?:\s+(?!about|at|by|from|in|of|on|to|with)\w+){0,4}?"
    r"\s+(?!yes\b)[a-z]{2,}[^\Ws]s(?=\s+(?:on\s+)?$)"
    r"|(?:agree|arrang|ask|decid|expect|hope|hoping|intend|invit|need|offer|plan|prepar|promis|refus"
    r"|remind|sign|tell|told|volunteer|want)\w*"
    r"(?:\s+\w+){0,3}?\s+to\s+(?!(?:the|an?|me|us|him|her|you|them|it|my|our|his|your|their)\b)"
    r"(?-i:[a-z]\w*)"
    r"|(?<!call\s)(?<!called\s)(?<!came\s)(?<!come\s)(?<!go\s)(?<!rang\s)(?<!went\s)to\s+(?:attend"
    r"|be|bring|buy|call|come|deliver|do|finish|get|go|have|make|meet|pay|pick|see|send|ship|take"
    r"|visit))\b"
}
"""By language, words that make a plan of what follows them, up to the next past tense. The day that
follows "called to make" is that of the call."""


def asks_for_what_was(head: str, tail: str, language: str) -> bool:
    """Whether a question is in the past tense, and for neither plans nor habits. Its words before a
    day, and those from it on, tell whether what is then still to come is for that day."""
    past, other, plan = _compile(language)
    sentence = head + tail
    if other.search(sentence) or not past.search(sentence):
        return False
    last_plan = max((match.end() for match in plan.finditer(head)), default=None)
    if last_plan is not None and not past.search(head, last_plan):
        return False
    return not plan.search(tail) or past.search(head) is not None


@cache
def _compile(language: str) -> tuple[re.Pattern[str], ...]:
    forms = _PAST_FORMS[language], _OTHER_FORMS[language], _PLAN_FORMS.get(language, "(?!)")
    return tuple(re.compile(form, re.IGNORECASE) for form in forms)
