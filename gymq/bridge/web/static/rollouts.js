// The rollouts of a run: sorted and filtered page by page, or those that a search through all their texts finds.

import { get } from "./api.js";
import { address, el, show } from "./dom.js";
import { count, decimals, seconds } from "./format.js";

const FIELDS = ["text", "result", "failure", "agent", "task", "least_reward", "most_reward", "least_s"];
const PAGE = 50;
const COLUMNS = [["task", "rollout"], ["prompt", "prompt"], ["expected", "expected"], [null, "answer"], ["reward", "reward", true],
  ["turns", "turns", true], ["output_tokens", "tokens", true], ["duration_s", "time", true]];
const AGAIN_MS = 250; // until more of a run that is being read is asked for

// Returns a function that draws the page again with what is new.
export function rolloutList(box, run, query, agents, signal) {
  const wanted = Object.fromEntries(FIELDS.map((name) => [name, query.get(name) || ""]));
  const sort = query.get("sort") || "task", order = query.get("order") || "up";
  const skip = Number(query.get("skip") || 0);
  const here = (changed) => address(["run", run], { ...wanted, sort: sort === "task" ? "" : sort, order: order === "up" ? "" : order, ...changed });
  const rows = el("tbody");
  const foot = el("div", { class: "pager", role: "status" }, el("span", { class: "quiet" }, "reading …"));
  const field = (name, attributes) => el("input", { name, value: wanted[name], ...attributes });
  const choice = (name, label, options) => el("select", { name, "aria-label": label }, options.map(([value, text]) =>
    el("option", { value, selected: wanted[name] === value }, text)));
  const form = el("form", { class: "filters", onsubmit: (event) => {
    event.preventDefault();
    location.hash = here({ ...Object.fromEntries(new FormData(form)), skip: "" });
  } },
    field("text", { type: "search", placeholder: "text in prompt or output", "aria-label": "text" }),
    choice("result", "result", [["", "all results"], ["rewarded", "with a reward"], ["failed", "without one"]]),
    field("failure", { placeholder: "failure class", "aria-label": "failure class", class: "short" }),
    agents.length > 1 ? choice("agent", "agent", [["", "all agents"], ...agents.map((name) => [name, name])]) : null,
    field("task", { placeholder: "task", inputmode: "numeric", "aria-label": "task", class: "tiny" }),
    field("least_reward", { placeholder: "reward ≥", inputmode: "decimal", "aria-label": "least reward", class: "tiny" }),
    field("most_reward", { placeholder: "reward ≤", inputmode: "decimal", "aria-label": "most reward", class: "tiny" }),
    field("least_s", { placeholder: "seconds ≥", inputmode: "decimal", "aria-label": "least seconds", class: "tiny" }),
    el("button", { type: "submit" }, "search"),
    Object.values(wanted).some(Boolean) ? el("a", { href: address(["run", run]) }, "clear") : null);
  const heading = ([name, title, isNumber]) => {
    if (!name || wanted.text) return el("th", { class: isNumber ? "number" : null }, title);
    const isHere = name === sort;
    const to = here({ sort: name === "task" ? "" : name, order: isHere && order === "up" ? "down" : "", skip: "" });
    return el("th", { class: isNumber ? "number" : null, "aria-sort": isHere ? (order === "up" ? "ascending" : "descending") : null },
      el("a", { href: to, class: "sorter" }, title, isHere ? (order === "up" ? " ↑" : " ↓") : ""));
  };
  show(box, form, el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "rollouts" }, el("table", { class: "rollouts" },
    el("thead", null, el("tr", null, COLUMNS.map(heading))), rows)), foot);
  const failed = (error) => { if (error.name !== "AbortError") show(foot, el("span", { class: "bad" }, error.message)); };
  if (wanted.text) {
    search(run, wanted, rows, foot, signal).catch(failed);
    return () => {};
  }
  const draw = async () => {
    for (;;) {
      const found = await get(["runs", run, "table"], { ...wanted, sort, order, skip }, signal);
      show(rows, found.rows.map((row) => cells(run, row, sort)));
      const last = skip + found.rows.length;
      show(foot,
        skip > 0 ? el("a", { class: "button", href: here({ skip: Math.max(0, skip - PAGE) || "" }) }, "back") : null,
        last < found.num_matching ? el("a", { class: "button", href: here({ skip: skip + PAGE }) }, "next") : null,
        el("span", { class: "quiet" }, found.num_matching ? `${count(skip + 1)} to ${count(last)} of ${count(found.num_matching)}` : found.num_read ? "none matches" : "no rollouts yet",
          found.num_matching < found.num_read ? `, among ${count(found.num_read)}` : ""),
        found.is_whole ? null : el("span", { class: "quiet" }, `${count(found.num_read)} read so far …`));
      if (found.is_whole || found.num_read >= 50000 || signal.aborted) return;
      await new Promise((done) => { setTimeout(done, AGAIN_MS); });
    }
  };
  draw().catch(failed);
  return () => draw().catch(failed);
}

// Asks again and again from where the last answer ended, until there is a page of findings or nothing is left.
async function search(run, wanted, rows, foot, signal) {
  let at = 0, looked = 0, number = 0, most = PAGE, stopped = false;
  const stop = el("button", { type: "button", onclick: () => { stopped = true; } }, "stop");
  const go = async () => {
    stopped = false;
    for (;;) {
      const found = await get(["runs", run, "rollouts"], { ...wanted, after: at }, signal);
      rows.append(...found.rows.map((row) => cells(run, row, "task")));
      at = found.position;
      looked += found.looked_at;
      number += found.rows.length;
      const progress = el("span", { class: "quiet" }, `${count(number)} found among ${count(looked)}`);
      if (found.is_end) return show(foot, progress, el("span", { class: "quiet" }, "end of results"));
      if (stopped || number >= most) {
        most = number + PAGE;
        return show(foot, progress, el("button", { type: "button", onclick: () => go().catch(() => {}) }, "search more"));
      }
      show(foot, progress, el("span", { class: "quiet" }, "searching …"), stop);
    }
  };
  await go();
}

function cells(run, row, sort) {
  const by = sort === "reward" || row.failure_class ? (row.failure_class ? "failure" : "reward") : "";
  return el("tr", null,
    el("td", { class: "nowrap" }, el("a", { href: address(["rollout", run, row.task_index, row.rollout_index], { by }) }, `${row.task_index} / ${row.rollout_index}`),
      row.attempt ? el("span", { class: "quiet" }, ` attempt ${row.attempt + 1}`) : null),
    el("td", { class: "wide-only" }, el("span", { class: "clip" }, row.prompt)),
    el("td", { class: "wide-only" }, el("span", { class: "clip" }, row.expected)),
    el("td", { class: "words-cell" }, el("span", { class: row.failure_class ? "clip lines" : "clip" }, row.failure_class ? el("span", { class: "bad" }, `${row.failure_class}: `) : null, row.words)),
    row.reward === null ? el("td", { class: "bad number" }, "–") : el("td", { class: "number" }, el("span", { class: row.reward > 0 ? "good" : "bad" }, decimals(row.reward))),
    el("td", { class: "number" }, row.turns || "–"),
    el("td", { class: "number" }, count(row.output_tokens)),
    el("td", { class: "number nowrap" }, seconds(row.duration_s)));
}

