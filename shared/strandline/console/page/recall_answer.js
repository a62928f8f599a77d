// An answer of recall: `known` against its threshold, the hits with each feature's part in the score,
// and why nothing came.

import { h, stored } from "./dom.js";
import { showText } from "./events.js";
import * as format from "./formats.js";
import { showPayload } from "./payloads.js";
import { meter } from "./plots.js";
import { splitQuestionWords } from "./question_words.js";
import { badge } from "./ui.js";

/** What each feature is, for people. */
const FEATURES = {
  cosine: "meaning like the question's",
  words: "words of the question",
  words_nearby: "words, with its neighbours",
  cosine_before: "meaning of the event before",
  cosine_after: "meaning of the event after",
  cosine_nearby: "meaning of its neighbours",
  other_speaker: "somebody else than the named speaker",
  question_share: "is itself a question",
  date: "day or month that is named",
  length: "long enough to answer",
  by_agent: "an agent said it",
  by_tool: "a tool's output",
  says_nothing: "says nothing",
  newness: "newer than others",
  recency: "recency",
  importance: "importance",
  sona: "belongs to the sona",
};

const DEGRADED = {
  no_query_vector: "The question was searched by words alone.",
  not_calibrated: "This embedding space has no calibration: no hit was left out, and probabilities are not known.",
  cut_by_size: "The answer was full before it had as many hits as asked for.",
  cut_by_budget: "A text did not fit the budget and is cut.",
  no_scope_in_view: "These participants, as their names are written, never took part together. Names keep their case.",
};

// An answer with less than this above the threshold is mostly none.
const BARELY = 0.25;
// Relevance is a probability: a hit below this answers in less than one of three cases.
const LOW = 0.33;

/** The whole answer. */
export function showAnswer(answer, request, context) {
  const { scoring } = answer;
  return [
    showKnown(answer, scoring),
    answer.degraded.map((it) => h("div.notice.warn", {}, DEGRADED[it] ?? it)),
    doubtHits(answer.hits, request.query),
    h("h3", {}, answer.hits.length ? format.plural(answer.hits.length, "hit") : "No hits"),
    answer.hits.length ? h("ol.hits", {}, answer.hits.map((it, i) => showHit(it, i, scoring, context))) : explainNothing(answer, request),
    showLeftOut(answer),
  ];
}

function showKnown({ known, breadth }, scoring) {
  const threshold = scoring.min_known;
  if (known === null) return h("p.quiet", {}, "Whether anything is known cannot be told: the embedding space has no calibration.");
  const isEnough = threshold === null || known >= threshold;
  const label = threshold === null ? `known ${known.toFixed(3)}` : `known ${known.toFixed(3)}, threshold ${threshold.toFixed(3)}`;
  const gauge = meter(known, 1, { label, kind: isEnough ? "" : "against" });
  if (threshold !== null) gauge.append(makeThresholdMark(gauge, threshold));
  const isBarely = isEnough && threshold !== null && known - threshold < BARELY;
  const sentence = threshold === null ? "No threshold holds here, hits are left out by relevance alone." : isBarely ? `Only a little above the threshold ${threshold.toFixed(3)}: there are hits, but most likely none of them answers.` : isEnough ? `Above the threshold ${threshold.toFixed(3)}: there are hits.` : `Below the threshold ${threshold.toFixed(3)}: nothing in view seems to be about this, so there are no hits.`;
  return h("div.known", {}, h("p.row", {}, h("span", {}, "Known ", h("strong.large", {}, known.toFixed(3)), h("span.quiet", {}, " how likely something in view is about what was asked, not that it answers")), breadth && badge("list or summary", "accent")), gauge, h("p.hint", {}, sentence));
}

/** Why the hits perhaps do not answer: words of the question that are in none, and a low relevance. */
function doubtHits(hits, question) {
  if (!hits.length) return null;
  const { held, missing } = splitQuestionWords(question, hits);
  const best = Math.max(...hits.map((it) => it.relevance ?? -1));
  const isLow = best >= 0 && best < LOW;
  if (!missing.length && !isLow) return null;
  const matches = [...held, ...(hits.some((it) => it.why.includes("meaning")) ? ["meaning"] : [])].map((it, i) => [i ? " and by " : " by ", stored(it)]);
  return h(
    "div.notice.doubt",
    {},
    missing.length > 0 && h("p", {}, h("strong", {}, "In no hit: ", missing.map((it, i) => [i ? ", " : "", stored(it)]), "."), matches.length ? [" The hits match", matches, ", so perhaps none of them answers."] : " Perhaps none of the hits answers."),
    isLow && h("p", {}, `The best relevance is ${best.toFixed(3)}, which is low: no hit is likely to answer.`),
  );
}

function makeThresholdMark(gauge, threshold) {
  const mark = gauge.querySelector(".bar").cloneNode();
  mark.setAttribute("class", "threshold");
  mark.setAttribute("x", String(threshold * 100 - 0.2));
  mark.setAttribute("width", "0.6");
  return mark;
}

