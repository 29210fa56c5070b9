// Runs side by side: their differences, their numbers, task by task, and their curves.

import { get } from "./api.js";
import { curveOf, histograms, passCurve } from "./chart.js";
import { configurationDifferences } from "./configuration.js";
import { address, el, link, show } from "./dom.js";
import { count, fixed, leftOut, percent, policies } from "./format.js";
import { bind } from "./keys.js";
import { meanNotes, numFailed, ofAll } from "./numbers.js";
import { transcript } from "./rollout.js";
import { dots, scaleOf } from "./tasks.js";

const TASKS = 60; // on a page

// runs: names, at least two; the others are compared with the first, task by task with the second
export async function compareView(main, runs, query, signal) {
  const views = await Promise.all(runs.map((run) => get(["runs", run], null, signal)));
  const list = el("section", { class: "card" }), set = el("section", { class: "card" }, el("p", { class: "quiet" }, "loading …")), paired = el("div", { role: "status" });
  const agents = [...new Set(views.flatMap((view) => Object.keys(view.overview.agents)))].sort();
  const names = Object.assign({}, ...views.map((view) => view.overview.environments));
  const titled = (agent, text, note) => el("h2", null, agents.length > 1 ? `${names[agent]}: ${text}` : text, el("span", { class: "quiet" }, note));
  const drawings = (agent) => {
    const known = runs.map((run, at) => [run, views[at]]).filter(([, view]) => view.overview.agents[agent]);
    const curves = known.map(([run, view]) => curveOf(run, view.overview.agents[agent])).filter((curve) => curve.points.length);
    return el("div", { class: "columns" },
      el("section", { class: "card" }, titled(agent, "pass@k", " in %"), passCurve(curves)),
      el("section", { class: "card" }, titled(agent, "rewards", ""), histograms(known.map(([run, view]) => ({ name: run, bars: view.histograms[agent] })))));
  };
  show(main,
    el("section", { class: "card" }, el("h1", null, "Side by side"), leftOut(views) && el("p", { class: "quiet" }, leftOut(views)), paired, numbers(agents, names, runs, views)),
    list, set,
    agents.map(drawings));
  configurationDifferences(set, runs, signal).catch((error) => { if (error.name !== "AbortError") show(set, el("p", { class: "bad" }, error.message)); });
  await tasks(list, paired, runs, query, signal);
}

function numbers(agents, names, runs, views) {
  const rates = (view, agent) => (view.overview.agents[agent] ? ofAll(view.overview.agents[agent]) : {});
  const ks = (agent) => [...new Set(views.flatMap((view) => Object.keys(rates(view, agent))))].map(Number).sort((x, y) => x - y);
  // Of several agents only the first and the last k, the whole curves are below.
  const shown = (agent) => (agents.length > 1 ? [...new Set([ks(agent)[0], ks(agent).at(-1)])].filter(Boolean) : ks(agent));
  const withInterval = (estimate) => (estimate ? `${percent(estimate.value)}${estimate.interval ? ` (${estimate.interval.low.toFixed(1)} to ${estimate.interval.high.toFixed(1)})` : ""}` : "–");
  const row = (name, cell) => [name, ...views.map(cell)];
  const rows = [row("finished", (view) => count(view.num_stored)), row("failed", (view) => count(numFailed(view.overview.all))),
    row("mean reward", ({ overview: { all } }) => [fixed(all?.mean_reward?.value, 3),
      all && meanNotes(all, numFailed(all)).map((note) => el("span", { class: "quiet small block-line" }, note))]),
    ...agents.flatMap((agent) => shown(agent).map((k) => row(agents.length > 1 ? `${names[agent]}: pass@${k}` : `pass@${k}`, (view) => withInterval(rates(view, agent)[k])))),
    row("policy", (view) => policies(view.overview))];
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "numbers of the runs" }, el("table", { class: "cards" },
    el("thead", null, el("tr", null, el("th", null, el("span", { class: "unseen" }, "number")), runs.map((run) => el("th", null, link(["run", run], run))))),
    el("tbody", null, rows.map(([name, ...cells]) => el("tr", null, el("td", { class: "quiet label" }, name), cells.map((cell, at) => el("td", { "data-name": runs[at] }, cell)))))));
}

const ORDERS = [["worse", "where the second run is worse"], ["better", "where the second run is better"], ["task", "in order"]];

