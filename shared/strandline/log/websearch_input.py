"""Rewrite a caller's search text into a form that Postgres parses as intended.

`websearch_to_tsquery` reads every dash before a word as "not" and keeps pending ones on a stack of
32: a pasted rule, list or log line overflows it. Here only a single dash right before a word or a
phrase means "not"; all others are ignored.
"""

import re

_SPACE = r"\s\u180e\u200b\u2060\ufeff"
"""Characters that Postgres treats as a space on any platform, so that no word is split further
there."""
_OPERATORS = "!&|()"
"""Characters that Postgres ignores wherever they occur."""
_TERM = re.compile(
    rf"""(?P<dashes>-*)[{_OPERATORS}]*
    (?P<term>"[^"]*"?|[^-"{_OPERATORS}{_SPACE}][^"{_OPERATORS}{_SPACE}]*)""",
    re.VERBOSE,
)


def to_websearch_query(text: str) -> str:
    """The search in `websearch_to_tsquery` syntax: words, "phrases", `or`, and `-` before what must
    be absent. May be empty, which matches nothing."""
    return " ".join(
        ("-" if match["dashes"] == "-" else "") + _quote_term_with_colon(match["term"])
        for match in _TERM.finditer(text)
    )


def _quote_term_with_colon(term: str) -> str:
    """Quote a term with a colon as a phrase. Unquoted, Postgres reads `http://host/path` as the two
    words `http` and `//host/path`, and no text contains the second."""
    return f'"{term}"' if ":" in term and not term.startswith('"') else term