/** Why nothing came, and what to try. */
function explainNothing(answer, request) {
  const reasons = [];
  const threshold = answer.scoring.min_known;
  if (answer.degraded.includes("no_scope_in_view")) reasons.push("Nobody in view: there is nothing to search for these participants.");
  else if (threshold !== null && answer.known !== null && answer.known < threshold) reasons.push(`By its words and its meaning nothing in view is about this: known is ${answer.known.toFixed(3)}, and hits begin at ${threshold.toFixed(3)}. To see the nearest events all the same, set the least relevance to 0 under Settings.`);
  if (request.min_relevance) reasons.push(`No event has a relevance of ${request.min_relevance} or more: lower it, or set 0.`);
  const filters = ["session_id", "speaker", "type", "origin", "since", "until"].filter((it) => request[it]);
  if (filters.length) reasons.push(`Only events with these were searched: ${filters.join(", ")}. Try without.`);
  if (request.as_of) reasons.push(`What happened after ${request.as_of} is left out.`);
  if (answer.not_yet_embedded) reasons.push(`${format.plural(answer.not_yet_embedded, "event")} in view have no vector yet and are found by words alone; ask again in some seconds.`);
  if (!reasons.length) reasons.push("No event in view holds a word of the question or is near to it in meaning. Ask for other participants, or with other words.");
  return h("div.notice", {}, h("p", {}, h("strong", {}, "Why nothing came")), h("ul.plain", {}, reasons.map((it) => h("li", {}, stored(it)))));
}

function showLeftOut(answer) {
  const parts = [
    answer.did_not_fit && `${format.plural(answer.did_not_fit, "hit")} did not fit the budget`,
    answer.not_yet_embedded && `${format.plural(answer.not_yet_embedded, "new event")} searched by words alone`,
    answer.not_yet_folded && `${format.plural(answer.not_yet_folded, "event")} not in a topic yet`,
  ].filter(Boolean);
  return parts.length ? h("p.hint", {}, `${parts.join("; ")}.`) : null;
}

// a hit -------------------------------------------------------------------------------------------

const WHY = { meaning: "meaning", edge: "cited by a hit", topic: "of the same topic", later: "said later" };

function showHit(hit, index, scoring, context) {
  const parts = computeParts(hit.features, scoring.weights);
  const score = parts.reduce((sum, it) => sum + it.part, 0);
  return h(
    "li.hit",
    {},
    h("header.event-head", {}, h("span.hit-number", {}, `${index + 1}`), hit.speaker ? format.participant(hit.speaker) : h("span.quiet", {}, "no speaker"), hit.relevance !== null && h("span", {}, "relevance ", h("strong", {}, hit.relevance.toFixed(3))), h("span.event-time", {}, h("a", { href: context.link("event", { id: hit.event_id }) }, format.time(hit.occurred_at)))),
    h("div.event-body", {}, (hit.text ?? hit.excerpt) !== null && showText(hit.text ?? hit.excerpt, { long: 700 }), hit.text === null && hit.event?.blob && showPayload(hit.event.blob, context)),
    h("p.why", {}, hit.why.map((it) => [h("span.badge", { title: WHY[it] ?? "a word of the question, in the index's form" }, stored(WHY[it] ?? it)), " "])),
    hit.superseded_by && h("p.hint", {}, badge("perhaps no longer so", "warn"), " ", h("a", { href: context.link("event", { id: hit.superseded_by }) }, "What was said later"), hit.superseded_sentence && [" than: ", stored(hit.superseded_sentence)]),
    hit.similar && h("p.hint", {}, `${format.plural(hit.similar.count, "near-duplicate")} in its place: `, hit.similar.event_ids.slice(0, 5).map((id, i) => [i ? ", " : "", h("a", { href: context.link("event", { id }) }, format.shortId(id))])),
    parts.length > 0 && showParts(parts, score, index < 3),
  );
}

function computeParts(features, weights) {
  return Object.entries(features ?? {})
    .map(([name, value]) => ({ name, value, weight: weights[name] ?? 0, part: value * (weights[name] ?? 0) }))
    .filter((it) => it.value !== 0)
    .sort((a, b) => Math.abs(b.part) - Math.abs(a.part));
}

function showParts(parts, score, isOpen) {
  const top = Math.max(...parts.map((it) => Math.abs(it.part)), 0.0001);
  return h(
    "details.parts-of-score",
    { open: isOpen },
    h("summary", {}, "Score ", h("strong", {}, score.toFixed(2))),
    h("dl.bars", {}, parts.map((it) => h("div", { title: `${it.name}: ${it.value.toFixed(3)} × ${it.weight.toFixed(3)}` }, h("dt", {}, FEATURES[it.name] ?? it.name), h("dd", {}, meter(it.part, top, { label: `${it.name} ${formatSigned(it.part)}`, kind: it.part < 0 ? "against" : "" }), h("span.amount", {}, formatSigned(it.part)))))),
  );
}

function formatSigned(value) {
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
}
