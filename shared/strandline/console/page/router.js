// The address of a screen: `#/<name>?<state>`. All state is in the fragment, which no server sees,
// and which is an address for a colleague. A key is never in it.
//
// To add a screen:
// 1. Write `<name>.js` with `export const screen = {name, title, right, show}`:
//    - `name` is its word in the address, `title` its name in the menu;
//    - `right` is the right without which the menu leaves it out, or null;
//    - `show(root, context)` fills `root`, an empty element. It may return a function that is called
//      when the person leaves. It may be async: the shell shows an error that it throws.
// 2. Add it to SCREENS in `screens.js`.
// 3. Add its styles to `screens.css`, and its walk to `tests/browser/console`.
//
// What `context` has:
// - `state`: the address' parameters, as an object of strings; `as` is for whom to read.
// - `go(name, state)`: another address; `link(name, state)` is the same as text for `href`.
//   `as` is kept unless `state` has its own.
// - `update(changes)`: this screen's state changes, and it is shown again; `note(changes)`: only the
//   address changes.
// - `viewer`: for whom to read, as query parameters of a call. `null` while nobody is named.
// - `signal`: aborted when the person leaves.

/** Take a key out of the address before anything else happens. Gives the key, or "". */
export function takeKeyFromAddress() {
  const { name, state } = parse(location.hash);
  if (!("key" in state)) return "";
  const { key, ...rest } = state;
  history.replaceState(null, "", name || Object.keys(rest).length ? format(name || "overview", rest) : "#/");
  return key.trim();
}

/** The screen's name and the state of an address. */
export function parse(hash) {
  const text = hash.replace(/^#/, "");
  const isScreen = text.startsWith("/");
  const [name, query] = isScreen ? splitOnce(text.slice(1), "?") : ["", text];
  return { name: decodeURIComponentOrText(name), state: Object.fromEntries(new URLSearchParams(query)) };
}

/** An address. What is empty is left out, and a key always. */
export function format(name, state = {}) {
  const kept = Object.entries(state).filter(([key, value]) => key !== "key" && value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(kept).toString();
  return `#/${encodeURIComponent(name)}${query ? `?${query}` : ""}`;
}

function splitOnce(text, mark) {
  const at = text.indexOf(mark);
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

function decodeURIComponentOrText(text) {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    if (error instanceof URIError) return text; // typed by hand
    throw error;
  }
}
