// One run: its numbers as they change, then its rollouts, its tasks, what fails, its curves and its agents.

import { get, listen } from "./api.js";
import { curveOf, histograms, passCurve } from "./chart.js";
import { address, el, link, show } from "./dom.js";
import { count, decimals, percent, seconds, time } from "./format.js";
import { bind } from "./keys.js";
import { rolloutList } from "./rollouts.js";
import { taskGrid } from "./tasks.js";

const TABS = [["rollouts", "Rollouts"], ["tasks", "Tasks"], ["failures", "Failures"], ["charts", "Charts"], ["agents", "Agents"]];
const AGAIN_MS = 3000; // between two readings of what a run that goes on has in its lists

export async function runView(main, run, query, signal, live) {
  const tab = TABS.some(([name]) => name === query.get("tab")) ? query.get("tab") : "rollouts";
  const head = el("section", { class: "card" });
  const tabs = el("nav", { class: "tabs", "aria-label": "parts of the run" });
  const body = el("section", { class: "card" });
  const hand = el("section", { class: "card", hidden: true });
  show(main, head, hand, el("div", { class: "tabbed" }, tabs, body));
  const rate = new Rate();
  let again = null, isStale = false, numRead = 0;

  const parts = {
    rollouts: (view) => rolloutList(body, run, query, Object.keys(view.overview.agents), signal),
    tasks: () => taskGrid(body, run, query, signal),
  };
  const drawn = {
    failures: (view) => drawFailing(body, run, view),
    charts: (view) => drawCharts(body, run, view),
    agents: (view) => drawAgents(body, view),
  };
  const draw = (view) => {
    rate.note(view);
    drawHead(head, run, view, rate);
    const failures = Object.values(view.overview.failures).reduce((sum, one) => sum + one, 0);
    show(tabs, TABS.map(([name, title]) => el("a", { href: address(["run", run], { tab: name === "rollouts" ? "" : name }), "aria-current": name === tab ? "page" : null },
      title, name === "failures" && failures ? el("span", { class: "badge failure" }, count(failures)) : null)));
    if (drawn[tab]) return drawn[tab](view);
    if (!again) again = parts[tab](view);
    else if (view.num_stored !== numRead) isStale = true;
    numRead = view.num_stored;
    return null;
  };
  const look = async () => {
    const tasks = await get(["runs", run, "in-hand"], null, signal);
    hand.hidden = !tasks.length;
    show(hand, el("h2", null, `In progress `, el("span", { class: "quiet" }, tasks.length >= 200 ? "200 or more" : count(tasks.length))),
      el("div", { class: "chips" }, tasks.slice(0, 60).map((task) => link(["rollout", run, task.task_index, task.rollout_index], `${task.task_index} / ${task.rollout_index}`, { class: "chip", title: task.agent }))));
  };
  bind(keysOf(body), signal);
  look().catch(() => {});
  const timer = setInterval(() => {
    look().catch(() => {});
    if (isStale) again();
    isStale = false;
  }, AGAIN_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
  await listen(["runs", run, "live"], { run: (view) => { live(!view.is_done); draw(view); }, away: () => live(false) }, signal);
}

function keysOf(body) {
  const step = (by) => {
    const rows = [...body.querySelectorAll("tbody tr td:first-child a")];
    const at = rows.indexOf(document.activeElement);
    rows[Math.max(0, Math.min(rows.length - 1, at + by))]?.focus();
  };
  return {
    j: ["to the next row", () => step(1)],
    k: ["to the row before", () => step(-1)],
    "/": ["search the rollouts", () => body.querySelector("input[type=search]")?.focus()],
  };
}

function drawCharts(body, run, view) {
  const names = Object.keys(view.overview.agents);
  const series = names.filter((name) => view.overview.agents[name].rollouts).map((name) => curveOf(name, view.overview.agents[name]));
  const slow = el("div");
  drawSlow(slow, run, view.slowest);
  show(body, el("div", { class: "columns" },
    el("div", null, el("h2", null, "pass@k", el("span", { class: "quiet" }, " in %, with 95 % intervals over tasks")), passCurve(series)),
    el("div", null, el("h2", null, "Rewards"), histograms(names.map((name) => ({ name, bars: view.histograms[name] }))))), slow);
}

function drawAgents(body, view) {
  const { overview } = view;
  show(body, agentsTable(overview.agents),
    el("dl", { class: "facts wide" }, [["models", overview.models.join(", ") || "unknown"], ["rollouts in all", count(overview.num_rollouts)]].map(([name, value]) =>
      el("div", null, el("dt", null, name), el("dd", null, value)))));
}

class Rate {
  constructor() { this.noted = []; }

  note(view) {
    const done = view.overview.num_rewarded + Object.values(view.overview.failures).reduce((sum, one) => sum + one, 0);
    this.noted.push([view.overview.updated_at, done]);
    this.noted = this.noted.slice(-15);
  }

  // Seconds until a run is done, at the rate that was seen; null if nobody knows.
  left(view) {
    const perSecond = this.perSecond();
    return perSecond && view.overview.num_rollouts ? Math.max(0, view.overview.num_rollouts - view.num_stored) / perSecond : null;
  }

  perSecond() {
    const [first, last] = [this.noted[0], this.noted[this.noted.length - 1]];
    return last[0] > first[0] ? (last[1] - first[1]) / (last[0] - first[0]) : null;
  }
}

export const stateOf = (view) => (view.is_done ? "done" : view.num_stored ? "running" : "queued");

function drawHead(head, run, view, rate) {
  const { overview } = view;
  const failures = Object.values(overview.failures).reduce((sum, one) => sum + one, 0);
  const agents = Object.values(overview.agents);
  const perSecond = rate.perSecond(), left = rate.left(view), state = stateOf(view);
  const only = agents.length === 1 ? agents[0] : null;
  const interval = (estimate, told) => (estimate?.interval ? `${told(estimate.interval.low)} to ${told(estimate.interval.high)}` : null);
  const tiles = [["rewarded", count(overview.num_rewarded), overview.num_rollouts ? `of ${count(overview.num_rollouts)}` : null],
    ["mean reward", decimals(overview.mean_reward), interval(only?.mean_reward, decimals)],
    only ? ["pass@1", percent(only.pass_at_k["1"]?.value), interval(only.pass_at_k["1"], (value) => decimals(value, 1))] : null,
    only ? ["tokens a rollout", decimals(only.members.output_tokens?.mean, 0), null] : null,
    ["failed attempts", count(failures), null],
    view.is_done ? null : ["rollouts/s", perSecond === null ? "–" : decimals(perSecond, 1), left ? `done in ${seconds(left)}` : "while you watch"],
    view.is_done ? null : ["open tasks", count(view.open_tasks), null]].filter(Boolean);
  const fill = el("span", { class: "fill" });
  fill.style.width = overview.num_rollouts ? `${Math.min(100, (100 * view.num_stored) / overview.num_rollouts)}%` : "0";
  show(head,
    el("div", { class: "row" }, el("h1", null, run), el("span", { class: `badge ${state}` }, state), link([], "compare", { class: "button", href: address([], { with: run }) })),
    el("p", { class: "quiet" }, `started ${time(overview.created_at)}`, overview.models.length ? `, policy: ${overview.models.join(", ")}` : ""),
    overview.num_rollouts ? el("span", { class: "track wide", role: "img", "aria-label": `${count(view.num_stored)} of ${count(overview.num_rollouts)} rollouts done` }, fill) : null,
    el("div", { class: "tiles" }, tiles.map(([name, value, note]) =>
      el("div", { class: "tile" }, el("div", { class: "quiet" }, name), el("div", { class: "value" }, value), note ? el("div", { class: "quiet small" }, note) : null))));
}

function agentsTable(agents) {
  const names = ["agent", "tasks", "rollouts", "reward", "pass@1", "pass@max", "tokens out", "std"];
  return el("div", { class: "scroll" }, el("table", null,
    el("thead", null, el("tr", null, names.map((name, at) => el("th", { class: at ? "number" : null }, name)))),
    el("tbody", null, Object.entries(agents).map(([name, agent]) => {
      const last = agent.pass_at_k[agent.max_k];
      return el("tr", null, el("td", null, name), ...[
        count(agent.tasks), count(agent.rollouts), decimals(agent.mean_reward?.value),
        percent(agent.pass_at_k["1"]?.value), last ? `${percent(last.value)} (k ${agent.max_k})` : "–",
        decimals(agent.members.output_tokens?.mean, 0), decimals(agent.members.reward?.std),
      ].map((cell) => el("td", { class: "number" }, cell)));
    }))));
}

function drawFailing(box, run, view) {
  const classes = Object.entries(view.overview.failures).sort((a, b) => b[1] - a[1]);
  show(box, el("h2", null, "Failed attempts by class"),
    classes.length ? el("div", { class: "chips" }, classes.map(([name, number]) =>
      el("a", { class: "chip bad", href: address(["run", run], { failure: name }) }, `${name} ${count(number)}`))) : el("p", { class: "quiet" }, "no failures"),
    view.failing.length ? el("ul", { class: "plain" }, view.failing.map((one) => {
      const [, task, rollout] = one.rollout.split("/");
      return el("li", null, link(["rollout", run, task, rollout], `${task} / ${rollout}`), " ",
        el("span", { class: "bad" }, one.failure_class), " ", el("span", { class: "quiet clip lines" }, one.reason));
    })) : null);
}

function drawSlow(box, run, slowest) {
  const most = slowest.length ? slowest[0][0] : 1;
  show(box, el("h2", null, "Slowest"), slowest.length ? el("ul", { class: "plain" }, slowest.map(([duration, task, rollout, agent, reward]) => {
    const fill = el("span", { class: "fill" });
    fill.style.width = `${(100 * duration) / most}%`;
    return el("li", { class: "slow" }, link(["rollout", run, task, rollout], `${task} / ${rollout}`, { title: agent }),
      el("span", { class: "track" }, fill), el("span", { class: "number" }, seconds(duration)),
      reward === null ? el("span", { class: "bad" }, "failed") : el("span", { class: "quiet" }, decimals(reward)));
  })) : el("p", { class: "quiet" }, "no rollout is done yet"));
}
