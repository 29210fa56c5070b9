// The runs, the newest first, and the workers.

import { get } from "./api.js";
import { address, el, link, show } from "./dom.js";
import { count, decimals, percent, time } from "./format.js";

const PAGE = 25;

export async function runsView(main, query, signal) {
  const skip = Number(query.get("skip") || 0);
  const text = query.get("text") || "";
  const compare = query.get("with") || "";
  const list = el("div", null, el("p", { class: "quiet" }, "reading …"));
  const cluster = el("section", { class: "card" }, el("h2", null, "Workers"), el("p", { class: "quiet" }, "asking …"));
  const search = el("input", { type: "search", value: text, placeholder: "name of a run", "aria-label": "name of a run" });
  const form = el("form", { class: "filters", onsubmit: (event) => {
    event.preventDefault();
    location.hash = address([], { text: search.value, with: compare });
  } }, search, el("button", { type: "submit" }, "find"));
  show(main, el("section", { class: "card" }, el("div", { class: "row" }, el("h1", null, compare ? `Compare ${compare} with …` : "Runs"), form), list), compare ? null : cluster);

  const refresh = async () => {
    const { runs, num_runs } = await get(["runs"], { skip, text }, signal);
    show(list, runs.length ? table(runs, compare) : el("p", { class: "quiet" }, text ? `no run has ${text} in its name` : "no runs yet: gymq collect starts one"),
      pager(skip, num_runs, text, compare));
  };
  const look = async () => {
    const { workers, queues } = await get(["cluster"], null, signal);
    show(cluster, el("h2", null, "Workers"), workersTable(workers, queues));
  };
  await refresh();
  if (!compare) await look();
  const timer = setInterval(() => { refresh().catch(() => {}); if (!compare) look().catch(() => {}); }, 4000);
  signal.addEventListener("abort", () => clearInterval(timer));
}

function table(runs, compare) {
  const head = ["run", "started", "rewarded", "failures", "reward", "pass@1", "policy"];
  return el("div", { class: "scroll" }, el("table", null,
    el("thead", null, el("tr", null, head.map((name, at) => el("th", { class: at >= 2 && at <= 5 ? "number" : null }, name)))),
    el("tbody", null, runs.map((run) => {
      const failures = Object.values(run.failures).reduce((sum, one) => sum + one, 0);
      const first = Object.values(run.agents).map((agent) => agent.pass_at_k["1"]).filter(Boolean);
      const target = compare ? ["compare", compare, run.run] : ["run", run.run];
      return el("tr", null,
        el("td", null, link(target, run.run)),
        el("td", { class: "quiet nowrap" }, time(run.created_at)),
        el("td", { class: "number" }, count(run.num_rewarded), run.num_rollouts ? el("span", { class: "quiet" }, ` of ${count(run.num_rollouts)}`) : null),
        el("td", { class: failures ? "number bad" : "number quiet" }, failures ? count(failures) : "–"),
        el("td", { class: "number" }, decimals(run.mean_reward)),
        el("td", { class: "number" }, first.length === 1 ? percent(first[0].value) : first.length ? `${first.length} agents` : "–"),
        el("td", { class: "quiet" }, run.models.join(", ")));
    }))));
}

function pager(skip, total, text, compare) {
  if (total <= PAGE) return null;
  const at = (to) => address([], { skip: to || "", text, with: compare });
  return el("div", { class: "pager" },
    skip > 0 ? el("a", { href: at(Math.max(0, skip - PAGE)) }, "newer") : null,
    el("span", { class: "quiet" }, `${count(skip + 1)} to ${count(Math.min(skip + PAGE, total))} of ${count(total)}`),
    skip + PAGE < total ? el("a", { href: at(skip + PAGE) }, "older") : null);
}

function workersTable(workers, queues) {
  if (!workers.length) return el("p", { class: "quiet" }, "no worker answers");
  const most = Math.max(1, ...workers.map((worker) => worker.load));
  const waiting = {};
  for (const queue of queues) {
    const of = (waiting[queue.agent] ||= { waiting: 0, in_hand: 0 });
    of.waiting += queue.waiting;
    of.in_hand += queue.in_hand;
  }
  return el("div", { class: "scroll" }, el("table", null,
    el("thead", null, el("tr", null, ["instance", "kind", "load", "", "sessions", "requests", "errors", "tasks waiting"].map((name, at) =>
      el("th", { class: at === 2 || at > 3 ? "number" : null }, name)))),
    el("tbody", null, workers.map((worker) => {
      const fill = el("span", { class: "fill" });
      fill.style.width = `${(100 * worker.load) / most}%`;
      return el("tr", null,
        el("td", { title: worker.worker }, worker.name), el("td", { class: "quiet" }, worker.kind),
        el("td", { class: "number" }, count(worker.load)), el("td", { class: "meter" }, el("span", { class: "track" }, fill)),
        el("td", { class: "number" }, count(worker.sessions)), el("td", { class: "number" }, count(worker.requests)),
        el("td", { class: worker.errors ? "number bad" : "number quiet" }, worker.errors ? count(worker.errors) : "–"),
        el("td", { class: "number" }, worker.kind === "agents" && waiting[worker.name] ? count(waiting[worker.name].waiting) : ""));
    }))));
}
