"""Which names the heuristic model finds, rule by rule. Examples are made up."""

from datetime import UTC, datetime, timedelta

import pytest

from strandline.llm.heuristic.names import extract_entities
from strandline.llm.heuristic.unlisted_words import (
    is_derived_from_listed_word,
    is_misspelt_common_word,
)
from strandline.llm.types import PromptEvent

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def names_in(*texts: str) -> set[str]:
    """Names in what is said: `mara: text`; without a speaker that one is `joss`."""
    run: list[PromptEvent] = []
    for place, line in enumerate(texts):
        who, colon, text = line.partition(": ")
        speaker = f"user:{who if colon else 'joss'}"
        at = NOON + timedelta(minutes=place)
        run.append(PromptEvent(place, speaker, "user", "message", text if colon else line, at))
    return {entity.name for entity in extract_entities(run)}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("met mr velmo and mrs pearl at the fair", {"mr velmo", "mrs pearl"}),
        ("ask mr. velmo about it. he knows", {"mr. velmo"}),
        ("judge orvig said no. the judge always does", {"judge orvig"}),
        ("my doctor velmo is away", {"velmo"}),
        ("we met on orvig lane, near studio velmo", {"orvig lane", "studio velmo"}),
        ("the orvig savings bank rang", {"orvig savings bank"}),
        ("they have a velmo & sons piano", {"velmo & sons"}),
        ("nunos key and corvis keys. femkes still there", {"nuno", "corvis", "femke"}),
        ("the velmo r5 broke, we need a halvik 60", {"velmo r5", "halvik 60"}),
        ("marrick WHAT. that was THE CAR. tell marrick", {"marrick"}),
        ("nunos last day. velmos old polytunel. femkes 22", {"nuno", "velmo", "femke"}),
        ("so 2 by mrs velmo 1 by the hut", {"mrs velmo"}),
        ("then 50 for orvig 50 for halvik", {"orvig", "halvik"}),
        ("velmo wifi is down, they write orvig v4", {"velmo", "wifi", "orvig"}),
        ("the rma for the cams at orvig systems. bre velmo too", {"orvig systems", "bre velmo"}),
        ("velmo's did the brakes. mister pearl rang", {"velmo's", "mister pearl"}),
    ],
)
def test_names_are_found_in_small_letters(text: str, names: set[str]) -> None:
    assert names_in(text) == names


def test_names_exclude_greetings_and_urls() -> None:
    said = (
        "Hej Freja, can you look at https://github.com/acme/boats/pull/14 today? Vänliga hälsningar"
    )
    assert names_in(said) == {"Freja"}
    assert names_in("Hallo Karl, danke. See www.example.com/a.") == {"Karl"}


def test_names_exclude_typos_slang_and_peoples() -> None:
    assert not names_in(
        "nobdy orderd it on wedneday, srsly. the cert in the codebase is german, omg"
    )
    assert not names_in("tadaa. mam and poppa came yday, christ, its rainin 2moro aswel")
    assert names_in("tell gerolf", "mara: Did Gerlof come?") == {"gerolf", "Gerlof"}


def test_names_exclude_words_that_begin_speaker_name() -> None:
    assert not names_in("theodora: the dog ate the hat", "arthur: all art is art")
    assert names_in("wilma: ask wil", "mara: Who?") == {"wil"}


