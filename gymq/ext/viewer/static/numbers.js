// The numbers of a run: how far it is, what it earned and what failed, in all and by environment.

import { el } from "./dom.js";
import { count, fixed, percent, seconds } from "./format.js";

const KS = [1, 2, 4, 8, 16, 32, 64]; // of pass@k in a table; and the largest of a run

export const numFailed = (agent) => Object.values(agent?.failures || {}).reduce((sum, one) => sum + one, 0);

// pass@k for the k that every task has so many rewards for, so that all are about the same tasks.
export const ofAll = (agent) => Object.fromEntries(Object.entries(agent.pass_at_k).filter(([, estimate]) => estimate.tasks === agent.tasks));
const range = (estimate, digits) => (estimate?.interval ? `${fixed(estimate.interval.low, digits)} to ${fixed(estimate.interval.high, digits)}` : null);

// A run whose rollouts failed says so where it says that it is done.
export const stateWords = (state, failed) => (failed && state === "done" ? `done, ${count(failed)} failed` : state);

// What has a reward and what failed, as parts of all rollouts; nothing once every rollout has its reward.
export function progressBar({ overview: run, num_stored: stored }) {
  const failed = numFailed(run.all), all = run.num_rollouts;
  if (!all || (stored >= all && !failed)) return null;
  const part = (kind, number) => {
    const box = el("span", { class: `fill ${kind}` });
    box.style.width = `${Math.min(100, (100 * number) / all)}%`;
    return box;
  };
  return el("span", { class: "track wide", role: "img", "aria-label": `${count(stored)} of ${count(all)} rollouts done, ${count(failed)} of them failed` },
    part("rewarded", stored - failed), failed ? part("failed", failed) : null);
}

export const meanNotes = (agent, failed) => [range(agent.mean_reward, 3), failed ? `mean of ${count(agent.rollouts)} of ${count(agent.rollouts + failed)}` : null,
  agent.lower_bound === null ? null : el("span", { class: "bad" }, `≥ ${fixed(agent.lower_bound, 3)} with failures as 0`)].filter(Boolean);

export function tiles(view, rate) {
  const { overview } = view, { all } = overview;
  const failed = numFailed(all), isOpen = ["queued", "running"].includes(view.state);
  const perSecond = rate.perSecond(), left = rate.left(view);
  const rates = all ? Object.entries(ofAll(all)).map(([k, estimate]) => [Number(k), estimate]).sort(([a], [b]) => a - b) : [];
  const tokens = all?.fields.output_tokens;
  const shown = [["finished", count(view.num_stored), overview.num_rollouts && overview.num_rollouts !== view.num_stored ? [`of ${count(overview.num_rollouts)}`] : []],
    ["mean reward", fixed(overview.mean_reward, 3), all ? meanNotes(all, failed) : []],
    ...rates.filter((one, at) => at === 0 || at === rates.length - 1).map(([k, estimate]) => [`pass@${k}`, percent(estimate.value), [range(estimate, 1)]]),
    all ? ["tasks", count(all.tasks), []] : null,
    tokens ? ["tokens per rollout", count(Math.round(tokens.mean)), []] : null,
    ["failed", el("span", { class: failed ? "bad" : null }, count(failed)), overview.num_failed_attempts > failed ? [`${count(overview.num_failed_attempts)} attempts failed`] : []],
    isOpen ? ["rollouts/s", perSecond === null ? "–" : fixed(perSecond, 1), [left ? `done in ${seconds(left)}` : "while you watch"]] : null,
    view.state === "interrupted" ? ["missing", count(overview.num_rollouts - view.num_stored), ["the same gymq collect resumes it"]] : null,
    isOpen ? ["queued or in flight", count(view.num_queued), []] : null].filter(Boolean);
  return el("div", { class: "tiles" }, shown.map(([name, value, notes]) => el("div", { class: "tile" },
    el("div", { class: "quiet" }, name), el("div", { class: "value" }, value), notes.filter(Boolean).map((note) => el("div", { class: "quiet small" }, note)))));
}

// The table that the terminal prints at the end: a line for each environment, and one for all of them.
export function environmentTable({ overview: { agents, all, environments: names } }) {
  const found = Object.entries(agents);
  if (found.length < 2 || !all) return null;
  const largest = Math.max(...found.map(([, agent]) => agent.max_k));
  const common = new Set(found.flatMap(([, agent]) => Object.keys(ofAll(agent)).map(Number)));
  const ks = [...new Set([...KS, largest])].filter((k) => common.has(k)).sort((a, b) => a - b);
  const number = (title, ...parts) => el("td", { class: "number", "data-name": title }, parts);
  const estimated = (title, estimate, digits, ...notes) => number(title, fixed(estimate?.value, digits), [range(estimate, digits), ...notes].filter(Boolean).map((note) => el("span", { class: "quiet small block-line" }, note)));
  const line = (name, agent) => {
    const failed = numFailed(agent), rates = ofAll(agent);
    return el("tr", { class: agent === all ? "all" : null }, el("td", null, name),
      estimated("mean reward", agent.mean_reward, 3, ...meanNotes(agent, failed).slice(agent.mean_reward?.interval ? 1 : 0)),
      ks.map((k) => estimated(`pass@${k} %`, rates[k], 1)), number("tasks", count(agent.tasks)), number("rollouts", count(agent.rollouts + failed)),
      number("failed", el("span", { class: failed ? "bad" : "quiet" }, count(failed))));
  };
  const heads = ["environment", "mean reward", ...ks.map((k) => `pass@${k} %`), "tasks", "rollouts", "failed"];
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "numbers by environment" }, el("table", { class: "cards environments" },
    el("thead", null, el("tr", null, heads.map((name, at) => el("th", { class: at ? "number" : null }, name)))),
    el("tbody", null, found.map(([name, agent]) => line(names[name], agent)), line("all", all))));
}
