"""What a caller looks for in the words of a text, spelled so that Postgres reads each spelling.

`websearch_to_tsquery` takes every dash before a word for a "not" and keeps those that wait for
their word on a stack of 32: a pasted rule, list or log line overflows it. Only a single dash right
before a word or a phrase is a "not" here; all others stand for nothing.
"""

import re

_SPACE = r"\s\u180e\u200b\u2060\ufeff"
"""Whatever any platform's Postgres takes for a space: nothing parts a word further there."""
_IGNORED = "!&|()"
"""What Postgres passes over wherever it stands."""
_TERM = re.compile(
    rf"""(?P<dashes>-*)[{_IGNORED}]*
    (?P<term>"[^"]*"?|[^-"{_IGNORED}{_SPACE}][^"{_IGNORED}{_SPACE}]*)""",
    re.VERBOSE,
)


def to_websearch_query(text: str) -> str:
    """The same search in a spelling that Postgres reads: words, "phrases", `or`, and `-` before
    what is not to be there. May be empty, which nothing answers."""
    return " ".join(
        ("-" if match["dashes"] == "-" else "") + _quote_address(match["term"])
        for match in _TERM.finditer(text)
    )


def _quote_address(term: str) -> str:
    """An address with a colon as a phrase: by itself Postgres reads `http://host/path` as the two
    words `http` and `//host/path`, of which no text holds the second."""
    return f'"{term}"' if ":" in term and not term.startswith('"') else term
