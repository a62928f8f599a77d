"""Escape stored text as data in a prompt: it cannot start a line, close its fence, or pass for a
tag or a citation."""

import hashlib
import itertools
import re
from collections.abc import Sequence

_MARK_DIGITS = 12
LINE_BREAK = "⏎"
"""Replaces the line breaks of stored text, so that every line of a block is written by the
service."""

_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
"""Characters that are invisible or change the direction of the following text. Those that join
letters and emoji are kept."""
_JOINERS = "\u200c\u200d\ufe0e\ufe0f"
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]+")
# Not a single space, which stays as it is: most of a text's white space is that.
_SPACE = re.compile("(?:[^\\S ]|\u2800)[\\s\u2800]*| [\\s\u2800]+")
_BREAKS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_TAG = re.compile(rf"[<\uff1c\ufe64](?=[{_JOINERS}]*[!?A-Za-z]|[\s{_JOINERS}]*[/|])")
"""Also matches the special tokens of models, such as `<|im_start|>`."""
_CODE_FENCE = re.compile(r"([`~])\1{2,}")
_DIGIT = "\\d\u00b2\u00b3\u00b9\u2070-\u2079\u2080-\u2089\u2460-\u24ff"
_OPENING, _CLOSING = "\\[\uff3b\u3010\u3014\u27e6", "\\]\uff3d\u3011\u3015\u27e7"
_CITATION = re.compile(
    rf"[{_OPENING}]([\s\\^#{_JOINERS}]*[{_DIGIT}][\s\\^#,;\u2013{_JOINERS}{_DIGIT}-]*)[{_CLOSING}]"
)
_ENDS_LABEL = re.compile(rf"[(){{}}<>:\uff08\uff09\uff1a\u2039{LINE_BREAK}{_OPENING}{_CLOSING}]")


def sanitize_to_one_line(text: str) -> str:
    """Stored text on one line: without invisible and control characters, with U+2039 in place of a
    `<` that could open a tag, and with round instead of square brackets around a number."""
    text = _CONTROL.sub("\ufffd", _INVISIBLE.sub("", text))
    text = _SPACE.sub(_collapse_whitespace, text).strip()
    text = _CODE_FENCE.sub("'''", _TAG.sub("\u2039", text))
    return _CITATION.sub(r"(\1)", text)


def _collapse_whitespace(space: re.Match[str]) -> str:
    return f" {LINE_BREAK} " if _BREAKS.search(space[0]) else " "


def sanitize_label(text: str, max_chars: int) -> str:
    """A name or a topic on one line, with `_` in place of characters that end a label in a
    block."""
    label = _ENDS_LABEL.sub("_", sanitize_to_one_line(text[: 4 * max_chars])) or "_"
    return label if len(label) <= max_chars else label[: max_chars - 1] + "…"


def enclose_in_hashed_tags(lines: Sequence[str]) -> str:
    """Enclose the lines in two tags whose name is a hash of all lines, so that no line contains it.
    The same lines give the same text."""
    body = "\n".join(lines)
    hashes = (
        hashlib.sha256(f"{attempt}\n{body}".encode()).hexdigest()[:_MARK_DIGITS]
        for attempt in itertools.count()
    )
    mark = next(mark for mark in hashes if mark not in body)
    return f"<memory-{mark}>\n{body}\n</memory-{mark}>"


FENCE_BYTES = len(enclose_in_hashed_tags([]))
"""The bytes that the tags add to the lines between them."""
