// Elements are made one by one, and text is always a text node: nothing that was stored is ever
// parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element: `h("a.quiet", {href: "#/"}, "text", other)`. Properties that begin with "on" are
 * listeners; null and false leave an attribute out. */
export function h(tag, properties = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  return fill(document.createElement(name), classes, properties, children);
}

/** The same in SVG. */
export function svg(tag, properties = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  return fill(document.createElementNS(SVG, name), classes, properties, children);
}

function fill(element, classes, properties, children) {
  for (const one of classes) element.classList.add(one);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((it) => it !== null && it !== undefined && it !== false));
  return element;
}

/** Put these in place of what an element holds. */
export function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((it) => it !== null && it !== undefined && it !== false));
  return element;
}

// Characters that a reader would not see, or that move others: controls but tab and newline, the
// marks of bidirectional text, spaces without width, line separators, tags.
const HIDDEN =
  // eslint-disable-next-line no-control-regex
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

/** Text that somebody stored: isolated from the text around it, with hidden characters shown by
 * their code points. */
export function stored(text, classes = "") {
  const element = h("bdi", { class: `stored ${classes}`.trim(), dir: "auto" });
  const value = String(text ?? "");
  let done = 0;
  for (const match of value.matchAll(HIDDEN)) {
    element.append(value.slice(done, match.index), showHidden(match[0]));
    done = match.index + match[0].length;
  }
  element.append(value.slice(done));
  return element;
}

function showHidden(character) {
  const code = `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
  return h("span.hidden-character", { title: `A character that is not visible: ${code}` }, code);
}

/** Stored text for an attribute or a title, where no element can stand: hidden characters are
 * written as their code points. */
export function plain(text) {
  return String(text ?? "").replace(HIDDEN, (it) => `[U+${it.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
}