async function tasks(box, paired, runs, query, signal) {
  const [left, right, ...others] = runs;
  const sort = query.get("sort") || "worse", skip = Number(query.get("skip") || 0), more = others.join(",");
  const here = (changed) => address(["compare", left, right], { sort, more, ...changed });
  show(box, el("p", { class: "quiet" }, "loading …"));
  for (;;) {
    const found = await get(["runs", left, "compared", right], { sort, skip, more }, signal);
    show(paired, found.differences.map((one, at) => difference(one, left, at ? address(["compare", left, one.run], { more: runs.slice(1).filter((run) => run !== one.run).join(",") }) : null)));
    const scale = scaleOf(found.tasks.flatMap((pair) => [pair.left, pair.right, ...pair.more].filter(Boolean)));
    const choice = el("select", { "aria-label": "order of tasks", onchange: (event) => { location.hash = here({ sort: event.target.value, skip: "" }); } },
      ORDERS.map(([value, text]) => el("option", { value, selected: value === sort }, text)));
    const cells = (run, task) => [el("td", { class: "number", "data-name": run }, fixed(task?.mean, 3)), el("td", { class: "dots-cell" }, task ? dots(run, task, scale) : null)];
    show(box, el("div", { class: "row" }, el("h2", null, "Task by task"), choice),
      found.tasks.length ? el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "tasks" }, el("table", { class: "cards" },
        el("thead", null, el("tr", null, el("th", null, "task"), el("th", { class: "number" }, "difference"), runs.map((run) => el("th", { colspan: 2 }, run)), el("th", null, "prompt"))),
        el("tbody", null, found.tasks.map((pair) => el("tr", null,
          el("td", null, el("a", { href: address(["compare", left, right, pair.task_index, pair.left.rollouts[0][0]], { sort }) }, pair.task_index)),
          el("td", { "data-name": "difference", class: `number ${pair.difference > 0 ? "good" : pair.difference < 0 ? "bad" : "quiet"}` }, signed(pair.difference)),
          [pair.left, pair.right, ...pair.more].map((task, at) => cells(runs[at], task)),
          el("td", { class: "words-cell" }, el("span", { class: "clip" }, pair.prompt))))))) : el("p", { class: "quiet" }, "the runs have no task in common"),
      el("div", { class: "pager" }, skip > 0 ? el("a", { class: "button", href: here({ skip: Math.max(0, skip - TASKS) || "" }) }, "back") : null,
        skip + TASKS < found.num_tasks ? el("a", { class: "button", href: here({ skip: skip + TASKS }) }, "next") : null,
        found.is_whole ? null : el("span", { class: "quiet" }, "loading more …")));
    if (found.is_whole || signal.aborted) return;
    await new Promise((done) => { setTimeout(done, 250); });
  }
}

const signed = (value) => (value === null || value === undefined ? "–" : `${value > 0 ? "+" : ""}${fixed(value, 3)}`);

// The one number for which runs are compared; `first` leads to this run as the second one.
function difference({ run, difference: found, num_better: better, num_worse: worse, num_equal: equal, num_tasks: common }, left, first) {
  if (!found) return el("p", { class: "quiet" }, `no task has rewards in both ${run} and ${left}`);
  const { value, interval } = found;
  const compared = better + worse + equal;
  const isClear = interval && (interval.low > 0 || interval.high < 0);
  return el("div", { class: "difference" },
    el("p", null, "Mean reward of ", first ? el("a", { href: first }, run) : el("b", null, run), " minus that of ", el("b", null, left), ", task by task:"),
    el("p", { class: "paired" }, el("span", { class: `value ${value > 0 ? "good" : value < 0 ? "bad" : ""}` }, signed(value)),
      el("span", { class: "quiet" }, interval ? ` ${signed(interval.low)} to ${signed(interval.high)} (95 %)` : " no interval: there are too few tasks, or all show the same"),
      interval ? el("span", { class: `badge ${isClear ? (value > 0 ? "rollout" : "failure") : ""}` }, isClear ? "a difference" : "may be chance") : null),
    el("p", { class: "quiet" }, `better in ${count(better)}, worse in ${count(worse)}, equal in ${count(equal)} of ${count(compared)} tasks${compared < common ? `; ${count(common - compared)} more without a reward in one of the runs` : ""}`));
}

// One rollout of each run, beside each other; previous and next stay within the comparison.
export async function compareRollout(main, left, right, task, rollout, query, signal) {
  const sort = query.get("sort") || "worse";
  const side = async (run) => {
    try {
      return transcript(await get(["rollouts", run, task, rollout], null, signal), signal);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      return el("section", { class: "card" }, el("p", { class: "quiet" }, error.message));
    }
  };
  const besides = async () => {
    const { tasks: around } = await get(["runs", left, "compared", right], { sort, around: task }, signal).catch(() => ({ tasks: [] }));
    const at = around.findIndex((pair) => pair.task_index === task);
    const to = (pair, text, rel) => (pair ? el("a", { class: "button", rel, href: address(["compare", left, right, pair.task_index, pair.left.rollouts[0][0]], { sort }) }, text) : null);
    return at < 0 ? [] : [to(around[at - 1], "previous task", "prev"), to(around[at + 1], "next task", "next"), el("span", { class: `number ${around[at].difference > 0 ? "good" : "bad"}` }, `difference ${signed(around[at].difference)}`)];
  };
  const to = (text, index) => el("a", { class: "button", href: address(["compare", left, right, task, index], { sort }) }, text);
  const [a, b, around] = await Promise.all([side(left), side(right), besides()]);
  const follow = (relation) => main.querySelector(`a[rel=${relation}]`)?.click();
  bind({ "[": ["to the previous task", () => follow("prev")], "]": ["to the next task", () => follow("next")] }, signal);
  show(main, el("section", { class: "card row" }, el("h1", null, `task ${task}, rollout ${rollout}`), el("span", { class: "push" }),
    rollout > 0 ? to("previous rollout", rollout - 1) : null, to("next rollout", rollout + 1), around),
    el("div", { class: "columns" },
      el("div", null, el("h2", { class: "side" }, link(["run", left], left)), a),
      el("div", null, el("h2", { class: "side" }, link(["run", right], right)), b)));
}
