// The columns of the table of rollouts: those that a reader chooses, kept in this browser.

import { address, el, show } from "./dom.js";
import { count, gradeOf, sameDecimals, seconds, time } from "./format.js";

const KEPT = "gymq-columns";
const clip = (text, kind = "clip") => el("span", { class: kind }, text);

// name: [title, cell(row), classes]; those with `asked` are shown only to readers who choose them.
const FIELDS = {
  prompt: { title: "prompt", cell: (row) => clip(row.prompt), kind: "wide-only" },
  expected: { title: "expected", cell: (row) => clip(row.expected), kind: "wide-only" },
  answer: { title: "answer", isUnsorted: true, kind: "words-cell",
    cell: (row) => el("span", { class: row.failure_class ? "clip lines" : "clip" }, row.failure_class ? el("span", { class: "bad" }, `${row.failure_class}: `) : null, row.words) },
  reward: { title: "reward", kind: "number", value: (row) => row.reward,
    cell: (row, written) => (row.reward === null ? el("span", { class: "bad" }, "–") : el("span", { class: gradeOf(row.reward) }, written(row.reward))) },
  turns: { title: "turns", kind: "number", cell: (row) => row.turns || "–" },
  output_tokens: { title: "tokens", kind: "number", cell: (row) => count(row.output_tokens) },
  duration_s: { title: "time", kind: "number", cell: (row) => seconds(row.duration_s) },
  agent: { title: "agent", isAsked: true, cell: (row) => row.agent },
  attempt: { title: "attempt", isAsked: true, kind: "number", cell: (row) => row.attempt + 1 },
  failure_class: { title: "failure", isAsked: true, cell: (row) => el("span", { class: "bad" }, row.failure_class || "") },
  is_truncated: { title: "truncated", isAsked: true, cell: (row) => (row.is_truncated ? "yes" : "") },
  policy_version: { title: "policy", isAsked: true, cell: (row) => row.policy_version },
  started_at: { title: "started", isAsked: true, kind: "nowrap", cell: (row) => time(row.started_at) },
  worker: { title: "worker", isAsked: true, cell: (row) => row.worker },
};
const USUAL = Object.keys(FIELDS).filter((name) => !FIELDS[name].isAsked);

let chosen = remembered();

function remembered() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT));
    return Array.isArray(kept) && kept.every((name) => typeof name === "string") ? kept : USUAL;
  } catch {
    return USUAL; // nothing is kept, or the browser keeps nothing for a page like this one
  }
}

function choose(names) {
  chosen = names;
  try { localStorage.setItem(KEPT, JSON.stringify(names)); } catch { /* then it lasts as long as the page */ }
}

const shownValue = (value, written) => (typeof value === "number" ? written(value) : value === undefined ? "" : String(value));

// A column; fields of rows and verdicts are known by their paths, as `verdict.accuracy`.
function columnOf(name) {
  if (Object.hasOwn(FIELDS, name)) return { name, ...FIELDS[name] };
  const value = (row) => (Object.hasOwn(row.details, name) ? row.details[name] : undefined);
  return { name, title: name, kind: "detail", value, cell: (row, written) => clip(shownValue(value(row), written)) };
}

// The chosen columns that this run has, in a fixed order.
export function columns(details) {
  const known = new Set(details);
  return [...Object.keys(FIELDS).filter((name) => chosen.includes(name)), ...chosen.filter((name) => known.has(name))].map(columnOf);
}

// The heading of a column, which sorts by it; `to` returns the address for an order.
export function heading({ name, title, kind, isUnsorted }, sort, order, to) {
  const attributes = { class: ["number", "wide-only", "detail"].includes(kind) ? kind : null };
  if (isUnsorted || !to) return el("th", attributes, title);
  const isHere = name === sort;
  return el("th", { ...attributes, "aria-sort": isHere ? (order === "up" ? "ascending" : "descending") : null },
    el("a", { href: to({ sort: name === "task" ? "" : name, order: isHere && order === "up" ? "down" : "", skip: "" }), class: "sorter" }, title, isHere ? (order === "up" ? " ↑" : " ↓") : ""));
}

// The lines of a table; the numbers of a column have the same decimals.
export function lines(run, rows, shown, by) {
  const written = new Map(shown.filter(({ value }) => value).map(({ name, value }) => [name, sameDecimals(rows.map(value))]));
  return rows.map((row) => cells(run, row, shown, by(row), written));
}

function cells(run, row, shown, by, written) {
  return el("tr", null,
    el("td", { class: "nowrap" }, el("a", { href: address(["rollout", run, row.task_index, row.rollout_index], { by }) }, `${row.task_index} / ${row.rollout_index}`),
      row.attempt ? el("span", { class: "quiet" }, ` attempt ${row.attempt + 1}`) : null),
    shown.map(({ name, title, kind, cell }) => el("td", { class: kind || null, "data-name": kind === "words-cell" ? null : title }, cell(row, written.get(name)))));
}

// A menu of all columns; `changed` is called when one was chosen or left out.
export class ColumnMenu {
  constructor(changed) {
    this.changed = changed;
    this.details = [];
    this.list = el("div", { class: "menu-list" });
    this.node = el("details", { class: "menu", onkeydown: (event) => {
      if (event.key !== "Escape" || !this.node.open) return;
      this.node.open = false;
      this.node.querySelector("summary").focus();
    }, onfocusout: (event) => { if (event.relatedTarget && !this.node.contains(event.relatedTarget)) this.node.open = false; } },
    el("summary", { class: "button" }, "columns"), this.list);
    this.draw();
  }

  // details: the fields of rows and verdicts that the run has.
  offer(details) {
    if (details.join("\n") === this.details.join("\n")) return;
    this.details = details;
    this.draw();
  }

  draw() {
    const mark = (name) => el("label", null, el("input", { type: "checkbox", checked: chosen.includes(name), onchange: (event) => {
      choose(event.target.checked ? [...chosen, name] : chosen.filter((one) => one !== name));
      this.changed();
    } }), ` ${columnOf(name).title}`);
    const group = (title, names) => (names.length ? el("fieldset", null, el("legend", null, title), names.map(mark)) : null);
    show(this.list, group("rollout", Object.keys(FIELDS)), group("verdict", this.details.filter((name) => name.startsWith("verdict."))),
      group("row", this.details.filter((name) => name.startsWith("row."))),
      el("button", { type: "button", class: "more", onclick: () => { choose(USUAL); this.draw(); this.changed(); } }, "the usual columns"));
  }
}
