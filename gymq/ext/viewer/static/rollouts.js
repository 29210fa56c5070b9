// The rollouts of a run: sorted and filtered page by page, or those that a search through all their texts finds.

import { get } from "./api.js";
import { ColumnMenu, columns, heading, lines } from "./columns.js";
import { address, el, show } from "./dom.js";
import { count } from "./format.js";

const FIELDS = ["text", "result", "failure", "agent", "task", "least_reward", "most_reward", "least_s"];
const PAGE = 50;
const AGAIN_MS = 250; // until more of a run that is being read is asked for
const FIRST = { name: "task", title: "rollout" };

// Returns a function that draws the page again with what is new.
export function rolloutList(box, run, query, { environments, failures }, signal) {
  const wanted = Object.fromEntries(FIELDS.map((name) => [name, query.get(name) || ""]));
  const sort = query.get("sort") || "task", order = query.get("order") || "up";
  const skip = Number(query.get("skip") || 0);
  const here = (changed) => address(["run", run], { tab: "rollouts", ...wanted, sort: sort === "task" ? "" : sort, order: order === "up" ? "" : order, ...changed });
  const table = new Table(run, sort, order, wanted.text ? null : here);
  show(box, filters(run, wanted, Object.entries(environments), Object.keys(failures), here, table.menu.node), table.node, table.foot);
  const failed = (error) => { if (error.name !== "AbortError") show(table.foot, el("span", { class: "bad" }, error.message)); };
  if (wanted.text) {
    search(run, wanted, table, signal).catch(failed);
    return () => {};
  }
  const draw = async () => {
    for (;;) {
      const found = await get(["runs", run, "table"], { ...wanted, sort, order, skip }, signal);
      table.offer(found.columns);
      table.set(found.rows);
      const last = skip + found.rows.length;
      show(table.foot,
        skip > 0 ? el("a", { class: "button", href: here({ skip: Math.max(0, skip - PAGE) || "" }) }, "back") : null,
        last < found.num_matching ? el("a", { class: "button", href: here({ skip: skip + PAGE }) }, "next") : null,
        el("span", { class: "quiet" }, found.num_matching ? `${count(skip + 1)} to ${count(last)} of ${count(found.num_matching)}` : found.num_read ? "none matches" : "no rollouts yet",
          found.num_matching < found.num_read ? `, among ${count(found.num_read)}` : ""),
        found.is_whole ? null : el("span", { class: "quiet" }, `${count(found.num_read)} read so far …`));
      if (found.is_whole || signal.aborted) return;
      await new Promise((done) => { setTimeout(done, AGAIN_MS); });
    }
  };
  draw().catch(failed);
  return () => draw().catch(failed);
}

// The table with the columns that the reader chose; `here` returns the address for an order, null where there is none.
class Table {
  constructor(run, sort, order, here) {
    Object.assign(this, { run, sort, order, here });
    this.rows = [];
    this.details = [];
    this.menu = new ColumnMenu(() => this.draw());
    this.head = el("tr");
    this.body = el("tbody");
    this.foot = el("div", { class: "pager", role: "status" }, el("span", { class: "quiet" }, "loading …"));
    this.node = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "rollouts" }, el("table", { class: "rollouts cards" }, el("thead", null, this.head), this.body));
    this.draw();
  }

  // details: the fields of rows and verdicts that are there.
  offer(details) {
    this.details = details;
    this.menu.offer(details);
  }

  set(rows) {
    this.rows = rows;
    this.draw();
  }

  add(rows) {
    this.offer([...new Set([...this.details, ...rows.flatMap((row) => Object.keys(row.details))])].sort());
    this.set([...this.rows, ...rows].sort((one, other) => one.task_index - other.task_index || one.rollout_index - other.rollout_index));
  }

  draw() {
    const shown = columns(this.details);
    const by = (row) => (row.failure_class ? "failure" : this.sort === "reward" ? "reward" : "");
    show(this.head, [FIRST, ...shown].map((column) => heading(column, this.sort, this.order, this.here)));
    show(this.body, lines(this.run, this.rows, shown, by));
  }
}

// What is looked for; in a narrow window all but the text is behind a button.
function filters(run, wanted, agents, failures, here, menu) {
  const field = (name, attributes) => el("input", { name, value: wanted[name], ...attributes });
  const choice = (name, label, options) => el("select", { name, "aria-label": label }, options.map(([value, text]) =>
    el("option", { value, selected: wanted[name] === value }, text)));
  const classes = [...new Set([...failures, wanted.failure].filter(Boolean))];
  const number = FIELDS.filter((name) => name !== "text" && wanted[name]).length;
  const more = el("div", { class: number ? "more-filters open" : "more-filters", id: "more-filters" },
    choice("result", "result", [["", "all results"], ["rewarded", "with a reward"], ["failed", "without one"]]),
    classes.length ? choice("failure", "failure class", [["", "all failures"], ...classes.map((name) => [name, name])]) : null,
    agents.length > 1 ? choice("agent", "agent", [["", "all agents"], ...agents]) : null,
    field("task", { placeholder: "task", inputmode: "numeric", "aria-label": "task", class: "tiny" }),
    field("least_reward", { placeholder: "reward ≥", inputmode: "decimal", "aria-label": "least reward", class: "tiny" }),
    field("most_reward", { placeholder: "reward ≤", inputmode: "decimal", "aria-label": "most reward", class: "tiny" }),
    field("least_s", { placeholder: "seconds ≥", inputmode: "decimal", "aria-label": "least seconds", class: "tiny" }));
  const unfold = el("button", { type: "button", class: "narrow-only", "aria-expanded": String(number > 0), "aria-controls": "more-filters", onclick: () => {
    unfold.setAttribute("aria-expanded", String(more.classList.toggle("open")));
  } }, number ? `filters (${number})` : "filters");
  const form = el("form", { class: "filters", role: "search", onsubmit: (event) => {
    event.preventDefault();
    location.hash = here({ ...Object.fromEntries(new FormData(form)), skip: "" });
  } },
    field("text", { type: "search", placeholder: "text in prompt or output", "aria-label": "text" }), unfold, more,
    el("button", { type: "submit" }, "search"), Object.values(wanted).some(Boolean) ? el("a", { href: address(["run", run], { tab: "rollouts" }) }, "clear") : null, menu);
  return form;
}

// Asks again and again from where the last answer ended, until there is a page of findings or nothing is left.
async function search(run, wanted, table, signal) {
  let at = 0, looked = 0, number = 0, most = PAGE, stopped = false;
  const stop = el("button", { type: "button", onclick: () => { stopped = true; } }, "stop");
  const go = async () => {
    stopped = false;
    for (;;) {
      const found = await get(["runs", run, "rollouts"], { ...wanted, after: at }, signal);
      table.add(found.rows);
      at = found.position;
      looked += found.looked_at;
      number += found.rows.length;
      const progress = el("span", { class: "quiet" }, `${count(number)} found among ${count(looked)}`);
      if (found.is_end) return show(table.foot, el("span", { class: "quiet" }, `${number ? count(number) : "nothing"} found among ${count(looked)} rollouts`));
      if (stopped || number >= most) {
        most = number + PAGE;
        return show(table.foot, progress, el("button", { type: "button", onclick: () => go().catch(() => {}) }, "search more"));
      }
      show(table.foot, progress, el("span", { class: "quiet" }, "searching …"), stop);
    }
  };
  await go();
}
