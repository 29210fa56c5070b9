// One rollout, turn by turn: what was asked, thought, said, called and answered, how long it took, and the verdict.

import { get, listen } from "./api.js";
import { el, link, longText, show } from "./dom.js";
import { count, decimals, percent, pretty, seconds, time } from "./format.js";

export async function rolloutView(main, run, task, rollout, signal, live) {
  const body = el("div");
  show(main, body);
  let view = null;
  const draw = () => show(body, transcript(view, signal));
  await listen(["rollouts", run, task, rollout, "live"], {
    unfinished: (known) => { live(true); view = known; draw(); },
    items: ({ from, items, attempt, worker }) => {
      view.items = [...view.items.slice(0, from), ...items];
      view.attempt = attempt;
      view.worker = worker;
      view.journal = true;
      draw();
    },
    stored: (whole) => { live(false); view = whole; draw(); },
    away: () => live(false),
  }, signal, "stored");
}

// The nodes of a rollout; also used side by side.
export function transcript(view, signal) {
  return [head(view), timeline(view), asked(view), turns(view, signal), verdict(view), rest(view)];
}

function head(view) {
  const state = { rollout: "verified", failure: "failed", unresolved: "no verdict", running: "in progress", waiting: "queued" }[view.state];
  const facts = [["agent", view.agent], ["attempt", view.attempt ? view.attempt + 1 : null], ["worker", view.worker],
    ["model", view.model], ["policy", (view.policy_versions || []).join(", ")], ["started", view.started_at ? time(view.started_at) : null],
    ["took", view.duration_s ? seconds(view.duration_s) : null],
    ["tokens", view.usage ? `${count(view.usage.input_tokens)} in, ${count(view.usage.output_tokens)} out` : null]];
  const { run, task_index: task, rollout_index: rollout } = view;
  return el("section", { class: "card" },
    el("div", { class: "row" }, el("h1", null, `task ${task}, rollout ${rollout}`),
      el("span", { class: `badge ${view.state}` }, state),
      view.reward !== undefined ? el("span", { class: `badge ${view.reward > 0 ? "rollout" : "unresolved"}` }, `reward ${decimals(view.reward)}`) : null,
      el("span", { class: "push" }),
      rollout > 0 ? link(["rollout", run, task, rollout - 1], "previous") : null,
      !view.num_rollouts || rollout + 1 < view.num_rollouts ? link(["rollout", run, task, rollout + 1], "next") : null,
      view.has_next_task === false ? null : link(["rollout", run, task + 1, 0], "next task")),
    el("dl", { class: "facts" }, facts.filter(([, value]) => value).map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, value)))),
    view.state === "running" && !view.journal ? el("p", { class: "quiet" }, "Nothing is recorded yet. Turns appear here as the journal grows; an agent without tools keeps no journal, and its rollout appears when it is done.") : null,
    view.state === "waiting" ? el("p", { class: "quiet" }, "No agent is working on it: its task is in the queue, or the run has no such task.") : null);
}

function timeline(view) {
  const timings = view.timings || [];
  if (!timings.length || !view.duration_s) return null;
  const whole = Math.max(view.duration_s, ...timings.map(([, started, took]) => started + took));
  const strip = el("div", { class: "strip" });
  const sums = {};
  for (const [stage, started, took] of timings) {
    const part = el("span", { class: `part ${stage}`, title: `${stage}: ${seconds(took)}, after ${seconds(started)}` });
    part.style.left = `${(100 * started) / whole}%`;
    part.style.width = `max(2px, ${(100 * took) / whole}%)`;
    strip.append(part);
    sums[stage] = (sums[stage] || 0) + took;
  }
  return el("section", { class: "card" }, el("h2", null, "Time"), strip,
    el("div", { class: "legend" }, Object.entries(sums).map(([stage, took]) =>
      el("span", { class: "entry" }, el("span", { class: `swatch ${stage}` }), `${stage} ${seconds(took)}, ${percent((100 * took) / whole)}`))));
}

function asked(view) {
  const parts = [];
  if (view.instructions) parts.push(block("instructions", "system", longText(view.instructions)));
  if (view.tools?.length) {
    parts.push(el("details", { class: "block" }, el("summary", null, `tools (${view.tools.length}): ${view.tools.map((tool) => tool.name || tool.type).join(", ")}`),
      longText(JSON.stringify(view.tools, null, 2), { class: "code" })));
  }
  parts.push(...(view.input || []).map((item) => itemNode(item)));
  return parts.length ? el("section", { class: "card" }, el("h2", null, "Prompt"), parts) : null;
}

// A turn is one reply of the model and what its tools answered.
export function groupTurns(items) {
  const turns = [];
  let isOpen = false;
  items.forEach((item, position) => {
    const ofModel = !["function_call_output", "verdict"].includes(item.type) && !["user", "system", "developer"].includes(item.role);
    if (ofModel && !isOpen) turns.push([]);
    if (!turns.length) turns.push([]);
    turns[turns.length - 1].push({ item, position });
    // The engine's tokens are on the last item of its reply.
    isOpen = ofModel && !item.tokens;
  });
  return turns;
}

function turns(view, signal) {
  const grouped = groupTurns(view.items || []);
  const calls = (view.timings || []).filter(([stage]) => stage === "model");
  const tools = (view.timings || []).filter(([stage]) => stage === "tool");
  const outputs = (view.items || []).filter((item) => item.type === "function_call_output");
  const known = calls.length === grouped.length ? calls : [];
  const toolTimes = tools.length === outputs.length ? tools : [];
  return grouped.map((turn, number) => el("section", { class: "card turn" },
    el("h2", null, `Turn ${number + 1}`, known[number] ? el("span", { class: "quiet" }, ` model ${seconds(known[number][2])}`) : null),
    turn.map(({ item, position }) => itemNode(item, {
      took: item.type === "function_call_output" ? toolTimes[outputs.indexOf(item)]?.[2] : undefined,
      tokens: item.tokens && view.duration_s !== undefined ? () => tokens(view, position, signal) : null,
    }))));
}

