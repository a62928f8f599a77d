// What changes something: it needs a right and the switch, says what it will do, and asks.

import { change } from "./api.js";
import { h, replace } from "./dom.js";
import { session, hasRight } from "./session.js";
import { confirmChange, errorBox, loading } from "./ui.js";

/** The controls of a change, or why there are none: the right that the key lacks, or the switch. */
export function whereAllowed(right, what, makeControls) {
  if (!hasRight(right)) return h("p.hint", {}, `${what} needs a key with the right `, h("code", {}, right), "; this one has it not.");
  if (!session.allowsChanges) return h("p.hint", {}, `${what} is a change, and changes are off. `, h("button.quiet-button", { type: "button", onclick: allowChanges }, "Allow changes"));
  return makeControls();
}

/** Turn the switch in the menu of the key on, as a press there does: the screen is shown again. */
function allowChanges() {
  document.querySelector(".account [role=switch]").click();
}

/** Ask, and if the answer is yes do it: `run()` gives what `show(answer)` then says in `status`.
 * Gives whether it was done. */
export async function askAndDo({ title, sentences, action, status, run, show }) {
  if (!(await confirmChange(title, sentences, action))) return false;
  replace(status, loading("Working …"));
  try {
    const answer = await run();
    replace(status, show(answer));
    return true;
  } catch (error) {
    if (error.name === "AbortError") return false;
    replace(status, errorBox(error));
    return false;
  }
}

/** A function that sends one change: sent again after a lost answer, it is still one change. */
export function makeOnce(method, path, body) {
  const key = crypto.randomUUID();
  return () => change(method, path, body, {}, { "Idempotency-Key": key });
}

/** A choice among named values; `options` are [value, label]. */
export function select(name, options, value, properties = {}) {
  const element = h("select", { name, ...properties }, options.map(([key, label]) => h("option", { value: key, selected: key === value }, label)));
  return element;
}
