// Two runs side by side: their curves, their rewards, and task by task.

import { get } from "./api.js";
import { curveOf, histograms, passCurve } from "./chart.js";
import { address, el, link, show } from "./dom.js";
import { count, decimals, percent } from "./format.js";
import { transcript } from "./rollout.js";

const TASKS = 20;

export async function compareView(main, left, right, query, signal) {
  const [a, b] = await Promise.all([left, right].map((run) => get(["runs", run], null, signal)));
  const list = el("section", { class: "card" }, el("p", { class: "quiet" }, "reading …"));
  const agents = [...new Set([a, b].flatMap((view) => Object.keys(view.overview.agents)))].sort();
  const titled = (agent, text, note) => el("h2", null, agents.length > 1 ? `${agent}: ${text}` : text, el("span", { class: "quiet" }, note));
  const drawings = (agent) => {
    const known = [[left, a], [right, b]].filter(([, view]) => view.overview.agents[agent]);
    const curves = known.map(([run, view]) => curveOf(run, view.overview.agents[agent])).filter((curve) => curve.points.length);
    return el("div", { class: "columns" },
      el("section", { class: "card" }, titled(agent, "pass@k", " in %"), passCurve(curves)),
      el("section", { class: "card" }, titled(agent, "rewards", ""), histograms(known.map(([run, view]) => ({ name: run, bars: view.histograms[agent] })))));
  };
  show(main,
    el("section", { class: "card" }, el("h1", null, "Side by side"), numbers(agents, left, a, right, b)),
    agents.map(drawings),
    list);
  await tasks(list, left, right, Number(query.get("first") || 0), signal);
}

function numbers(agents, left, a, right, b) {
  const failures = (view) => Object.values(view.overview.failures).reduce((sum, one) => sum + one, 0);
  const ks = (agent) => [...new Set([a, b].flatMap((view) => Object.keys(view.overview.agents[agent]?.pass_at_k || {})))].map(Number).sort((x, y) => x - y);
  // Of several agents only the first and the last k, the whole curves are below.
  const shown = (agent) => (agents.length > 1 ? [...new Set([ks(agent)[0], ks(agent).at(-1)])].filter(Boolean) : ks(agent));
  const told = (estimate) => (estimate ? `${percent(estimate.value)}${estimate.interval ? ` (${decimals(estimate.interval.low, 1)} to ${decimals(estimate.interval.high, 1)})` : ""}` : "–");
  const rows = [["rewarded", count(a.overview.num_rewarded), count(b.overview.num_rewarded)],
    ["failed attempts", count(failures(a)), count(failures(b))],
    ["mean reward", decimals(a.overview.mean_reward), decimals(b.overview.mean_reward)],
    ...agents.flatMap((agent) => shown(agent).map((k) => [agents.length > 1 ? `${agent}: pass@${k}` : `pass@${k}`,
      ...[a, b].map((view) => told(view.overview.agents[agent]?.pass_at_k[k]))])),
    ["policy", a.overview.models.join(", "), b.overview.models.join(", ")]];
  return el("div", { class: "scroll" }, el("table", null,
    el("thead", null, el("tr", null, el("th"), el("th", null, link(["run", left], left)), el("th", null, link(["run", right], right)))),
    el("tbody", null, rows.map(([name, ...cells]) => el("tr", null, el("td", { class: "quiet label" }, name), cells.map((cell) => el("td", null, cell)))))));
}

async function tasks(box, left, right, first, signal) {
  const [a, b] = await Promise.all([left, right].map((run) => get(["runs", run, "tasks"], { first }, signal)));
  const mean = (task) => {
    const rewards = task.rollouts.map(([, reward]) => reward).filter((reward) => reward !== null);
    return rewards.length ? rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length : null;
  };
  const dots = (run, task) => el("span", { class: "dots" }, task.rollouts.slice(0, 32).map(([rollout, reward]) =>
    link(["rollout", run, task.task_index, rollout], "", { class: `dot ${reward === null ? "failed" : reward > 0 ? "won" : "lost"}`, title: `rollout ${rollout}: ${reward === null ? "failed" : decimals(reward)}` })));
  const pages = [first > 0 ? el("a", { href: address(["compare", left, right], { first: Math.max(0, first - TASKS) || "" }) }, "back") : null,
    el("span", { class: "quiet" }, `tasks ${first} to ${first + TASKS - 1}`), el("a", { href: address(["compare", left, right], { first: first + TASKS }) }, "next")];
  const shown = a.map((task, at) => [task, b[at]]).filter(([one, other]) => one.rollouts.length || other.rollouts.length);
  show(box, el("h2", null, "Task by task"), shown.length ? el("div", { class: "scroll" }, el("table", null,
    el("thead", null, el("tr", null, ["task", left, "", right, "", "difference"].map((name) => el("th", null, name)))),
    el("tbody", null, shown.map(([one, other]) => {
      const [x, y] = [mean(one), mean(other)];
      const change = x === null || y === null ? null : y - x;
      return el("tr", null, el("td", null, link(["compare", left, right, one.task_index, 0], one.task_index)),
        el("td", { class: "number" }, decimals(x)), el("td", null, dots(left, one)), el("td", { class: "number" }, decimals(y)), el("td", null, dots(right, other)),
        el("td", { class: `number ${change > 0 ? "good" : change < 0 ? "bad" : "quiet"}` }, change === null ? "–" : `${change > 0 ? "+" : ""}${decimals(change)}`));
    })))) : el("p", { class: "quiet" }, "no rollouts of these tasks"), el("div", { class: "pager" }, pages));
}

// One rollout of each run, beside each other.
export async function compareRollout(main, left, right, task, rollout, signal) {
  const side = async (run) => {
    try {
      return transcript(await get(["rollouts", run, task, rollout], null, signal), signal);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      return el("section", { class: "card" }, el("p", { class: "quiet" }, error.message));
    }
  };
  const [a, b] = await Promise.all([side(left), side(right)]);
  const to = (text, index) => link(["compare", left, right, task, index], text);
  show(main, el("section", { class: "card row" }, el("h1", null, `task ${task}, rollout ${rollout}`), el("span", { class: "push" }), rollout > 0 ? to("previous", rollout - 1) : null, to("next", rollout + 1)),
    el("div", { class: "columns" },
      el("div", null, el("h2", { class: "side" }, link(["run", left], left)), a),
      el("div", null, el("h2", { class: "side" }, link(["run", right], right)), b)));
}
