// The time of a rollout: as one strip, and call by call.

import { el } from "./dom.js";
import { percent, seconds } from "./format.js";
import { folded } from "./json.js";

const MOST = 600; // calls in a waterfall

export function timeline(view) {
  const timings = view.timings || [];
  if (!timings.length || !view.duration_s) return null;
  const whole = Math.max(view.duration_s, ...timings.map(([, started, took]) => started + took));
  const strip = el("div", { class: "strip" }, timings.map((timing) => bar(timing, whole)));
  const sums = {};
  for (const [stage, , took] of timings) sums[stage] = (sums[stage] || 0) + took;
  return el("section", { class: "card", tabindex: -1 }, el("div", { class: "time-line" }, el("h2", null, "Time"), strip,
    el("div", { class: "legend" }, Object.entries(sums).map(([stage, took]) =>
      el("span", { class: "entry" }, el("span", { class: `swatch ${stage}` }), `${stage} ${seconds(took)}, ${percent((100 * took) / whole)}`)))),
    folded(`call by call (${timings.length})`, () => waterfall(timings, whole), { class: "calls" }));
}

function bar([stage, started, took], whole) {
  const part = el("span", { class: `part ${stage}`, title: `${stage}: ${seconds(took)}, after ${seconds(started)}` });
  part.style.left = `${(100 * started) / whole}%`;
  part.style.width = `max(2px, ${(100 * took) / whole}%)`;
  return part;
}

// A model's call begins a turn; what follows until the next one belongs to it.
function waterfall(timings, whole) {
  let turn = 0;
  return el("div", { class: "waterfall" }, timings.slice(0, MOST).map((timing) => {
    const [stage, started, took] = timing;
    if (stage === "model") turn += 1;
    return el("div", { class: "fall" },
      el("span", { class: "small" }, turn && stage !== "verify" ? `turn ${turn} ` : "", el("span", { class: "quiet" }, stage)),
      el("span", { class: "strip" }, bar(timing, whole)),
      el("span", { class: "number small", title: `after ${seconds(started)}` }, seconds(took)));
  }), timings.length > MOST ? el("p", { class: "quiet small" }, `the first ${MOST} of ${timings.length}`) : null);
}
