"""Which payloads are text, and their bytes as text."""

import codecs
import re

from strandline.observability import logger

SNIFFED_BYTES = 64 * 1024
"""The character set of a payload that does not name its own is told from so many bytes, the first:
however much of it is read, the positions of its characters are the same."""

_TEXT_TYPES = re.compile(
    r"text/.+|.+\+(json|xml|yaml)"
    r"|application/(json|xml|yaml|x-yaml|toml|sql|javascript|jsonl|x-ndjson|ndjson)"
)
_PARAMETER = re.compile(r"(; ?)([^=;\s\"]+)=(\"[^\"]*\"|[^;]*)")
"""A parameter of a media type: what precedes its name, the name, the value."""
_CHARSET_NAME = re.compile(r"[\w.:-]{1,40}", re.ASCII)
"""Python remembers each name that it looks up, known or not, and some are an error to it."""
_CODECS = re.compile(
    r"utf-(8|16|32)(-[lb]e)?|iso8859-\d+|cp\d+|koi8-[rtu]|mac-\w+|tis-620"
    r"|gb(k|2312|18030)|big5\w*|shift_jis\w*|euc_\w+"
)
"""Python's names of character sets that it reads whatever the bytes are. Its decoders of ISO-2022
fail on some; its other codecs are no character sets."""
_ONE_BYTE_CODECS = re.compile(r"iso8859-\d+|cp\d{3,4}|koi8-[rtu]|mac-\w+|tis-620")
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins as that of UTF-16 does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_ASCII, _BEYOND_ASCII = bytes(range(128)), bytes(range(128, 256))
_NOT_IN_WESTERN_TEXT = bytes([*range(9), 11, *range(14, 32), 127, 0x81, 0x8D, 0x8F, 0x90, 0x9D])
"""Control characters, and bytes without a character in Windows-1252."""
_WEB_CODECS = {
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "utf-16": "utf-16-le",
    "utf-32": "utf-32-le",  # where no byte order mark says more
}
"""What is meant by these names: https://encoding.spec.whatwg.org/#names-and-labels"""


def is_text_type(mime_type: str | None) -> bool:
    """Whether a payload of this type is read as text: full-text search finds it, and a model is
    shown it. False for text in a character set that is not known."""
    kind, _, _ = (mime_type or "").lower().partition(";")
    return _TEXT_TYPES.fullmatch(kind.strip()) is not None and _find_codec(mime_type) is not None


def declare_utf8(mime_type: str) -> str:
    """The media type of a text that is stored as UTF-8, whatever character set it named."""

    def declare(parameter: re.Match[str]) -> str:
        before, name, value = parameter.groups()
        is_other = name.lower() == "charset" and value.lower().strip('"') not in ("utf-8", "utf8")
        return f"{before}{name}=utf-8" if is_other else parameter[0]

    return _PARAMETER.sub(declare, mime_type)


def decode_payload_text(data: bytes, size: int, mime_type: str | None) -> str:
    """The first `size` bytes of a payload as text that can be stored; `data` has these, and at
    least SNIFFED_BYTES where there are so many. A character cut off at the end is dropped. Bytes
    that are no character, and NUL, become U+FFFD, so that positions stay right."""
    head = data[:SNIFFED_BYTES]
    if len(head) == SNIFFED_BYTES:  # it may end within a character
        head = head.rstrip(_BEYOND_ASCII)
    codec = _choose_codec(head, _find_codec(mime_type) or "")
    try:
        text = codecs.getincrementaldecoder(codec)("replace").decode(data[:size])
    except UnicodeError:  # the decoder's own fault: the payload must not hold up its scope
        logger.warning("payload not decoded", extra={"codec": codec})
        text = data[:size].decode("ascii", "replace")
    return text.replace("\0", "\ufffd")


def _find_codec(mime_type: str | None) -> str | None:
    """Python's name of the character set that a media type names; None if it is not known. Without
    one, and for UTF-8 and ASCII, with which texts of any kind are marked, an empty text."""
    parameters = _PARAMETER.findall((mime_type or "").lower())
    charset = next((value.strip('" ') for _, name, value in parameters if name == "charset"), "")
    if not charset:
        return ""
    if not _CHARSET_NAME.fullmatch(charset):
        return None
    try:
        name = codecs.lookup(charset).name
    except LookupError:
        return None
    if name in ("utf-8", "ascii"):
        return ""
    name = _WEB_CODECS.get(name, name)
    return name if _CODECS.fullmatch(name) else None


def _choose_codec(head: bytes, declared: str) -> str:
    """The codec of a payload that begins so."""
    for mark, codec in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return codec
    is_utf8 = _is_utf8(head)
    if declared and not (is_utf8 and _ONE_BYTE_CODECS.fullmatch(declared)):
        return declared
    if is_utf8:
        return "utf-8"
    return declared or ("cp1252" if _is_western(head) else "utf-8")


def _is_utf8(head: bytes) -> bool:
    """Whether bytes are UTF-8 beyond ASCII, damaged at a few places at the most."""
    text = head.decode("utf-8", "replace")
    faults = text.count("\ufffd") - head.count("\ufffd".encode())
    return len(text) - (len(head) - _count_beyond_ascii(head)) > 2 * faults


def _is_western(head: bytes) -> bool:
    """Whether bytes are plausible text in Windows-1252: mostly ASCII, with some letters beyond."""
    is_text = len(head.translate(None, _NOT_IN_WESTERN_TEXT)) == len(head)
    return is_text and 0 < 3 * _count_beyond_ascii(head) <= len(head)


def _count_beyond_ascii(head: bytes) -> int:
    return len(head.translate(None, _ASCII))
