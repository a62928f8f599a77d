// Which words of a question stand in hits, and which in none.

// Words that ask, join and help, and those of time, which recall compares as dates.
const SMALL_WORDS = new Set(
  ("about after again all also and any are ask asked been before being but can could did does doing done for from get give go got had has have her here hers him his how into is it its just keep know last like make many may me more most much must my name new next not of off on one or other our out over please remember said same say see shall she should show since so some than take tell that the their them then there these they thing things this those time to told too under until up us use used very want was way we well were what whats when where which while who whom whose why will with would you your " +
    "day days week weeks month months year years today tomorrow yesterday monday tuesday wednesday thursday friday saturday sunday january february march april june july august september october november december").split(" "),
);
const NO_WORDS = new Set(["meaning", "edge", "topic", "later"]);
const ROOT = 4;

/** {held, missing}: the question's informative words that stand in a hit, and those in none. A hit
 * holds a word by a stem of its `why`, by its text, or by its speaker's name. */
export function splitQuestionWords(question, hits) {
  const stems = hits.flatMap((it) => it.why).filter((it) => !NO_WORDS.has(it)).map((it) => it.toLowerCase());
  const texts = new Set(hits.flatMap((it) => listWords(`${it.text ?? ""} ${it.name ?? ""} ${it.speaker ?? ""}`)));
  const words = [...new Set(listWords(question))].filter((it) => it.length > 2 && !SMALL_WORDS.has(it));
  const isHeld = (word) => texts.has(word) || [...stems, ...texts].some((it) => areForms(word, it));
  return { held: words.filter(isHeld), missing: words.filter((it) => !isHeld(it)) };
}

const listWords = (text) => text.toLowerCase().replace(/['’]s\b/g, "").match(/[\p{L}\p{N}]+/gu) ?? [];

/** Whether two words begin alike, but for an ending of at most three letters: "boxes" and "box". */
function areForms(one, other) {
  if (one === other) return true;
  const [short, long] = one.length < other.length ? [one, other] : [other, one];
  const root = short.replace(/[iy]$/, ""); // "happi" of the index is "happy" of the question
  return root.length >= Math.min(ROOT, short.length) && root.length > 2 && long.startsWith(root) && long.length - root.length <= 3;
}
