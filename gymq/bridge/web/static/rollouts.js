// The rollouts of a run: page by page, or those that a search finds.

import { get } from "./api.js";
import { address, el, link, show } from "./dom.js";
import { count, decimals, seconds } from "./format.js";

const FIELDS = ["text", "result", "failure", "agent", "task", "least_reward", "most_reward", "least_s"];

export async function rolloutList(box, run, query, agents, signal) {
  const wanted = Object.fromEntries(FIELDS.map((name) => [name, query.get(name) || ""]));
  const isSearch = Object.values(wanted).some(Boolean);
  const rows = el("tbody");
  const foot = el("div", { class: "pager" });
  const field = (name, attributes) => el("input", { name, value: wanted[name], ...attributes });
  const choice = (name, label, options) => el("select", { name, "aria-label": label }, options.map(([value, text]) =>
    el("option", { value, selected: wanted[name] === value }, text)));
  const form = el("form", { class: "filters", onsubmit: (event) => {
    event.preventDefault();
    location.hash = address(["run", run], Object.fromEntries(new FormData(form)));
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
    isSearch ? el("a", { href: address(["run", run]) }, "clear") : null);
  const heads = ["rollout", "reward", "time", "tokens", "reply"];
  show(box, el("h2", null, "Rollouts"), form, el("div", { class: "scroll" }, el("table", { class: "rollouts" },
    el("thead", null, el("tr", null, heads.map((name, at) => el("th", { class: at > 0 && at < 4 ? "number" : null }, name)))), rows)), foot);
  if (isSearch) await search(run, wanted, rows, foot, signal);
  else await page(run, { after: 0 }, rows, foot, signal);
}

async function page(run, at, rows, foot, signal) {
  const found = await get(["runs", run, "rollouts"], at, signal);
  if (!found.rows.length && at.before) return page(run, { after: 0 }, rows, foot, signal);
  show(rows, found.rows.map((row) => cells(run, row)));
  const first = found.rows[0]?.position, last = found.rows[found.rows.length - 1]?.position;
  const button = (text, to, off) => el("button", { type: "button", disabled: off, onclick: () => page(run, to, rows, foot, signal).catch((error) => show(foot, el("span", { class: "bad" }, error.message))) }, text);
  const atStart = at.before === undefined && !at.after;
  show(foot, button("first", { after: 0 }, atStart), button("back", { before: first }, atStart || !first),
    button("next", { after: last }, found.is_end || !last), button("newest", { before: Number.MAX_SAFE_INTEGER }, found.is_end),
    el("span", { class: "quiet" }, found.rows.length ? `at position ${count(first)}` : "no rollouts yet"));
}

// Asks again and again from where the last answer ended, until there is a page of findings or nothing is left.
async function search(run, wanted, rows, foot, signal) {
  let at = 0, looked = 0, number = 0, most = 50, stopped = false;
  const stop = el("button", { type: "button", onclick: () => { stopped = true; } }, "stop");
  const go = async () => {
    stopped = false;
    for (;;) {
      const found = await get(["runs", run, "rollouts"], { ...wanted, after: at }, signal);
      rows.append(...found.rows.map((row) => cells(run, row)));
      at = found.position;
      looked += found.looked_at;
      number += found.rows.length;
      const progress = el("span", { class: "quiet" }, `${count(number)} found among ${count(looked)}`);
      if (found.is_end) return show(foot, progress, el("span", { class: "quiet" }, "end of results"));
      if (stopped || number >= most) {
        most = number + 50;
        return show(foot, progress, el("button", { type: "button", onclick: () => go().catch(() => {}) }, "search more"));
      }
      show(foot, progress, el("span", { class: "quiet" }, "searching …"), stop);
    }
  };
  await go();
}

function cells(run, row) {
  return el("tr", null,
    el("td", { class: "nowrap" }, link(["rollout", run, row.task_index, row.rollout_index], `${row.task_index} / ${row.rollout_index}`), row.attempt ? el("span", { class: "quiet" }, ` attempt ${row.attempt + 1}`) : null),
    row.reward === null ? el("td", { class: "bad number" }, "–") : el("td", { class: "number" }, el("span", { class: row.reward > 0 ? "good" : "quiet" }, decimals(row.reward))),
    el("td", { class: "number nowrap" }, seconds(row.duration_s)),
    el("td", { class: "number" }, count(row.output_tokens)),
    el("td", null, el("span", { class: row.failure_class ? "clip lines" : "clip" }, row.failure_class ? el("span", { class: "bad" }, `${row.failure_class}: `) : null, row.words)));
}
