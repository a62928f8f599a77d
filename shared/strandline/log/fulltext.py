"""Text as Postgres' full text parser is given it, for the index and for questions alike.

The parser reads ahead from each place where a file name, a host, a number or a comment might
begin, and goes back where it was none: over one long joined run (`a_a_a_…`, `1-a-1-a-…`, `././…`)
or a row of `<!--` that nothing closes, its time grows with the square of the length. Here such runs
are parted and such marks blanked, one character for one, so that it grows with the length alone.
"""

import re

MAX_JOINERS = 64
"""How many joiners one run may hold: more than names, addresses and URLs of everyday text have."""

_JOINERS = r"_\-./~@:+=?&%\#"
_RUN_END_CHARS = r"\s\x00-\x20!\"$'()*,;<>\[\\\]^`{|}\x7f\u2010-\u2027\u3000-\u303f\uff01-\uff0f"
"""What ends a run for any platform's Postgres. All else goes on with it: what has no width, too."""
_MEMBER = rf"[^{_RUN_END_CHARS}]"
# Only from a run's first character: from each of them, the search would itself be quadratic.
_RUN = re.compile(rf"(?<!{_MEMBER}){_MEMBER}{{{MAX_JOINERS + 1},}}")
_JOINER_ROW = re.compile(rf"[{_JOINERS}]+")
_COMMENT, _COMMENT_END = "<!--", "-->"


def sanitize_for_parser(text: str) -> str:
    """The same text, as long, for the parser: in a run of more than MAX_JOINERS joiners each one
    past these is a space, with the joiners right behind it, and the count begins anew; `<!` of a
    comment that does not end is two spaces. Any other text is returned as it is."""
    if len(text) <= MAX_JOINERS:
        return text
    return _RUN.sub(_split_run, _blank_open_comments(text))


def _split_run(run: re.Match[str]) -> str:
    count = 0

    def limit_joiners(row: re.Match[str]) -> str:
        nonlocal count
        remaining, count = MAX_JOINERS - count, count + len(row[0])
        if count <= MAX_JOINERS:
            return row[0]
        # To the row's end: in a web search a dash that stood behind the space would be a "not".
        count = 0
        return row[0][:remaining].ljust(len(row[0]))

    return _JOINER_ROW.sub(limit_joiners, run[0])


def _blank_open_comments(text: str) -> str:
    """Only those: a comment that ends is read once, and none of its words are indexed."""
    last_end = text.rfind(_COMMENT_END)
    start = max(0, last_end - len(_COMMENT) + 1)
    comment_start = text.find(_COMMENT, start)
    if comment_start < 0:
        return text
    return text[:comment_start] + text[comment_start:].replace(_COMMENT, "  --")
