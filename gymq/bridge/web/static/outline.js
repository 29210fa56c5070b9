// The outline of a rollout with a search inside it: turns by what they say, found texts marked and gone through.

import { el, show } from "./dom.js";
import { count } from "./format.js";

const marks = "highlights" in CSS ? new Highlight() : null;
if (marks) CSS.highlights.set("found", marks);
const MOST_MARKS = 2000;

// parts: [{ node, title, words, text }], `text` a function that returns all that the part says
export class Outline {
  constructor() {
    this.parts = [];
    this.hits = [];
    this.at = -1;
    this.field = el("input", { type: "search", placeholder: "search this rollout", "aria-label": "search this rollout" });
    this.notice = el("p", { class: "quiet small", role: "status" });
    this.list = el("ol", { class: "parts" });
    this.form = el("form", { class: "filters", role: "search", onsubmit: (event) => { event.preventDefault(); this.step(1); } }, this.field);
    this.field.addEventListener("input", () => this.search());
    this.field.addEventListener("keydown", (event) => { if (event.key === "Escape") { this.field.value = ""; this.search(); this.field.blur(); } });
    this.node = el("nav", { class: "outline", "aria-label": "outline" }, this.form, this.notice, this.list);
  }

  set(parts) {
    this.parts = parts;
    this.search();
  }

  search() {
    const wanted = this.field.value.toLowerCase();
    this.at = -1;
    this.hits = this.parts.map((part) => ({ part, number: wanted ? occurrences(part.text().toLowerCase(), wanted) : 0 }));
    const shown = wanted ? this.hits.filter(({ number }) => number) : this.hits;
    show(this.list, shown.map(({ part, number }) => el("li", null, el("button", { type: "button", class: "part-link", onclick: () => this.go(part, wanted) },
      el("b", null, part.title), " ", el("span", { class: "quiet" }, part.words), number ? el("span", { class: "badge" }, number) : null))));
    const total = this.hits.reduce((sum, { number }) => sum + number, 0);
    this.notice.textContent = wanted ? (total ? `${count(total)} found in ${count(shown.length)} parts; Enter leads to the next` : "nothing found") : "";
    this.hits = shown;
    marks?.clear();
  }

  // Leads to the next part that has what is searched for, or to the one before.
  step(by) {
    if (!this.field.value || !this.hits.length) return;
    this.at = (this.at + by + this.hits.length) % this.hits.length;
    this.go(this.hits[this.at].part, this.field.value.toLowerCase());
  }

  go(part, wanted) {
    if (wanted) for (const fold of part.node.querySelectorAll("details")) if (fold.unfold) fold.unfold();
    lead(part.node);
    if (wanted) this.mark(part.node, wanted);
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
