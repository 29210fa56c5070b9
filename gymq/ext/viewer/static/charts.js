// The charts of a run: pass@k, rewards, and how both, lengths and times went over its course and by policy version.

import { get } from "./api.js";
import { course, curveOf, histograms, lengths, passCurve } from "./chart.js";
import { el, link, show } from "./dom.js";
import { count, decimals, fixed, percent, seconds, time } from "./format.js";

const AGAIN_MS = 300;

// Draws into `box` and returns a function that draws again with what is new.
export function chartList(box, run, signal) {
  let view = null;
  const draw = async () => {
    for (;;) {
      const found = await get(["runs", run, "charts"], null, signal);
      show(box, curves(view), courses(found), stages(found), slowest(run, view.slowest));
      if (found.is_whole || signal.aborted) return;
      await new Promise((done) => { setTimeout(done, AGAIN_MS); });
    }
  };
  const failed = (error) => { if (error.name !== "AbortError") show(box, el("p", { class: "bad" }, error.message)); };
  return (now) => { view = now ?? view; return draw().catch(failed); };
}

const titled = (title, note, ...nodes) => el("div", null, el("h2", null, title, note ? el("span", { class: "quiet" }, ` ${note}`) : null), nodes);

function curves(view) {
  const { agents, environments } = view.overview, names = Object.keys(agents);
  const series = names.filter((name) => agents[name].rollouts).map((name) => curveOf(environments[name], agents[name]));
  return el("div", { class: "columns" },
    titled("pass@k", "in %, with 95 % intervals over tasks", passCurve(series)),
    titled("Rewards", "", histograms(names.map((name) => ({ name: environments[name], bars: view.histograms[name] })))));
}

const hint = ({ part }) => `${count(part.rollouts)} rollouts, ${count(part.failed)} failed, ${count(part.truncated)} truncated${part.reward ? `; mean reward ${decimals(part.reward.value)}` : ""}`;
const pointOf = (at, one, value) => ({ at, value, ...one });
const clock = (unix) => new Date(unix * 1000).toLocaleTimeString("en-GB");

function courses({ over_time: bins, versions, lengths: found, num_replies: replies, num_truncated: truncated, is_whole: isWhole }) {
  const rewards = bins.map((bin) => pointOf(bin.end, { ...bin, low: bin.so_far?.interval?.low, high: bin.so_far?.interval?.high }, bin.so_far?.value));
  const rates = bins.map((bin) => pointOf((bin.start + bin.end) / 2, bin, bin.part.rollouts / (bin.end - bin.start)));
  const cut = bins.map((bin) => pointOf((bin.start + bin.end) / 2, bin, bin.part.rollouts ? (100 * bin.part.truncated) / bin.part.rollouts : null));
  const name = (point) => (point.start ? clock(point.at) : "");
  const policies = versions.map((one, at) => pointOf(at, { ...one, low: one.part.reward?.interval?.low, high: one.part.reward?.interval?.high }, one.part.reward?.value));
  const note = isWhole ? "" : "loading …";
  return el("div", { class: "columns" },
    bins.length ? titled("Mean reward so far", note || `${time(bins[0].start)} to ${clock(bins[bins.length - 1].end)}`, course(rewards, { label: "mean reward of the rollouts that ended so far", name, hint: (point) => `${name(point)}: ${fixed(point.value, 3)}` })) : null,
    policies.length ? titled("Mean reward by policy version", note, course(policies, { label: "mean reward by policy version", name: (point) => point.version, hint: (point) => `${point.version}: ${hint(point)}` })) : null,
    bins.length ? titled("Throughput", "rollouts that ended per second", course(rates, { label: "rollouts per second over time", name, hint: (point) => `${name(point)}: ${decimals(point.value, 2)} rollouts/s` })) : null,
    truncated ? titled("Truncated replies", `${count(truncated)} of ${count(replies)} (${percent((100 * truncated) / (replies || 1))}) reached the limit of output tokens`,
      bins.length ? course(cut, { label: "truncated replies in percent over time", name, hint: (point) => `${name(point)}: ${percent(point.value)}` }) : null) : null,
    Object.entries(found).map(([what, bars], at) => titled(`${what[0].toUpperCase()}${what.slice(1)}`, "of a rollout", lengths(bars, what, at + 2))));
}

const STAGE = ["calls", "mean per call", "median per rollout", "90 %", "longest"];

function stages({ stages: found }) {
  const entries = Object.entries(found);
  if (!entries.length) return null;
  return titled("Latency by stage", "", el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "latency by stage" }, el("table", { class: "cards" },
    el("thead", null, el("tr", null, ["stage", ...STAGE].map((name, at) => el("th", { class: at ? "number" : null }, name)))),
    el("tbody", null, entries.map(([stage, { calls, call_s: each, rollout }]) => el("tr", null,
      el("td", null, el("span", { class: `swatch ${stage}` }), stage),
      [count(calls), seconds(each), seconds(rollout.median), seconds(rollout.p90), seconds(rollout.max)].map((cell, at) => el("td", { class: "number", "data-name": STAGE[at] }, cell))))))));
}

function slowest(run, found) {
  const most = found.length ? found[0][0] : 1;
  return titled("Slowest", "", found.length ? el("ul", { class: "plain" }, found.map(([duration, task, rollout, agent, reward]) => {
    const fill = el("span", { class: "fill" });
    fill.style.width = `${(100 * duration) / most}%`;
    return el("li", { class: "slow" }, link(["rollout", run, task, rollout], `${task} / ${rollout}`, { title: agent }),
      el("span", { class: "track" }, fill), el("span", { class: "number" }, seconds(duration)),
      reward === null ? el("span", { class: "bad" }, "failed") : el("span", { class: "quiet" }, decimals(reward)));
  })) : el("p", { class: "quiet" }, "no rollout is done yet"));
}
