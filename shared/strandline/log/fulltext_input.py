"""Prepare text for Postgres' full text parser, for the index and for queries alike.

The parser reads ahead from each position where a file name, a host, a number or a comment might
begin, and backtracks where there was none. For one long joined run (`a_a_a_…`, `1-a-1-a-…`,
`././…`) or a row of `<!--` that is never closed, its time grows with the square of the length. This
module splits such runs and blanks such marks, character for character, so that the time grows
linearly.

`websearch_to_tsquery` reads every dash before a word as "not" and keeps pending ones on a stack of
32: a pasted rule, list or log line overflows it. In a search of this service only a single dash
right before a word or a phrase means "not"; all others are ignored.
"""

import re

MAX_JOINERS = 64
"""The maximum number of joiners in one run: more than names, addresses and URLs of everyday text
have."""

_JOINERS = r"_\-./~@:+=?&%\#"
_RUN_END_CHARS = r"\s\x00-\x20!\"$'()*,;<>\[\\\]^`{|}\x7f\u2010-\u2027\u3000-\u303f\uff01-\uff0f"
"""Characters that end a run in Postgres on every platform. All others continue it, zero-width ones
too."""
_MEMBER = rf"[^{_RUN_END_CHARS}]"
# Matches only from a run's first character: trying each character would itself be quadratic.
_RUN = re.compile(rf"(?<!{_MEMBER}){_MEMBER}{{{MAX_JOINERS + 1},}}")
_JOINER_ROW = re.compile(rf"[{_JOINERS}]+")
_COMMENT, _COMMENT_END = "<!--", "-->"


def sanitize_for_parser(text: str) -> str:
    """The text for the parser, with the same length. In a run of more than MAX_JOINERS joiners,
    each joiner past the limit, with the joiners right behind it, becomes spaces, and the count
    starts again. The `<!` of an unclosed comment becomes two spaces. Any other text is returned
    unchanged."""
    return _RUN.sub(_split_joiner_run, _blank_open_comments(text))


def _split_joiner_run(run: re.Match[str]) -> str:
    count = 0

    def limit_joiners(row: re.Match[str]) -> str:
        nonlocal count
        remaining, count = MAX_JOINERS - count, count + len(row[0])
        if count <= MAX_JOINERS:
            return row[0]
        # To the end of the row: in a web search, a dash after the space would mean "not".
        count = 0
        return row[0][:remaining].ljust(len(row[0]))

    return _JOINER_ROW.sub(limit_joiners, run[0])


def _blank_open_comments(text: str) -> str:
    """Blank the start of unclosed comments only. A closed comment is parsed once, and none of its
    words are indexed."""
    last_end = text.rfind(_COMMENT_END)
    start = max(0, last_end - len(_COMMENT) + 1)
    comment_start = text.find(_COMMENT, start)
    if comment_start < 0:
        return text
    return text[:comment_start] + text[comment_start:].replace(_COMMENT, "  --")


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
