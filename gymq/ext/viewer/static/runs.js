// The runs, sorted and searched, and the workers.

import { get } from "./api.js";
import { address, el, link, show } from "./dom.js";
import { age, bytes, count, fixed, percent, policies, seconds, time } from "./format.js";
import { numFailed, stateWords } from "./numbers.js";

const PAGE = 25;
const AGAIN_MS = 4000;
const COLUMNS = [["run", "run"], ["state", "state"], [null, "environment"], [null, "rollouts", true], ["reward", "reward", true], ["pass_at_1", "pass@1", true],
  ["tokens", "tokens", true], ["duration_s", "duration", true], [null, "model"], ["started", "started"]];
const FIRST_UP = ["run", "state"]; // columns that a first click sorts upwards

export async function runsView(main, query, signal) {
  const wanted = { text: query.get("text") || "", with: query.get("with") || "", sort: query.get("sort") || "started", order: query.get("order") || "down", skip: Number(query.get("skip") || 0) };
  const here = (changed) => address([], { ...wanted, sort: wanted.sort === "started" ? "" : wanted.sort, order: wanted.order === "down" ? "" : wanted.order, skip: wanted.skip || "", ...changed });
  const list = el("div", null, el("p", { class: "quiet" }, "loading …"));
  const cluster = el("section", { class: "card" }, el("h2", null, "Workers"), el("p", { class: "quiet" }, "loading …"));
  const search = el("input", { type: "search", value: wanted.text, placeholder: "name, tag or model", "aria-label": "name, tag or model" });
  const form = el("form", { class: "filters", role: "search", onsubmit: (event) => {
    event.preventDefault();
    location.hash = here({ text: search.value, skip: "" });
  } }, search, el("button", { type: "submit" }, "search"));
  const chosen = new Set(wanted.with ? wanted.with.split(",") : []);
  const compare = el("a", { class: "button" }, "compare");
  const marked = () => {
    compare.hidden = chosen.size < 2;
    compare.href = address(["compare", ...[...chosen].slice(0, 2)], { more: [...chosen].slice(2).join(",") });
    compare.textContent = `compare ${chosen.size}`;
  };
  show(main, el("section", { class: "card" }, el("div", { class: "row" }, el("h1", null, "Runs"), compare, form),
    wanted.with ? el("p", { class: "quiet" }, `mark the runs to compare ${wanted.with} with`) : null, list), cluster);
  marked();
  const toggle = (run, isOn) => {
    if (isOn) chosen.add(run); else chosen.delete(run);
    marked();
  };
  const refresh = async () => {
    const { runs, num_runs } = await get(["runs"], { text: wanted.text, sort: wanted.sort, order: wanted.order, skip: wanted.skip || "" }, signal);
    show(list, runs.length ? table(runs, wanted, here, chosen, toggle) : el("p", { class: "quiet" }, wanted.text ? `no run has ${wanted.text} in its name, tags or model` : "no runs yet: gymq collect starts one"),
      pager(wanted.skip, num_runs, here));
  };
  const look = async () => {
    const { is_here: isHere, workers, queues } = await get(["cluster"], null, signal);
    cluster.hidden = !isHere;
    if (isHere) show(cluster, el("h2", null, "Workers"), workersTable(workers, queues));
  };
  await refresh();
  await look();
  const timer = setInterval(() => {
    if (!list.contains(document.activeElement)) refresh().catch(() => {});
    look().catch(() => {});
  }, AGAIN_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
}

function table(runs, wanted, here, chosen, toggle) {
  const heading = ([name, title, isNumber]) => {
    const kind = isNumber ? "number" : name === "state" ? "wide-only" : null;
    if (!name) return el("th", { class: kind }, title);
    const isHere = name === wanted.sort, first = FIRST_UP.includes(name) ? "up" : "down";
    const order = isHere ? (wanted.order === "up" ? "down" : "up") : first;
    return el("th", { class: kind, "aria-sort": isHere ? (wanted.order === "up" ? "ascending" : "descending") : null },
      el("a", { href: here({ sort: name, order, skip: "" }), class: "sorter" }, title, isHere ? (wanted.order === "up" ? " ↑" : " ↓") : ""));
  };
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "runs" }, el("table", { class: "runs cards" },
    el("thead", null, el("tr", null, el("th", null, el("span", { class: "unseen" }, "compare")), COLUMNS.map(heading))),
    el("tbody", null, runs.map((row) => runCells(row, chosen, toggle)))));
}

