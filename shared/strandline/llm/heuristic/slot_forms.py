"""The forms of English clauses that fill a slot of somebody's life or end what filled it.

Each form stands twice: in the first person, as people speak, and in the third, as facts are
written. A group `value` is what fills the slot, `old` what the clause says no longer does, `topic`
what the value is for, in some forms called `use`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

type Required = Literal["being", "doing", "possessive", "proposal", "plan"]
type Slot = Literal["home", "job", "tool", "plan", "preference"]

_NAME_WORD = r"[A-Z][\w+#&-]*\w(?:'(?!s\b)\w+)?"
_NAME = rf"{_NAME_WORD}(?: {_NAME_WORD}){{0,3}}"
_PLACE = rf"(?:the )?{_NAME_WORD}(?: (?:(?:am|upon|an der|de|la|le|del) )?{_NAME_WORD}){{0,2}}"
_WORDS = r"[^;:.!?…\n]+?"
_ROLE = r"[a-z][\w -]{2,50}?"
_ROLE_END = r"(?= (?:at|for|in|on|with|of|now|these days)\b|[,.;:!?]|$)"
_CLAUSE_END = r"(?=[,;:.!?…\n]|$| (?:and|but|because|since|now|instead|from now on|any ?more)\b)"
_NOUN = r"[a-z][\w-]*(?: [a-z][\w-]*){0,3}?"
_TOPIC = r"[A-Za-z][\w/-]*(?: [a-z][\w-]*){0,3}?"
_ADVERBS = (
    r"(?:(?:now|just|finally|recently|also|both|all|already|currently|still|mostly|mainly|"
    r"actually|really|always) )*"
)
_NO_MORE = r"any ?(?:more|longer)"
ADJECTIVES = (
    r"[a-z-]+, (?!(?:not|but|and|or|nor|because|so|since|as|although|though|if|when|while|then|"
    r"even|especially|mostly|mainly|usually|actually|really|just|only|too|no|than|instead|rather|please|"
    r"thanks|both|to|for|in|on|at|with|without|is|are|do|i|my|our|his|her|their|your|the|an?|it|he|"
    r"she|they|we|you|this|that|which|who)\b)(?=[a-z-]+ [a-z])"
)
"""An adjective before another and a noun: slow, quiet films."""
_FOR_USE = (
    r"(?: for (?!(?:an?|one|two|three|four|some|many|\d+|everything|now|years|months|weeks)\b)"
    rf"(?:all )?(?:our |my |the |his |her |their )?(?P<use>{_TOPIC}){_CLAUSE_END})?"
)
_INSTEAD_OF = rf"(?:[^;:.!?…\n]*? instead of (?P<old>{_NAME}))?"


class SlotClauseForm(NamedTuple):
    """A form of a clause."""

    pattern: re.Pattern[str]
    slot: Slot
    aspect: str
    """Which part of the slot, or by which kind of verb; "" where there is only one."""
    is_change: bool
    """Whether the form itself says that something changed or ended."""
    required: Required | None = None
    """What a text must hold for the form to match: looked for first, as that is quicker."""
    begins_with_required: bool = False
    """Whether the form begins where that is found."""


def find_form(
    form: SlotClauseForm, text: str, places: Mapping[Required, Sequence[int]]
) -> Iterable[re.Match[str]]:
    """As `form.pattern.finditer`, given the places of what forms require (`find_required`)."""
    if form.required is None:
        return form.pattern.finditer(text)
    if not (required_places := places[form.required]):
        return ()
    if not form.begins_with_required:
        return form.pattern.finditer(text)
    matches: list[re.Match[str]] = []
    end = 0
    for place in required_places:
        if place >= end and (match := form.pattern.match(text, place)):
            end = match.end()
            matches.append(match)
    return matches


_SOURCES: Sequence[tuple[Slot, str, bool, str]] = (
    ("home", "", False, rf"{{S}} {_ADVERBS}lives? {_ADVERBS}(?:in|near|at|on) (?P<value>{_PLACE})"),
    ("home", "", False, rf"{{AM}} {_ADVERBS}(?:based|living|settled) in (?P<value>{_PLACE})"),
    ("home", "place", False, rf"{{AM}} in (?P<value>{_PLACE})(?= (?:now|these days)\b)"),
    (
        *("home", "moved", True),
        rf"{{HAVE}} {_ADVERBS}(?:moved|relocated) (?:back |over |house |out )?"
        rf"(?:from (?P<old>{_PLACE}) )?(?:to|into) (?P<value>{_PLACE})\b(?! ?\d)",
    ),
    ("home", "", True, rf"{{S}} {_ADVERBS}no longer lives? (?:in|near|at) (?P<old>{_PLACE})"),
    (
        *("home", "", True),
        r"{S} (?:don't|do not|doesn't|does not) live (?:in|near|at)"
        rf" (?P<old>{_PLACE}) {_NO_MORE}",
    ),
    (
        *("job", "employer", False),
        rf"{{S}} {_ADVERBS}works? {_ADVERBS}(?:at|for) (?:the )?(?P<value>{_NAME})",
    ),
    (
        *("job", "role", False),
        rf"{{S}} {_ADVERBS}works? (?:[^;:.!?…\n]*? )?as (?:an? |the )?(?P<value>{_ROLE})"
        rf"{_ROLE_END}",
    ),
    (
        *("job", "role", False),
        rf"{{AM}} {_ADVERBS}(?:the|an?) (?P<value>{_ROLE}) (?:at|for|of) (?:the )?{_NAME}",
    ),
    (
        *("job", "bare role", False),
        rf"{{AM}} (?:now )?(?:the |an? )?(?!(?:not|no|so|very|in|on|at|\w+ing)\b)"
        rf"(?P<value>{_ROLE}){_ROLE_END}",
    ),
    (
        *("job", "employer", True),
        rf"{{HAVE}} {_ADVERBS}(?:left|quit|resigned from) (?:my job at )?(?P<old>{_NAME})"
        rf"(?:[^;:.!?…\n]*? and (?:joined|started (?:work )?(?:at|with|for)) (?P<value>{_NAME}))?"
        r"(?= (?:and|last|for good|two|three|four|a few|a|this) \w|[,.;:!?…\n]|$"
        r"| (?:yesterday|today))",
    ),
    (
        *("job", "employer", True),
        rf"{{HAVE}} {_ADVERBS}(?:started|got|taken|took) (?:a |my )?new job (?:at|with|for)"
        rf" (?:the )?(?P<value>{_NAME})",
    ),
    ("job", "employer", True, rf"{{S}} {_ADVERBS}no longer works? (?:at|for) (?P<old>{_NAME})"),
    (
        *("job", "employer", True),
        rf"{{S}} (?:don't|do not|doesn't|does not) work (?:at|for) (?P<old>{_NAME}) {_NO_MORE}",
    ),
    (
        *("job", "role", True),
        rf"{{AM}} no longer (?:the |an? )?(?P<old>{_ROLE}){_ROLE_END}",
    ),
    ("job", "role", True, rf"{{AM}} not (?:the |an? )?(?P<old>{_ROLE}) {_NO_MORE}"),
    (
        *("tool", "", False),
        rf"{{S}} {_ADVERBS}(?:uses?|runs?) (?:the )?(?P<value>{_NAME}){_FOR_USE}{_INSTEAD_OF}",
    ),
    (
        *("tool", "", False),
        rf"{{AM_OR_HAVE_BEEN}} {_ADVERBS}using (?P<value>{_NAME}){_FOR_USE}{_INSTEAD_OF}",
    ),
    (
        *("tool", "", True),
        rf"{{HAVE}} {_ADVERBS}(?:switched|migrated) (?:over |everything |all |back |(?:the|our|my)"
        rf" (?P<topic>{_NOUN}) )*(?:from (?P<old>{_NAME}) )?(?:over )?to (?:the )?"
        rf"(?P<value>{_NAME}){_FOR_USE}",
    ),
    (
        *("tool", "", True),
        rf"{{HAVE}} {_ADVERBS}moved (?:everything|all|(?:the|our|my) (?P<topic>{_NOUN}))"
        rf" (?:over )?(?:from (?P<old>{_NAME}) )?(?:over )?to (?P<value>{_NAME})",
    ),
    (
        *("tool", "", True),
        rf"{{HAVE}} {_ADVERBS}replaced (?P<old>{_NAME}) (?:with|by) (?P<value>{_NAME})",
    ),
    (
        *("tool", "", True),
        rf"[Ll]et's {_ADVERBS}(?:switch(?: over)?(?: to|:)|move(?: over)? to|use|take|go with)"
        rf" (?P<value>[\w.+#-]+(?: {_NAME_WORD})?)(?: \d+)?[^;:.!?…\n]*? instead of"
        rf" (?P<old>{_NAME})",
    ),
    (
        *("tool", "", True),
        rf"[Ll]et's switch(?: over)? to (?P<value>{_NAME})",
    ),
    (
        *("tool", "", False),
        rf"(?:[Aa]ll )?(?:of )?{{MY}} (?P<topic>{_NOUN}) (?:is|are|lives?|runs?) (?:in|on)"
        rf" (?P<value>{_NAME})",
    ),
    ("tool", "", True, rf"{{S}} {_ADVERBS}no longer (?:uses?|runs?) (?P<old>{_NAME})"),
    (
        *("tool", "", True),
        rf"{{S}} (?:don't|do not|doesn't|does not) use (?P<old>{_NAME}){_FOR_USE} {_NO_MORE}",
    ),
    (
        *("tool", "", True),
        rf"{{HAVE}} {_ADVERBS}(?:stopped using|dropped|ditched|uninstalled) (?P<old>{_NAME})",
    ),
    ("plan", "intends", False, rf"{{AM}} {_ADVERBS}planning to (?P<value>{_WORDS}){_CLAUSE_END}"),
    ("plan", "intends", False, rf"{{S}} {_ADVERBS}plans? to (?P<value>{_WORDS}){_CLAUSE_END}"),
    ("plan", "", False, rf"{{AM}} {_ADVERBS}going to (?P<value>[a-z]{_WORDS}){_CLAUSE_END}"),
    (
        *("plan", "", False),
        rf"{{THE}} (?P<topic>{_NOUN}) (?:will be|takes place|is planned|is scheduled|is set)"
        rf" (?:in|on|at|for) (?P<value>{_WORDS}){_CLAUSE_END}",
    ),
    (
        *("plan", "", True),
        rf"{{THE}} (?P<topic>{_NOUN}) (?:has been|have been|was|were|is|are|got) (?:now )?"
        r"(?:postponed|moved|pushed(?: back)?|rescheduled|brought forward|delayed)"
        rf" (?:from {_WORDS} )?(?:to|until) (?P<value>{_WORDS}){_CLAUSE_END}",
    ),
    (
        *("plan", "", True),
        rf"{{HAVE}} {_ADVERBS}(?:postponed|pushed(?: back)?|rescheduled|moved|delayed)"
        rf" (?:the|our|my) (?P<topic>{_NOUN}) (?:from {_WORDS} )?(?:to|until)"
        rf" (?P<value>(?!{_NAME_WORD} {_CLAUSE_END}){_WORDS}){_CLAUSE_END}",
    ),
    (
        *("plan", "", True),
        r"(?:(?<=^)|(?<=[,;:] )|(?<=\band )|(?<=\bso )){MY_OR}(?P<old>[\w'][\w' -]{2,40}?)"
        r" (?:is|are|was|were|has been|have been|got|is now) (?:cancelled|canceled|called off)",
    ),
    (
        *("plan", "", True),
        rf"{{HAVE}} {_ADVERBS}(?:cancelled|canceled|called off) (?:the |our |my )?"
        rf"(?P<old>{_WORDS}){_CLAUSE_END}",
    ),
    ("plan", "", True, rf"{{AM}} no longer (?:going|planning) to (?P<old>{_WORDS}){_CLAUSE_END}"),
    ("plan", "", True, rf"{{AM}} not (?:going|planning) to (?P<old>{_WORDS}) {_NO_MORE}"),
    (
        *("preference", "prefer", False),
        rf"{{S}} {_ADVERBS}(?:prefers?|favou?rs?) (?P<value>(?:{ADJECTIVES})?{_WORDS})"
        rf"{_CLAUSE_END}",
    ),
    (
        *("preference", "prefer", False),
        rf"{{S}} {_ADVERBS}likes? (?P<value>{_WORDS}) (?:better|more)\b",
    ),
    (
        *("preference", "like", False),
        rf"{{S}} {_ADVERBS}(?:likes?|loves?|enjoys?) (?P<value>{_WORDS}){_CLAUSE_END}",
    ),
    (
        *("preference", "like", False),
        r"(?P<value>[\w][\w -]{2,30}?) (?:is|are) {MY} (?:thing|favou?rite)\b",
    ),
    (
        *("preference", "like", True),
        r"{S} (?:don't|do not|doesn't|does not) (?:like|love|enjoy|prefer|want)"
        rf" (?P<old>{_WORDS}) {_NO_MORE}",
    ),
    (
        *("preference", "use", True),
        r"{S} (?:don't|do not|doesn't|does not) (?:drink|eat|play|watch|read|wear)"
        rf" (?P<old>{_WORDS}) {_NO_MORE}",
    ),
    (
        *("preference", "like", True),
        rf"{{S}} {_ADVERBS}no longer (?:likes?|loves?|enjoys?|prefers?|wants?)"
        rf" (?P<old>{_WORDS}){_CLAUSE_END}",
    ),
    (
        *("preference", "use", True),
        rf"{{S}} {_ADVERBS}no longer (?:drinks?|eats?|plays?|watch(?:es)?|reads?|wears?)"
        rf" (?P<old>{_WORDS}){_CLAUSE_END}",
    ),
)
_REQUIRED: Mapping[Required, re.Pattern[str]] = {
    "being": re.compile(r"\b(?:[Ii]|[Ww]e)(?= am|'m| are|'re|(?: have|'ve)? been)"),
    "doing": re.compile(
        rf"\b(?:[Ii]|[Ww]e)(?=(?: have|'ve)? {_ADVERBS}(?:live|move|relocat|work|left|quit|resign|"
        r"start|got|taken|took|use|run|switch|migrat|replac|stop|drop|ditch|uninstall|plan|"
        r"postpon|push|reschedul|delay|cancel|called|prefer|favo|like|love|enjoy|no longer|do))"
    ),
    "possessive": re.compile(
        rf"\b(?:[Mm]y|[Oo]ur) (?:thing|favou?rite|{_NOUN} (?:is|are|lives?|runs?) (?:in|on) )"
    ),
    "proposal": re.compile(r"[Ll]et's"),
    "plan": re.compile(
        r"will be|takes place|is (?:planned|scheduled|set)|postponed|moved|pushed|rescheduled|"
        r"brought forward|delayed|cancell?ed|called off"
    ),
}
_REQUIRED_BY_BEGINNING: Mapping[str, Required] = {
    "{AM": "being",
    "{S}": "doing",
    "{HAVE}": "doing",
    "[Ll]et's": "proposal",
    "{THE}": "plan",
}
"""What forms in the first person require that begin so; all others require a possessive or, of what
is called off, a plan."""
_FIRST_PERSON: Mapping[str, str] = {
    "{S}": r"\b(?:[Ii]|[Ww]e)",
    "{AM}": r"\b(?:[Ii](?: am|'m)|[Ww]e(?: are|'re))",
    "{HAVE}": r"\b(?:[Ii]|[Ww]e)(?: have|'ve)?",
    "{AM_OR_HAVE_BEEN}": (
        r"\b(?:(?:[Ii](?: am|'m)|[Ww]e(?: are|'re))|(?:[Ii]|[Ww]e)(?: have|'ve)? been)"
    ),
    "{MY}": r"\b(?:[Mm]y|[Oo]ur)",
    "{MY_OR}": r"(?:(?:[Mm]y|[Oo]ur|[Tt]he) )?",
    "{THE}": r"\b(?:[Tt]he|[Mm]y|[Oo]ur)",
}
_SUBJECT = r"^(?P<subject>[^\s,;:.!?]{1,60}(?: [A-Z][^\s,;:.!?]{0,59}){0,3})"
_THIRD_PERSON: Mapping[str, str] = {
    "{S}": _SUBJECT,
    "{AM}": rf"{_SUBJECT} is",
    "{HAVE}": rf"{_SUBJECT}(?: has)?",
    "{MY}": rf"{_SUBJECT}'s",
    "{MY_OR}": rf"{_SUBJECT}'s ",
    "{THE}": rf"{_SUBJECT}'s",
}


def _compile_slot_forms(persons: Mapping[str, str]) -> Sequence[SlotClauseForm]:
    forms: list[SlotClauseForm] = []
    for slot, aspect, is_change, source in _SOURCES:
        required = _find_requirement(source) if persons is _FIRST_PERSON else None
        begins_with_required = required in ("being", "doing", "proposal")
        for mark, text in persons.items():
            source = source.replace(mark, text)
        pattern = re.compile(source)
        forms.append(
            SlotClauseForm(pattern, slot, aspect, is_change, required, begins_with_required)
        )
    return forms


def _find_requirement(source: str) -> Required:
    """What a form in the first person requires."""
    for beginning, required in _REQUIRED_BY_BEGINNING.items():
        if source.startswith(beginning):
            return required
    return "possessive" if "{MY}" in source else "plan"


def find_required(text: str) -> Mapping[Required, Sequence[int]]:
    """The places in a text of all that forms require."""
    return {
        name: [match.start() for match in pattern.finditer(text)]
        for name, pattern in _REQUIRED.items()
    }


def may_match_any(text: str) -> bool:
    """Whether the text holds what any form requires."""
    return any(pattern.search(text) for pattern in _REQUIRED.values())


SPOKEN: Sequence[SlotClauseForm] = _compile_slot_forms(_FIRST_PERSON)
"""The forms as people speak of themselves."""
FACTS: Sequence[SlotClauseForm] = [
    form
    for form in _compile_slot_forms(_THIRD_PERSON)
    if "subject" in form.pattern.groupindex and "value" in form.pattern.groupindex
]
"""The forms as facts speak of somebody."""
