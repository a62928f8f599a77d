"""Decisions: everything a fold decided from anything but the events. They outlive derived rows.

A replay follows them and calls no model. Kinds of decisions:

- `settings`: the fold's settings from this event on;
- `continues`: whether the topic continues at this user message, judged once the later events that
  it waits for have come. Stored if the topic broke, if a model was asked, and if judging the
  message failed and would fail again (the topic then continues);
- `vector_given_up`: this user message has no vector and is not compared with others;
- `echo`: this event mostly repeats what a recall returned to its participants shortly before. It is
  not evidence, and its use does not warm any chain;
- `slots`: what this user message states of its speaker's home, job, tools, plans and preferences
  (chains/slot_decisions);
- `formed`: the content of the run that ends at this event, and the chain it was merged into. If
  deciding it failed and would fail again, a placeholder, until a retry (`reformed`). If an erasure
  deleted its text, the next attempt has the content of the remaining events;
- `idle`: no event followed in this lane until the scope's `folded_seq` was `at_seq`;
- `reformed`: the new content of the chain whose last event this is;
- `extracted`: not made by a fold: the knowledge graph items extracted from a version of the chain
  whose last event this is (graph/promotion/extraction);
- `links`: not made by a fold: how recall found the edges of this event
  (log/store_links_and_sources).
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID


@dataclass(frozen=True)
class Decision:
    """One decision, and the event it is about."""

    event_id: UUID
    kind: str
    """One of the kinds that this module lists."""
    attempt: int
    """From 0; only repeated `formed`, `reformed` and `extracted` decisions have more than one."""
    at_seq: int
    """The scope's `folded_seq` at which it takes effect."""
    body: dict[str, Any]


def give_up_vector(event_id: UUID, at_seq: int, reason: str) -> Decision:
    """Decide that a user message's vector is not waited for: it was refused, or it is late."""
    return Decision(event_id, "vector_given_up", 0, at_seq, {"why": reason})
