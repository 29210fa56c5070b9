// One run: its numbers and curves as they change, what fails, what is slow, and its rollouts.

import { get, listen } from "./api.js";
import { curveOf, histograms, passCurve } from "./chart.js";
import { address, el, link, show } from "./dom.js";
import { count, decimals, percent, seconds, time } from "./format.js";
import { rolloutList } from "./rollouts.js";

export async function runView(main, run, query, signal, live) {
  const head = el("section", { class: "card" });
  const curves = el("section", { class: "card" });
  const bars = el("section", { class: "card" });
  const failing = el("section", { class: "card" });
  const slow = el("section", { class: "card" });
  const hand = el("section", { class: "card", hidden: true });
  const list = el("section", { class: "card" });
  show(main, head, el("div", { class: "columns" }, curves, bars), hand, el("div", { class: "columns" }, failing, slow), list);
  const rate = new Rate();
  let shown = null;

  const draw = (view) => {
    const names = Object.keys(view.overview.agents);
    rate.note(view);
    drawHead(head, run, view, rate.perSecond());
    const series = names.filter((name) => view.overview.agents[name].rollouts).map((name) => curveOf(name, view.overview.agents[name]));
    show(curves, el("h2", null, "pass@k", el("span", { class: "quiet" }, " in %, with 95 % intervals over tasks")), passCurve(series));
    show(bars, el("h2", null, "Rewards"), histograms(names.map((name) => ({ name, bars: view.histograms[name] }))));
    drawFailing(failing, run, view);
    drawSlow(slow, run, view.slowest);
    if (!shown) rolloutList(list, run, query, names, signal).catch((error) => show(list, el("p", { class: "bad" }, error.message)));
    shown = view;
  };
  const look = async () => {
    const tasks = await get(["runs", run, "in-hand"], null, signal);
    hand.hidden = !tasks.length;
    show(hand, el("h2", null, `In progress `, el("span", { class: "quiet" }, tasks.length >= 200 ? "200 or more" : count(tasks.length))),
      el("div", { class: "chips" }, tasks.slice(0, 60).map((task) => link(["rollout", run, task.task_index, task.rollout_index], `${task.task_index} / ${task.rollout_index}`, { class: "chip", title: task.agent }))));
  };
  look().catch(() => {});
  const timer = setInterval(() => look().catch(() => {}), 3000);
  signal.addEventListener("abort", () => clearInterval(timer));
  await listen(["runs", run, "live"], { run: (view) => { live(!view.is_done); draw(view); }, away: () => live(false) }, signal);
}

class Rate {
  constructor() { this.noted = []; }

  note(view) {
    const done = view.overview.num_rewarded + Object.values(view.overview.failures).reduce((sum, one) => sum + one, 0);
    this.noted.push([view.overview.updated_at, done]);
    this.noted = this.noted.slice(-15);
  }

  perSecond() {
    const [first, last] = [this.noted[0], this.noted[this.noted.length - 1]];
    return last[0] > first[0] ? (last[1] - first[1]) / (last[0] - first[0]) : null;
  }
}

function drawHead(head, run, view, perSecond) {
  const { overview } = view;
  const failures = Object.values(overview.failures).reduce((sum, one) => sum + one, 0);
  const agents = Object.values(overview.agents);
  const tiles = [["rewarded", count(overview.num_rewarded), overview.num_rollouts ? `of ${count(overview.num_rollouts)}` : null],
    ["mean reward", decimals(overview.mean_reward), null],
    ["failed attempts", count(failures), null],
    view.is_done ? ["state", "done", null] : ["open tasks", count(view.open_tasks), null],
    ["rollouts/s", perSecond === null ? "–" : decimals(perSecond, 1), "while you watch"]];
  if (agents.length === 1 && agents[0].mean_reward?.interval) {
    const { low, high } = agents[0].mean_reward.interval;
    tiles[1][2] = `${decimals(low)} to ${decimals(high)}`;
  }
  const fill = el("span", { class: "fill" });
  fill.style.width = overview.num_rollouts ? `${Math.min(100, (100 * view.num_stored) / overview.num_rollouts)}%` : "0";
  show(head,
    el("div", { class: "row" }, el("h1", null, run), link([], "compare", { class: "button", href: address([], { with: run }) })),
    el("p", { class: "quiet" }, `started ${time(overview.created_at)}`, overview.models.length ? `, policy: ${overview.models.join(", ")}` : ""),
    overview.num_rollouts ? el("span", { class: "track wide", title: `${count(view.num_stored)} of ${count(overview.num_rollouts)} rollouts done` }, fill) : null,
    el("div", { class: "tiles" }, tiles.map(([name, value, note]) =>
      el("div", { class: "tile" }, el("div", { class: "quiet" }, name), el("div", { class: "value" }, value), note ? el("div", { class: "quiet small" }, note) : null))),
    agents.length ? agentsTable(overview.agents) : null);
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
  show(box, el("h2", null, "Failing"),
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
