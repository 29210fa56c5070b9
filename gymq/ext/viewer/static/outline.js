// The outline of a rollout with a search inside it: turns by what they say, found texts marked and gone through.

import { el, show } from "./dom.js";
import { count } from "./format.js";

const marks = "highlights" in CSS ? new Highlight() : null;
if (marks) CSS.highlights.set("found", marks);
const MOST_MARKS = 2000;

// parts: [{ title, words, text, node, group }]: `text` returns all that the part says, `node` its node, visible; `group`
// is the fold that it is in
export class Outline {
  constructor() {
    this.parts = [];
    this.groups = new Set();
    this.hits = [];
    this.at = -1;
    this.field = el("input", { type: "search", placeholder: "search this rollout", "aria-label": "search this rollout" });
    this.notice = el("p", { class: "quiet small", role: "status" });
    this.list = el("ol", { class: "parts" });
    this.form = el("form", { class: "filters", role: "search", onsubmit: (event) => { event.preventDefault(); this.step(1); } }, this.field);
    this.field.addEventListener("input", () => this.search());
    this.field.addEventListener("keydown", (event) => { if (event.key === "Escape") { this.field.value = ""; this.search(); this.field.blur(); } });
    // In a narrow window the outline is behind a button.
    this.unfold = el("button", { type: "button", class: "unfold", "aria-expanded": "false", onclick: () => this.open(!this.node.classList.contains("open")) }, "outline and search");
    this.node = el("nav", { class: "outline", "aria-label": "outline" }, this.unfold, this.form, this.notice, this.list);
  }

  set(parts) {
    for (const group of new Set(parts.map((part) => part.group).filter(Boolean))) if (!this.groups.has(group)) group.addEventListener("toggle", () => this.draw());
    this.groups = new Set(parts.map((part) => part.group));
    this.parts = parts;
    this.search();
  }

  open(isOpen) {
    this.node.classList.toggle("open", isOpen);
    this.unfold.setAttribute("aria-expanded", String(isOpen));
  }

  focus() {
    this.open(true);
    this.field.focus();
    this.field.select();
  }

  search() {
    const wanted = this.field.value.toLowerCase();
    this.at = -1;
    this.hits = this.parts.map((part) => ({ part, number: wanted ? occurrences(part.text().toLowerCase(), wanted) : 0 }));
    const shown = wanted ? this.hits.filter(({ number }) => number) : this.hits;
    const total = this.hits.reduce((sum, { number }) => sum + number, 0);
    this.notice.textContent = wanted ? (total ? `${count(total)} found in ${count(shown.length)} parts; Enter leads to the next` : "nothing found") : "";
    this.hits = shown;
    this.draw();
    marks?.clear();
  }

  // Of a closed group there is one entry, unless something is found in it.
  draw() {
    const wanted = this.field.value.toLowerCase();
    const entry = (title, words, number, lead) => el("li", null, el("button", { type: "button", class: "part-link", onclick: lead },
      title, " ", el("span", { class: "quiet" }, words), number ? el("span", { class: "badge" }, number) : null));
    const drawn = new Set();
    show(this.list, this.hits.map(({ part, number }) => {
      const { group } = part;
      if (wanted || !group || group.open) return entry(el("b", null, part.title), part.words, number, () => this.go(part, wanted));
      if (drawn.has(group)) return null;
      drawn.add(group);
      return entry([...group.querySelector("summary").childNodes].map((node) => node.cloneNode(true)), "", 0, () => { group.unfold(); lead(group.querySelector("summary")); });
    }));
  }

  // Leads to the next part that has what is searched for, or to the one before.
  step(by) {
    if (!this.field.value || !this.hits.length) return;
    this.at = (this.at + by + this.hits.length) % this.hits.length;
    this.go(this.hits[this.at].part, this.field.value.toLowerCase());
  }

  go(part, wanted) {
    const node = part.node();
    if (wanted) for (const fold of node.querySelectorAll("details")) if (fold.unfold) fold.unfold();
    lead(node);
    if (wanted) this.mark(node, wanted);
  }

  mark(node, wanted) {
    if (!marks) return;
    marks.clear();
    const texts = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
    let first = null;
    while (texts.nextNode() && marks.size < MOST_MARKS) {
      const text = texts.currentNode.data.toLowerCase();
      if (text.length !== texts.currentNode.data.length) continue; // some capitals are longer when small
      for (let at = text.indexOf(wanted); at >= 0 && marks.size < MOST_MARKS; at = text.indexOf(wanted, at + wanted.length)) {
        const range = new Range();
        range.setStart(texts.currentNode, at);
        range.setEnd(texts.currentNode, at + wanted.length);
        marks.add(range);
        first ??= texts.currentNode.parentElement;
      }
    }
    first?.scrollIntoView({ block: "center" });
  }
}

export function lead(node) {
  node.scrollIntoView({ block: "start" });
  node.focus({ preventScroll: true });
}

function occurrences(text, wanted) {
  let number = 0;
  for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) number += 1;
  return number;
}
