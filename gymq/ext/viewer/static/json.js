// Values as trees: what is short on one line, what is long folded, its parts made when it is opened.

import { el } from "./dom.js";
import { image, plain, rich } from "./rich.js";

const INLINE = 90; // characters of a value that is shown on one line
const MOST = 100; // entries that are shown at once
const OPEN_LEVELS = 12; // that are open at first
const LANGUAGES = { code: "python", python: "python", script: "python", program: "python", source: "python", cell: "python",
  command: "bash", cmd: "bash", bash: "bash", shell: "bash", sql: "sql", query: "sql", patch: "diff", diff: "diff", latex: "latex", html: "html" };

// The value as one line if it has at most `limit` characters, else null. Does not look at more than it needs.
export function oneLine(value, limit = INLINE) {
  let left = limit;
  const take = (text) => ((left -= text.length) < 0 ? null : text);
  const written = (part) => {
    if (left < 0) return null;
    if (part === null || typeof part !== "object") return typeof part === "string" && part.length > left ? null : take(JSON.stringify(part) ?? "null");
    if (take("[]") === null) return null; // before what is inside: it may be nested as deeply as it is long
    const isList = Array.isArray(part);
    const inside = [];
    for (const [name, entry] of isList ? part.entries() : Object.entries(part)) {
      const text = written(entry);
      if (text === null || take(isList ? ", " : `${name}: , `) === null) return null;
      inside.push(isList ? text : `${name}: ${text}`);
    }
    return isList ? `[${inside.join(", ")}]` : `{${inside.join(", ")}}`;
  };
  return written(value);
}

const kind = (value) => (value === null ? "none" : typeof value);

function scalar(value, name) {
  if (typeof value !== "string") return el("span", { class: `json-${kind(value)}` }, String(value));
  const picture = image(value, name);
  if (picture) return picture;
  if (value.includes("\n") || value.length > 200) {
    const language = LANGUAGES[String(name).toLowerCase()];
    return el("div", { class: "json-text" }, language ? rich(value, language) : plain(value));
  }
  return el("span", { class: "json-string" }, JSON.stringify(value));
}

export function tree(value, name, isOpen = true, level = 0) {
  const label = name === undefined ? null : el("span", { class: "json-name" }, `${name}: `);
  if (value === null || typeof value !== "object") return el("div", { class: "json" }, label, scalar(value, name));
  const line = oneLine(value);
  if (line !== null) return el("div", { class: "json" }, label, el("span", { class: "json-string" }, line));
  const entries = Array.isArray(value) ? [...value.entries()] : Object.entries(value);
  const size = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  return folded(el("span", null, label, el("span", { class: "quiet" }, size)), () => listed(entries, level + 1), { class: "json", open: isOpen && level < OPEN_LEVELS });
}

function listed(entries, level) {
  const box = el("div", { class: "json-inside" });
  const more = (from) => {
    box.append(...entries.slice(from, from + MOST).map(([name, entry]) => tree(entry, name, entries.length <= 12, level)));
    if (entries.length <= from + MOST) return;
    const button = el("button", { type: "button", class: "more", onclick: () => { button.remove(); more(from + MOST); } }, `${(entries.length - from - MOST).toLocaleString("en")} more`);
    box.append(button);
  };
  more(0);
  return box;
}

// What is folded is made when it is opened.
export function folded(summary, make, attributes) {
  const box = el("details", attributes, el("summary", null, summary));
  let isMade = false;
  const open = () => {
    if (isMade || !box.open) return;
    isMade = true;
    box.append(make());
  };
  box.addEventListener("toggle", open);
  box.unfold = () => { box.open = true; open(); };
  open();
  return box;
}

// A text that may be JSON.
export function readable(text) {
  const start = text.trimStart()[0];
  if ((start === "{" || start === "[") && text.length < 2e6) {
    try {
      return tree(JSON.parse(text));
    } catch {
      // it only begins like JSON
    }
  }
  return text.includes("Traceback (most recent call last)") ? rich(text, "pytb") : plain(text);
}
