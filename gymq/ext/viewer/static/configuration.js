// How a run was set up: its options, its workers, what its model calls carry; and in what the set-ups of runs differ.

import { get } from "./api.js";
import { copy, el, link, show } from "./dom.js";
import { count, decimals, percent, time } from "./format.js";
import { tree } from "./json.js";
import { rich } from "./rich.js";

// Draws into `body` and returns a function that draws again with what is new.
export function configurationView(body, run, view, signal) {
  const stored = el("div", null, el("p", { class: "quiet" }, "loading …")), sample = el("div");
  const agents = el("div");
  const draw = ({ overview }) => show(agents, el("h2", { class: "spaced" }, "Agents"), agentsTable(overview.agents),
    el("p", { class: "quiet" }, `models: ${overview.models.join(", ") || "unknown"}; ${count(overview.num_rollouts)} rollouts in all; last change ${time(overview.updated_at)}`));
  draw(view);
  show(body, stored, agents, sample);
  get(["runs", run, "configuration"], null, signal).then((found) => show(stored, setUp(found)))
    .catch((error) => { if (error.name !== "AbortError") show(stored, el("p", { class: "bad" }, error.message)); });
  calls(run, sample, signal).catch(() => {});
  return draw;
}

function setUp({ options, workers, is_cut: isCut }) {
  if (!options && !workers) return el("p", { class: "quiet" }, "No configuration is stored with this run: it was submitted by a program, or read from a file without its manifest.");
  return [yaml("Options", "of the collection", options),
    workers ? yaml("Workers", "as a configuration file has them, without secrets", workers)
      : el("p", { class: "quiet" }, "The workers were configured where their cluster was started, not by this collection."),
    isCut ? el("p", { class: "quiet" }, "What was too long to be stored is left out.") : null];
}

function yaml(title, note, text) {
  const button = el("button", { type: "button", class: "more", onclick: () => copy(text, button) }, "copy");
  return el("div", { class: "yaml" }, el("div", { class: "row" }, el("h2", null, title, el("span", { class: "quiet" }, ` ${note}`)), el("span", { class: "push" }), button),
    rich(text, "yaml"));
}

// What the model calls of a rollout carried.
async function calls(run, box, signal) {
  const { rows } = await get(["runs", run, "table"], { result: "rewarded" }, signal);
  if (!rows.length) return;
  const { task_index: task, rollout_index: rollout } = rows[0];
  const found = await get(["rollouts", run, task, rollout], null, signal);
  show(box, el("h2", { class: "spaced" }, "Model calls", el("span", { class: "quiet" }, " as in ", link(["rollout", run, task, rollout], `${task} / ${rollout}`))),
    tree(found.params || {}), found.instructions ? [el("h2", { class: "spaced" }, "Instructions"), rich(found.instructions)] : null,
    found.tools?.length ? [el("h2", { class: "spaced" }, "Tools"), found.tools.map((tool) => tree(tool, tool.name || tool.type, false))] : null);
}

function agentsTable(agents) {
  const names = ["agent", "tasks", "rollouts", "reward", "pass@1", "pass@max", "tokens out", "std"];
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "agents" }, el("table", { class: "cards" },
    el("thead", null, el("tr", null, names.map((name, at) => el("th", { class: at ? "number" : null }, name)))),
    el("tbody", null, Object.entries(agents).map(([name, agent]) => {
      const last = agent.pass_at_k[agent.max_k];
      return el("tr", null, el("td", null, name), ...[
        count(agent.tasks), count(agent.rollouts), decimals(agent.mean_reward?.value),
        percent(agent.pass_at_k["1"]?.value), last ? `${percent(last.value)} (k ${agent.max_k})` : "–",
        decimals(agent.fields.output_tokens?.mean, 0), decimals(agent.fields.reward?.std),
      ].map((cell, at) => el("td", { class: "number", "data-name": names[at + 1] }, cell)));
    }))));
}

// The keys of which some of the runs have another value than the first.
export async function configurationDifferences(box, runs, signal) {
  const found = await Promise.all(runs.map((run) => get(["runs", run, "configuration"], null, signal)));
  const values = found.map((one) => new Map(Object.entries(one.values)));
  const missing = runs.filter((_, at) => !values[at].size);
  const keys = [...new Set(values.flatMap((one) => [...one.keys()]))].filter((key) => values.some((one) => one.get(key) !== values[0].get(key)));
  const known = missing.length < runs.length;
  show(box, el("h2", null, "Configuration", el("span", { class: "quiet" }, known ? ` ${count(keys.length)} keys differ` : "")),
    missing.length ? el("p", { class: "quiet" }, `no configuration is stored with ${missing.join(", ")}`) : null,
    known && keys.length ? el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "differences of the configuration" }, el("table", { class: "cards differences" },
      el("thead", null, el("tr", null, el("th", null, "key"), runs.map((run) => el("th", null, run)))),
      el("tbody", null, keys.map((key) => el("tr", null, el("th", { scope: "row" }, key), values.map((one, at) =>
        el("td", { "data-name": runs[at], class: at && one.get(key) !== values[0].get(key) ? "changed" : null }, one.has(key) ? one.get(key) : el("span", { class: "quiet" }, "not set")))))))) : null);
}
