"""The character set of a payload's text."""

import codecs
import encodings
import pkgutil
import random
import re
from unittest.mock import patch

import pytest

from strandline.aws import payload_texts
from strandline.aws.payload_texts import SNIFFED_BYTES, decode_payload_text, is_text_type

GERMAN = "Grüße: Der Schlüssel für das Bootshaus hängt überm Tor: „hinter“ Öse 3, 5 €."
RUSSIAN = "Запасной ключ висит за цаплей."
JAPANESE = "予備の鍵は青鷺の後ろにある。"


def decode(data: bytes, mime_type: str | None = "text/plain", size: int = 1_000_000) -> str:
    return decode_payload_text(data, size, mime_type)


@pytest.mark.parametrize(
    ("text", "codec", "mime_type"),
    [
        (GERMAN, "utf-8", "text/plain"),
        (GERMAN, "utf-8", "text/plain; charset=us-ascii"),
        (GERMAN, "utf-8", "text/plain; charset=iso-8859-1"),
        (GERMAN, "utf-16", "text/plain"),
        (GERMAN, "utf-16", "text/plain; charset=utf-8"),
        (GERMAN, "utf-32", "text/csv"),
        (GERMAN, "utf-16-be", "text/plain; charset=UTF-16BE"),
        (GERMAN, "cp1252", "text/plain"),
        (GERMAN, "cp1252", "text/plain; charset=utf-8"),
        (GERMAN, "cp1252", 'text/plain; charset="ISO-8859-1"'),
        ("Olé", "cp1252", "text/plain"),
        ("Notes \ufffd of the summer.", "utf-8", "text/plain"),
        ("Notes \ufffd of the summer.", "utf-8", "text/plain; charset=iso-8859-1"),
        (RUSSIAN, "utf-8", "text/plain"),
        (RUSSIAN, "koi8-r", "text/plain; charset=koi8-r"),
        (RUSSIAN, "cp1251", "text/plain; charset=windows-1251"),
        (JAPANESE, "utf-8", "text/plain"),
        (JAPANESE, "shift_jis", "text/plain; charset=Shift_JIS"),
        (JAPANESE, "euc_jp", "text/plain; charset=EUC-JP"),
        (JAPANESE, "gb18030", "text/plain; charset=gb18030"),
        ("plain words", "ascii", "text/plain; charset=iso-8859-15"),
        ("", "utf-8", "text/plain"),
    ],
)
def test_payload_text_is_read_in_its_character_set(text: str, codec: str, mime_type: str) -> None:
    assert is_text_type(mime_type)
    assert decode(text.encode(codec), mime_type) == text


def test_payload_text_keeps_utf8_with_few_faults() -> None:
    data = GERMAN.encode()
    assert decode(data + b"\xff") == f"{GERMAN}\ufffd"
    assert decode(data, size=3) == "Gr", "the rest of a character is cut off"
    assert decode("é".encode() * 9 + b"\xe9") == "é" * 9


def test_payload_text_guesses_no_character_set_of_other_scripts() -> None:
    for data in (RUSSIAN.encode("koi8-r"), JAPANESE.encode("shift_jis"), b"\xe9\x00\x01 binary"):
        assert "\ufffd" in decode(data)


@pytest.mark.parametrize("codec", ["utf-8", "cp1252", "utf-16"])
def test_payload_text_has_same_positions_however_much_is_read(codec: str) -> None:
    """Also where other bytes come later, and where what tells the set ends within a character."""
    for filler in ("a" * 65_530, "wenn Ä " * 12_000):
        for shift in range(8):
            data = (filler[shift:] + GERMAN * 3).encode(codec)
            whole = decode(data + b"\xff\xfe\x81")
            assert len(data) > SNIFFED_BYTES
            for size in (1, 100, SNIFFED_BYTES - 1, SNIFFED_BYTES, SNIFFED_BYTES + 50):
                assert whole.startswith(decode(data, size=size))
    text = "a" * (SNIFFED_BYTES - 1) + GERMAN
    assert decode(text.encode()) == text


def test_payload_text_can_be_stored() -> None:
    for charset in ("utf-8", "utf-16", "utf-16be", "utf-32", "utf-32be", "gb18030", "cp1252"):
        mime_type = f"text/plain; charset={charset}"
        text = decode(b"\x00\xd8a\x00\x00\x00b\x00\xff\xdf\x00\x00", mime_type)
        assert "\0" not in text
        assert text.encode(), "no half of a character"


def test_payload_text_of_any_bytes_is_read_in_every_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(payload_texts, "logger", None)  # it notes a decoder that fails
    names = sorted(module.name for module in pkgutil.iter_modules(encodings.__path__))
    mime_types = [f"text/plain; charset={name}" for name in names]
    accepted = [mime_type for mime_type in mime_types if is_text_type(mime_type)]
    assert len(accepted) > 80
    dice = random.Random(20)
    special = b"\x1b$(B)@JAa9~{}\x0e\x0f\x00\x30\x80\x81\x84\x8e\x8f\xd8\xdc\xfe\xff"
    for mime_type in accepted:
        for _ in range(100):
            data = bytes(dice.choices(special, k=30)) + dice.randbytes(10)
            for size in (dice.randrange(40), 40):
                assert decode(data, mime_type, size).encode() is not None
        data = bytes(dice.choices(special, k=10_000)) + dice.randbytes(7_000)
        whole = decode(data, mime_type)
        for size in (4_000, 10_000, 16_384):
            assert whole.startswith(decode(data, mime_type, size))


def test_payload_text_is_read_where_its_decoder_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: a character set whose decoder raises in spite of `replace`."""
    monkeypatch.setattr(payload_texts, "_CODECS", re.compile(".+"))
    assert decode(b"\x1b$(999999999", "text/plain; charset=iso-2022-jp") == "\x1b$(999999999"


@pytest.mark.parametrize(
    "charset",
    ["made-up", "unicode-escape", "utf-7", "rot13", "idna", "hex", "iso-2022-jp", "iso-2022-kr"],
)
def test_payload_text_of_unknown_character_set_is_no_text(charset: str) -> None:
    assert not is_text_type(f"text/plain; charset={charset}")


@pytest.mark.parametrize("charset", ["x" * 41, "utf-8\0", "ütf-8", "utf/8", "../hex"])
def test_payload_text_looks_up_names_of_character_sets_alone(charset: str) -> None:
    with patch.object(codecs, "lookup") as lookup:
        assert not is_text_type(f"text/plain; charset={charset}")
    lookup.assert_not_called()
