// One run: its numbers as they change, then its rollouts, its tasks, what fails, its charts and its configuration.

import { actionBar, description, site } from "./actions.js";
import { get, listen } from "./api.js";
import { chartList } from "./charts.js";
import { configurationView } from "./configuration.js";
import { address, commandToCopy, el, link, show } from "./dom.js";
import { age, count, leftOut, policies, time } from "./format.js";
import { failureList } from "./failures.js";
import { bind } from "./keys.js";
import { environmentTable, numFailed, progressBar, stateWords, tiles } from "./numbers.js";
import { rolloutList } from "./rollouts.js";
import { taskGrid } from "./tasks.js";

const TABS = [["tasks", "Tasks"], ["rollouts", "Rollouts"], ["failures", "Failures"], ["charts", "Charts"], ["configuration", "Configuration"]];
const AGAIN_MS = 3000; // between two readings of the lists of a run that is in progress

export async function runView(main, run, query, signal, live) {
  const tab = TABS.some(([name]) => name === query.get("tab")) ? query.get("tab") : "tasks";
  const known = await site(signal);
  const actions = actionBar(run, known, signal), described = description(run, known, signal);
  const numbers = el("div"), older = el("div"), state = el("span", { class: "badge", hidden: true }), since = el("p", { class: "quiet" });
  const head = el("section", { class: "card" },
    el("div", { class: "row" }, el("h1", null, run), state, el("span", { class: "push" }), actions.node),
    actions.notice, since, described.node, older, numbers);
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
    const failures = numFailed(view.overview.all);
    state.className = `badge ${failures ? "failing" : ""} ${view.state}`;
    state.textContent = stateWords(view.state, failures);
    since.textContent = [startOf(view), leftOut([view])].filter(Boolean).join("; ");
    show(numbers, progressBar(view), tiles(view, rate), tab === "tasks" ? environmentTable(view) : null);
    newest = view;
    show(tabs, TABS.map(([name, title]) => el("a", { href: address(["run", run], { tab: name === "tasks" ? "" : name }), "aria-current": name === tab ? "page" : null },
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
  get(["runs", run, "rescoring"], null, signal)
    .then((found) => show(older, found.older.map(([sentence, command]) => el("p", null, sentence, commandToCopy(command))))).catch(() => {});
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
  return [overview.created_at && `started ${time(overview.created_at)} (${age(overview.created_at)})`, overview.models.length && `policy: ${policies(overview)}`].filter(Boolean).join(", ");
}
