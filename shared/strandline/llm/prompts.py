"""What a model is shown: a prompt out of a versioned file; memory bounded, masked and quoted."""

import functools
import importlib.resources
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from strandline.llm.types import Said, Summary

type Verb = Literal["continues", "summarise", "merge", "topic", "entities"]

VERSIONS: Mapping[Verb, int] = {
    "continues": 2,
    "summarise": 1,
    "merge": 1,
    "topic": 1,
    "entities": 1,
}
"""The version of each prompt in use. A prompt that was used is not edited: it gets a successor, so
that what is stored beside its results stays true."""
_DATA = "data.1"
_MOST_EVENTS = 120
_SOMEBODY = "somebody else"


@dataclass(frozen=True)
class Prompt:
    """A task as a model is told it."""

    name: str
    """As in `summarise/1`."""
    text: str


@functools.cache
def prompt(verb: Verb) -> Prompt:
    """The prompt of a task, and how the data below it is to be taken."""
    version = VERSIONS[verb]
    return Prompt(f"{verb}/{version}", f"{_read(f'{verb}.{version}')}\n{_read(_DATA)}")


def _read(name: str) -> str:
    folder = importlib.resources.files("strandline").joinpath("llm/prompt_files")
    return folder.joinpath(f"{name}.md").read_text("utf-8")


@dataclass(frozen=True)
class Bounds:
    """How many characters of memory are shown."""

    event: int
    all: int


@dataclass(frozen=True)
class Shown:
    """Memory as a model is shown it."""

    quoted: str
    """As it is sent."""
    text: str
    """What it says: an answer names nothing else."""

    def __add__(self, other: "Shown") -> "Shown":
        return Shown(f"{self.quoted}\n{other.quoted}", f"{self.text}\n{other.text}")


def events(tag: str, said: Sequence[Said], participants: Collection[str], bounds: Bounds) -> Shown:
    """Events, quoted: a line each. A speaker who is not of the scope is not named. Where all is too
    much, the longest are cut first; of very many those in the middle are left out."""
    half = _MOST_EVENTS // 2
    shown = said if len(said) <= _MOST_EVENTS else [*said[:half], *said[-half:]]
    most = min(bounds.event, _share([len(one.text) for one in shown], bounds.all))
    lines = [_line(one, participants, most) for one in shown]
    if len(shown) < len(said):
        lines.insert(half, _quoted({"left_out": len(said) - len(shown)}))
    texts = [one.text[:most] for one in shown]
    return Shown(_tagged(tag, lines), "\n".join([*texts, *participants]))


def summary(tag: str, one: Summary, bounds: Bounds) -> Shown:
    """A summary, quoted."""
    text = one.summary[: bounds.all // 2]
    return Shown(_tagged(tag, [_quoted({"summary": text, "importance": one.importance})]), text)


def _line(said: Said, participants: Collection[str], most: int) -> str:
    known = said.speaker is None or said.speaker in participants
    told: dict[str, object] = {
        "at": said.at.isoformat(timespec="minutes"),
        "speaker": said.speaker if known else _SOMEBODY,
        "role": said.role,
        "type": said.type,
        "text": said.text[:most],
    }
    return _quoted(told | ({"cut": True} if len(said.text) > most else {}))


def _share(lengths: Sequence[int], most: int) -> int:
    """How long a text may be, so that all together are no longer than `most`: what short ones leave
    is shared by the others."""
    left = most
    for place, length in enumerate(sorted(lengths)):
        fair = left // (len(lengths) - place)
        if length > fair:
            return fair
        left -= length
    return most


def _tagged(tag: str, lines: Sequence[str]) -> str:
    return "\n".join([f"<{tag}>", *lines, f"</{tag}>"])


def _quoted(what: Mapping[str, object]) -> str:
    """One line of JSON without a single angle bracket: no text can close the tag around it, or open
    another. Half a surrogate pair, which no request could carry, becomes a question mark."""
    text = json.dumps(what, ensure_ascii=False).encode("utf-8", "replace").decode()
    return "".join(_escaped(text))


def _escaped(text: str) -> Iterator[str]:
    # Line separators that JSON leaves alone would let a text look like a line of its own.
    for letter in text:
        yield f"\\u{ord(letter):04x}" if letter in "<>&\x7f\x85\u2028\u2029" else letter
