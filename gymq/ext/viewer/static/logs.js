// What workers have logged: a view of its own, and the lines about one rollout where it is shown.

import { get } from "./api.js";
import { el, show } from "./dom.js";
import { folded } from "./json.js";
import { rich } from "./rich.js";

export async function logsView(main, query, signal) {
  const worker = query.get("worker") || "", rollout = query.get("rollout") || "";
  show(main, el("section", { class: "card" }, el("h1", null, "Logs"),
    el("p", { class: "quiet" }, worker ? `of worker ${worker}` : rollout ? `about ${rollout}` : "of all workers", ", the newest last"),
    await lines({ worker, rollout }, signal)));
}

// A list of log lines, read now.
export async function lines(query, signal) {
  const found = await get(["logs"], query, signal);
  if (!found.is_here) return el("p", { class: "quiet" }, "The logs are on the machines of the workers, or in .gymq/logs of the folder of the cluster.");
  if (!found.lines.length) return el("p", { class: "quiet" }, "nothing was logged");
  return el("ol", { class: "log" }, found.lines.map(line));
}

function line(entry) {
  const isBad = ["error", "critical", "warning"].includes(entry.level);
  return el("li", null,
    el("span", { class: "quiet nowrap" }, `${(entry.time || "").replace("T", " ").replace("Z", "")} `),
    el("span", { class: isBad ? "bad" : "quiet" }, entry.level || ""), " ", el("span", { class: "lines" }, entry.message || ""),
    el("span", { class: "quiet" }, ` ${entry.worker || ""}${entry.rollout ? `, ${entry.rollout}` : ""}`),
    entry.traceback ? folded("traceback", () => rich(entry.traceback, "pytb")) : null);
}

// The lines about something, read when they are opened.
export function foldedLogs(title, query, signal) {
  return folded(title, () => {
    const box = el("div", null, el("p", { class: "quiet" }, "loading …"));
    lines(query, signal).then((found) => show(box, found)).catch((error) => show(box, el("p", { class: "bad" }, error.message)));
    return box;
  });
}