function itemNode(item, { took, tokens: more } = {}) {
  const at = item.at ? new Date(item.at) : null;
  const note = [took === undefined ? null : seconds(took), at && !Number.isNaN(at.valueOf()) ? at.toLocaleTimeString("en-GB") : null].filter(Boolean).join(", ");
  const parts = [];
  if (item.type === "reasoning") {
    const text = [...(item.summary || []), ...(item.content || [])].map((part) => part.text ?? "").join("\n");
    parts.push(el("details", { class: "block reasoning", open: true }, el("summary", null, "reasoning ", el("span", { class: "quiet" }, note)), longText(text || "(hidden)")));
  } else if (item.type === "function_call") {
    parts.push(block(el("span", null, "calls ", el("b", null, item.name), el("span", { class: "quiet" }, ` ${item.call_id || ""}`)), "call", longText(pretty(item.arguments), { class: "code" }), note));
  } else if (item.type === "function_call_output") {
    parts.push(block(el("span", null, "output ", el("span", { class: "quiet" }, item.name || item.call_id || "")), "output", longText(content(item.output), { class: "code" }), note));
  } else if (item.type === "verdict") {
    parts.push(block(`verdict: reward ${decimals(item.reward)}`, "output", longText(JSON.stringify(item.verdict, null, 2), { class: "code" }), note));
  } else if (item.type === "message" || !item.type) {
    parts.push(block(item.role || "message", item.role, longText(content(item.content)), note));
  } else {
    parts.push(block(item.type, "call", longText(JSON.stringify(item, null, 2), { class: "code" }), note));
  }
  if (item.tokens) {
    const { prompt_token_ids: prompt, generation_token_ids: generated } = item.tokens;
    const told = [prompt === undefined ? null : `${count(prompt)} tokens in the prompt`, generated === undefined ? null : `${count(generated)} generated`].filter(Boolean).join(", ");
    const place = el("div", { class: "tokens" }, el("span", { class: "quiet small" }, told));
    if (more && item.tokens.generation_token_ids) {
      const button = el("button", { type: "button", class: "more", onclick: async () => {
        button.disabled = true;
        try {
          place.append(await more());
          button.remove();
        } catch (error) {
          place.append(el("p", { class: "bad" }, error.message));
        }
      } }, "show tokens");
      place.append(" ", button);
    }
    parts.push(place);
  }
  return parts;
}

function block(heading, kind, body, note) {
  return el("div", { class: `block ${/^[a-z]+$/.test(kind || "") ? kind : ""}` }, el("div", { class: "heading" }, heading, note ? el("span", { class: "quiet small" }, ` ${note}`) : null), body);
}

function content(value) {
  if (typeof value === "string") return value;
  if (!Array.isArray(value)) return value === undefined || value === null ? "" : JSON.stringify(value, null, 2);
  return value.map((part) => part?.text ?? part?.refusal ?? JSON.stringify(part)).join("\n");
}

async function tokens(view, position, signal) {
  const found = await get(["rollouts", view.run, view.task_index, view.rollout_index, "tokens", position], null, signal);
  const box = el("div", { class: "ids" });
  found.ids.forEach((id, at) => {
    const chance = found.log_probs ? Math.exp(found.log_probs[at]) : null;
    const grade = chance === null ? "" : chance > 0.9 ? "sure" : chance > 0.5 ? "likely" : chance > 0.1 ? "unlikely" : "odd";
    box.append(el("span", { class: `id ${grade}`, title: chance === null ? "" : `log prob ${decimals(found.log_probs[at])}, ${percent(100 * chance)}` }, id), " ");
  });
  return el("div", null, box, el("p", { class: "quiet small" }, found.ids.length < found.num_tokens ? `the first ${count(found.ids.length)} of ${count(found.num_tokens)}; ` : "", found.log_probs ? "coloured by the chance they were sampled with" : "without log probs"));
}

function verdict(view) {
  if (view.failure) {
    const failure = view.failure;
    return el("section", { class: "card" }, el("h2", { class: "bad" }, `No reward: ${failure.class} at ${failure.stage}`),
      longText(failure.message), el("p", { class: "quiet" }, failure.retryable ? "A retry may succeed." : "A retry cannot succeed.",
        view.state === "unresolved" ? " gymq score can verify the response again." : ""));
  }
  if (view.reward === undefined) return null;
  return el("section", { class: "card" }, el("h2", null, `Verdict: reward ${decimals(view.reward, 6)}`),
    el("dl", { class: "facts wide" }, Object.entries(view.verdict).map(([name, value]) =>
      el("div", null, el("dt", null, name), el("dd", null, longText(typeof value === "string" ? value : JSON.stringify(value, null, 2)))))),
    view.incomplete ? el("p", { class: "bad" }, `the reply was cut short: ${JSON.stringify(view.incomplete)}`) : null);
}

function rest(view) {
  const folded = (name, value) => (value && Object.keys(value).length ? el("details", { class: "card" }, el("summary", null, name), longText(JSON.stringify(value, null, 2), { class: "code" })) : null);
  return [folded("other fields of the row", view.row), folded("parameters of the model calls", view.params)];
}
