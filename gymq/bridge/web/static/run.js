// One run: its numbers as they change, then its rollouts, its tasks, what fails, its charts and its configuration.

import { actionBar, description, site } from "./actions.js";
import { get, listen } from "./api.js";
import { chartList } from "./charts.js";
import { configurationView } from "./configuration.js";
import { address, el, link, show } from "./dom.js";
import { count, decimals, leftOut, percent, seconds, time } from "./format.js";
import { failureList } from "./failures.js";
import { bind } from "./keys.js";
import { rolloutList } from "./rollouts.js";
import { taskGrid } from "./tasks.js";

const TABS = [["rollouts", "Rollouts"], ["tasks", "Tasks"], ["failures", "Failures"], ["charts", "Charts"], ["configuration", "Configuration"]];
const AGAIN_MS = 3000; // between two readings of the lists of a run that is in progress

export async function runView(main, run, query, signal, live) {
  const tab = TABS.some(([name]) => name === query.get("tab")) ? query.get("tab") : "rollouts";
  const known = await site(signal);
  const actions = actionBar(run, known, signal), described = description(run, known, signal);
  const numbers = el("div"), state = el("span", { class: "badge", hidden: true }), since = el("p", { class: "quiet" });
  const head = el("section", { class: "card" },
    el("div", { class: "row" }, el("h1", null, run), state, el("span", { class: "push" }), actions.node),
    actions.notice, since, described.node, numbers);
  const tabs = el("nav", { class: "tabs", "aria-label": "parts of the run" });
  const body = el("section", { class: "card" }, el("p", { class: "quiet" }, "loading …"));
  const hand = el("section", { class: "card", hidden: true });
  show(main, head, hand, el("div", { class: "tabbed" }, tabs, body));
  const rate = new Rate();
  let again = null, isStale = false, isDrawing = false, numRead = 0, newest = null;

  // Each draws into the body and returns a function that draws it again with what is new.
  const parts = {
    rollouts: (view) => rolloutList(body, run, query, view.overview, signal),
    tasks: () => taskGrid(body, run, query, signal),
    failures: (view) => failureList(body, run, view, signal),
    charts: (view) => { const again = chartList(body, run, signal); again(view); return again; },
    configuration: (view) => configurationView(body, run, view, signal),
  };
  const draw = (view) => {
    rate.note(view);
    actions.update(view);
    described.update(view);
    state.hidden = false;
    state.className = `badge ${view.state}`;
    state.textContent = view.state;
    since.textContent = [startOf(view), leftOut([view])].filter(Boolean).join("; ");
    drawNumbers(numbers, view, rate);
    newest = view;
    const failures = Object.values(view.overview.failures).reduce((sum, one) => sum + one, 0);
    show(tabs, TABS.map(([name, title]) => el("a", { href: address(["run", run], { tab: name === "rollouts" ? "" : name }), "aria-current": name === tab ? "page" : null },
      title, name === "failures" && failures ? el("span", { class: "badge failure" }, count(failures)) : null)));
    if (!again) again = parts[tab](view);
    else if (view.num_stored !== numRead) isStale = true;
    numRead = view.num_stored;
    return null;
  };
  const look = async () => {
    const tasks = await get(["runs", run, "in-flight"], null, signal);
    hand.hidden = !tasks.length;
    show(hand, el("h2", null, `In progress `, el("span", { class: "quiet" }, tasks.length >= 200 ? "200 or more" : count(tasks.length))),
      el("div", { class: "chips" }, tasks.slice(0, 60).map((task) => link(["rollout", run, task.task_index, task.rollout_index], `${task.task_index} / ${task.rollout_index}`, { class: "chip", title: task.agent }))));
  };
  bind(keysOf(body), signal);
  look().catch(() => {});
  const timer = setInterval(async () => {
    look().catch(() => {});
    if (!isStale || isDrawing) return;
    isDrawing = true;
    isStale = false;
    await again(newest);
    isDrawing = false;
  }, AGAIN_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
  await listen(["runs", run, "live"], { run: (view) => { live(["queued", "running"].includes(view.state)); draw(view); }, away: () => live(false) }, signal);
}

function keysOf(body) {
  const step = (by) => {
    const rows = [...body.querySelectorAll("tbody tr td:first-child a")];
    const at = rows.indexOf(document.activeElement);
    rows[Math.max(0, Math.min(rows.length - 1, at + by))]?.focus();
  };
  return {
    j: ["to the next row", () => step(1)],
    k: ["to the previous row", () => step(-1)],
    "/": ["search the rollouts", () => body.querySelector("input[type=search]")?.focus()],
  };
}

class Rate {
  constructor() { this.noted = []; }

  note(view) {
    const done = view.overview.num_rewarded + view.overview.num_failed_attempts;
    this.noted.push([view.overview.updated_at, done]);
    this.noted = this.noted.slice(-15);
  }

  // Seconds until a run is done, at the rate that was seen; null if unknown.
  left(view) {
    const perSecond = this.perSecond();
    return perSecond && view.overview.num_rollouts ? Math.max(0, view.overview.num_rollouts - view.num_stored) / perSecond : null;
  }

  perSecond() {
    const [first, last] = [this.noted[0], this.noted[this.noted.length - 1]];
    return last[0] > first[0] ? (last[1] - first[1]) / (last[0] - first[0]) : null;
  }
}

function startOf({ overview }) {
  const models = overview.models.map((model) => model.replace(/^policy_model = /, ""));
  return [overview.created_at && `started ${time(overview.created_at)}`, models.length && `policy: ${models.join(", ")}`].filter(Boolean).join(", ");
}

function drawNumbers(box, view, rate) {
  const { overview } = view;
  const failures = Object.values(overview.failures).reduce((sum, one) => sum + one, 0);
  const agents = Object.values(overview.agents);
  const isOpen = ["queued", "running"].includes(view.state);
  const perSecond = rate.perSecond(), left = rate.left(view);
  const only = agents.length === 1 ? agents[0] : null;
  const interval = (estimate, format) => (estimate?.interval ? `${format(estimate.interval.low)} to ${format(estimate.interval.high)}` : null);
  const tiles = [["rewarded", count(overview.num_rewarded), overview.num_rollouts ? `of ${count(overview.num_rollouts)}` : null],
    ["mean reward", decimals(overview.mean_reward), interval(only?.mean_reward, decimals)],
    only ? ["pass@1", percent(only.pass_at_k["1"]?.value), interval(only.pass_at_k["1"], (value) => value.toFixed(1))] : null,
    only?.fields.output_tokens ? ["tokens per rollout", decimals(only.fields.output_tokens.mean, 0), null] : null,
    ["failed", count(failures), overview.num_failed_attempts > failures ? `${count(overview.num_failed_attempts)} attempts failed` : null],
    isOpen ? ["rollouts/s", perSecond === null ? "–" : decimals(perSecond, 1), left ? `done in ${seconds(left)}` : "while you watch"] : null,
    view.state === "interrupted" ? ["missing", count(overview.num_rollouts - view.num_stored), "the same gymq collect resumes it"] : null,
    isOpen ? ["queued or in flight", count(view.num_queued), null] : null].filter(Boolean);
  const fill = el("span", { class: "fill" });
  fill.style.width = overview.num_rollouts ? `${Math.min(100, (100 * view.num_stored) / overview.num_rollouts)}%` : "0";
  show(box,
    overview.num_rollouts ? el("span", { class: "track wide", role: "img", "aria-label": `${count(view.num_stored)} of ${count(overview.num_rollouts)} rollouts done` }, fill) : null,
    el("div", { class: "tiles" }, tiles.map(([name, value, note]) =>
      el("div", { class: "tile" }, el("div", { class: "quiet" }, name), el("div", { class: "value" }, value), note ? el("div", { class: "quiet small" }, note) : null))));
}