def test_names_ignore_shouting_as_small_letter_habit() -> None:
    assert names_in("velmo??? FINALLY", "mara: Velmo, yes, after years.") == {"Velmo"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("We moved to Anvil 3.0.0, Lantern 4.1.2 and the Finch 28.", 3),
        ("It fails on the Bunting 7a and under WCAG 2.2 as well.", 2),
        ("Send it to 4 Cooper Cottages, please.", {"4 Cooper Cottages"}),
        ("Both the Heron of Grey Bank Ferries and the Isle of Torvik sail.", 3),
        ("We asked Silver Otter and Seven Kites to play.", {"Silver Otter", "Seven Kites"}),
        ("They sang with the Velmo Wednesday Choir.", {"Velmo Wednesday Choir"}),
        ('We call it "While They Sleep" now.', {"While They Sleep"}),
        ('They sang "The Lamps of Torvik" twice.', {"The Lamps of Torvik"}),
        ("I think Pellik's would deliver.", {"Pellik's"}),
        ("Ask about VEL/28/116, 2031-042, 5200-118-907 and P4A for 4A.", 5),
        ("See hill_tunes.musicxml on acs.velmo.example.", 2),
        ("It was from 2027-2028, on 2028-01-11. We are done.thanks", set[str]()),
        ("Set the flag send-reminders; the branch is fix-long-wait.", 2),
        ("It is ABT 118/28, LX 118 40726, LK VS 206 and HR-K 20917.", 4),
        ("It was EUR 48 000 for all. AND IT IS 2028!", set[str]()),
        ("They cite 2031-B-7713 and FL-20418-C in the folder fotos/harbour.", 3),
        ("See DATA_SET.XML, rows_velmo5 and a GT-4 or the Velmo 4x4.", 4),
        ("We asked Velmo Seafood AS, Halvik Oy and Corb GmbH.", 3),
        ("Project Velmo is late. Then wait at Gate F for it.", {"Project Velmo", "Gate F"}),
        ("Poor Dumpling, nobody knew. It says one cat (Dumpling) only.", {"Dumpling"}),
        (
            "In Torvik, The Hare and Anchor has a Velmo SIM.",
            {"Torvik", "The Hare and Anchor", "Velmo"},
        ),
        ("Chez Orvig is full.", {"Chez Orvig"}),
        ("So it is under Tables, but the Union said no. Error in line 4.", set[str]()),
        ("Try the Velmo 510 this week. It has the key to Orvig Row 8 and more.", 2),
        ("Is it the Velmo, or did velmo_gus4 have it?", {"Velmo", "velmo_gus4"}),
        ("I have it in writing: Prudence Orvig said yes.", {"Prudence Orvig"}),
        ("A well-known long-term plan over wifi.", {"wifi"}),
    ],
)
def test_names_are_found_in_capitals_and_codes(text: str, names: set[str] | int) -> None:
    assert (
        names_in(f"mara: {text}") if isinstance(names, set) else len(names_in(f"mara: {text}"))
    ) == (names)


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (("so wanda or pavel", "mara: Wanda Velmo asked for Pavel."), {"Wanda Velmo", "Pavel"}),
        (("mara: Mr. Velmo came.", "mara: We saw Mr. Nils Velmo."), {"Mr. Nils Velmo"}),
        (("mara: Jola Velmo ran.", "mara: The list has J. Velmo."), {"Jola Velmo"}),
        (("mara: We met Raf there.", "mara: Then Rafael left."), {"Rafael"}),
        (("mohlkes rang", "mara: We asked Möhlke there."), {"Möhlke"}),
        (("mara: We asked Mr. Ravn.", "mara: It is from Corb & Ravn."), 2),
        (("mara: For Pellik's we wait.", "mara: So Pellik's will come."), {"Pellik's"}),
    ],
)
def test_names_resolve_short_forms(texts: tuple[str, ...], names: set[str] | int) -> None:
    names_found = names_in(*texts)
    assert (names_found if isinstance(names, set) else len(names_found)) == names


@pytest.mark.parametrize(
    "word", ["nobdy", "orderd", "recieve", "wedneday", "nevr", "totaly", "propper", "goin", "sory"]
)
def test_names_recognise_misspelt_words(word: str) -> None:
    assert is_misspelt_common_word(word)


@pytest.mark.parametrize("word", ["hans", "odile", "meridia", "tobin", "corin", "Nobdy", "x", ""])
def test_names_are_not_taken_for_misspelt_words(word: str) -> None:
    assert not is_misspelt_common_word(word)


def test_names_recognise_derived_words() -> None:
    assert all(
        map(is_derived_from_listed_word, ["rebooking", "delisting", "aaaah", "unsubscribing"])
    )
    assert not any(map(is_derived_from_listed_word, ["Aldous", "Hanning", "Dravik", "velmo"]))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Mrs. Aldous", "person"),
        ("Calder Supplies", "company"),
        ("Fennel Lane", "place"),
        ("Velmo", "other"),
        ("Port Ellary", "other"),
        ("BP-71", "other"),
        ("0.9.4", "product"),
        ("GPS", "technology"),
    ],
)
def test_names_have_kind_other_unless_rule_is_sure(name: str, kind: str) -> None:
    text = f"We heard of it from {name} in May."
    entities = extract_entities([PromptEvent(1, "user:joss", "user", "message", text, NOON)])
    assert [(entity.name, entity.kind) for entity in entities] == [(name, kind)]