const cell = (title, kind, ...parts) => el("td", { class: kind, "data-name": title }, parts);

function runCells({ overview: run, state, num_stored: stored, pass_at_1: first, output_tokens: tokens, duration_s: duration }, chosen, toggle) {
  const failures = numFailed(run.all), names = Object.values(run.environments);
  const badge = (kind) => el("a", { class: `badge ${kind} ${failures ? "failing" : ""} ${state}`, href: address(["run", run.run], { tab: failures ? "failures" : "" }) }, stateWords(state, failures));
  const mark = el("input", { type: "checkbox", checked: chosen.has(run.run), "aria-label": `compare ${run.run}`, onchange: (event) => toggle(run.run, event.target.checked) });
  return el("tr", null, el("td", null, mark),
    el("td", { class: "run-cell" }, link(["run", run.run], run.run), badge("narrow-only"), run.tags.map((tag) => el("a", { class: "chip tag", href: address([], { text: tag }) }, tag)),
      run.note ? el("span", { class: "clip quiet small" }, run.note) : null),
    el("td", { class: "wide-only" }, badge("")),
    cell("environment", null, el("span", { class: "clip" }, names.join(", ") || "–"), " ", run.all ? el("span", { class: "quiet small nowrap" }, `${count(run.all.tasks)} ${run.all.tasks === 1 ? "task" : "tasks"}`) : null),
    cell("rollouts", "number", count(stored), run.num_rollouts && run.num_rollouts !== stored ? el("span", { class: "quiet" }, ` of ${count(run.num_rollouts)}`) : null,
      run.num_rollouts && state !== "done" ? el("div", null, bar(stored / run.num_rollouts)) : null),
    cell("reward", "number", fixed(run.mean_reward, 3)),
    cell("pass@1", "number", first !== null ? percent(first) : "–"),
    cell("tokens", "number", tokens === null ? "–" : count(Math.round(tokens))),
    cell("duration", "number nowrap", duration === null ? "–" : seconds(duration)),
    cell("model", "quiet", el("span", { class: "clip" }, policies(run))),
    cell("started", "quiet nowrap", el("span", { title: time(run.created_at) }, age(run.created_at))));
}

function bar(part) {
  const fill = el("span", { class: "fill" });
  fill.style.width = `${Math.min(100, 100 * part)}%`;
  return el("span", { class: "track" }, fill);
}

function pager(skip, total, here) {
  if (total <= PAGE) return null;
  return el("div", { class: "pager" },
    skip > 0 ? el("a", { class: "button", href: here({ skip: Math.max(0, skip - PAGE) || "" }) }, "back") : null,
    el("span", { class: "quiet" }, `${count(skip + 1)} to ${count(Math.min(skip + PAGE, total))} of ${count(total)}`),
    skip + PAGE < total ? el("a", { class: "button", href: here({ skip: skip + PAGE }) }, "next") : null);
}

function workersTable(workers, queues) {
  if (!workers.length) return el("p", { class: "quiet" }, "no workers responded");
  const most = Math.max(1, ...workers.map((worker) => worker.load));
  const waiting = {};
  for (const queue of queues) waiting[queue.agent] = (waiting[queue.agent] || 0) + queue.waiting;
  const heads = [["instance"], ["kind"], ["load", true], ["of the most"], ["sessions", true], ["requests", true], ["errors", true], ["memory", true], ["tasks waiting", true], ["logs"]];
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "workers" }, el("table", { class: "cards" },
    el("thead", null, el("tr", null, heads.map(([name, isNumber]) => el("th", { class: isNumber ? "number" : null }, name)))),
    el("tbody", null, workers.map((worker) => el("tr", null,
      el("td", { title: worker.worker }, worker.name), cell("kind", "quiet", worker.kind),
      cell("load", "number", count(worker.load)), el("td", { class: "meter" }, bar(worker.load / most)),
      cell("sessions", "number", count(worker.sessions)), cell("requests", "number", count(worker.requests)),
      cell("errors", worker.errors ? "number bad" : "number quiet", worker.errors ? count(worker.errors) : "–"),
      cell("memory", "number nowrap", worker.memory_bytes === null ? "–" : bytes(worker.memory_bytes)),
      worker.kind === "agents" && worker.name in waiting ? cell("tasks waiting", "number", count(waiting[worker.name])) : el("td"),
      el("td", null, el("a", { href: address(["logs"], { worker: worker.worker }), "aria-label": `logs of ${worker.name}` }, "logs")))))));
}
