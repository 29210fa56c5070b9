// The tokens of a reply, coloured by the chance they were sampled with: as text where the viewer has a tokenizer.

import { get } from "./api.js";
import { stretches, versionName, versionWords } from "./conversation.js";
import { el } from "./dom.js";
import { count, decimals, percent } from "./format.js";

const GRADES = [[0.9, "sure"], [0.5, "likely"], [0.1, "unlikely"], [0, "odd"]];

// The settings of the model call, as `gymq.protocol.sampling` records them.
function sampledWith(sampling) {
  if (!sampling) return null;
  const words = Object.entries(sampling).map(([name, value]) => `${name.replaceAll("_", " ")} ${typeof value === "object" ? JSON.stringify(value) : value}`);
  return `sampled with ${words.join(", ")}`;
}

export async function tokenView(view, position, signal) {
  const found = await get(["rollouts", view.run, view.task_index, view.rollout_index, "tokens", position], null, signal);
  const box = el("div", { class: found.texts ? "ids as-text" : "ids" });
  const written = stretches([view.items[position]]);
  const names = [];
  if (written.length > 1) for (const [version, tokens] of written) for (let at = 0; at < tokens && names.length < found.ids.length; at += 1) names.push(versionName(version));
  found.ids.forEach((id, at) => {
    const chance = found.log_probs ? Math.exp(found.log_probs[at]) : null;
    const grade = chance === null ? "" : GRADES.find(([least]) => chance > least)?.[1] ?? "odd";
    const hint = [`id ${id}`, chance === null ? null : `log prob ${decimals(found.log_probs[at])}, ${percent(100 * chance)}`, names[at]].filter(Boolean).join(", ");
    const begins = at && names[at] !== names[at - 1] ? " new-weights" : "";
    box.append(el("span", { class: `id ${grade}${begins}`, title: hint }, found.texts ? found.texts[at] || "·" : id), found.texts ? "" : " ");
  });
  const notes = [found.ids.length < found.num_tokens ? `the first ${count(found.ids.length)} of ${count(found.num_tokens)}` : null,
    found.log_probs ? null : "without log probs",
    sampledWith(view.items[position].generation_sampling),
    written.length ? `policy version ${versionWords(written)}` : view.policy_versions?.length ? `policy version ${view.policy_versions.join(", ")}` : null].filter(Boolean);
  return el("div", null,
    found.log_probs ? el("div", { class: "legend" }, "chance: ", GRADES.map(([least, grade], at) => el("span", { class: "entry" },
      el("span", { class: `id ${grade}` }, least ? `above ${100 * least} %` : `below ${100 * GRADES[at - 1][0]} %`)))) : null,
    box, notes.length ? el("p", { class: "quiet small" }, notes.join("; ")) : null);
}
