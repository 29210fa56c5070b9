// One rollout: what was asked, expected and answered, its reward and why, then the conversation turn by turn.

import { site } from "./actions.js";
import { get, listen, post, text } from "./api.js";
import { block, content, conversation, groupTurns } from "./conversation.js";
import { address, copy, el, link, show } from "./dom.js";
import { count, decimals, gradeOf, sameDecimals, seconds, time } from "./format.js";
import { folded, oneLine, readable, tree } from "./json.js";
import { isJudged, judged } from "./judge.js";
import { bind } from "./keys.js";
import { Outline, lead } from "./outline.js";
import { plain, rich } from "./rich.js";
import { timeline } from "./timings.js";
import { Turns } from "./turns.js";

const CLIPPED = 2000; // characters of a longer text of which only a few lines are shown
const MOST_CRITERIA = 100; // in a list; more are a tree
const STATES = { rollout: "verified", failure: "failed", unresolved: "no reward", running: "in progress", waiting: "queued" };

const ORDERS = { "": "by task", failure: "failures", reward: "lowest reward first" };

export async function rolloutView(main, run, task, rollout, query, signal, live) {
  const outline = new Outline();
  const first = el("div", { class: "reading" }), body = el("div", { class: "reading" });
  const page = el("div", { class: "with-outline" }, first, outline.node, body);
  show(main, page);
  const turns = new Turns(signal), besides = el("span", { class: "row" });
  beside(besides, run, task, rollout, query.get("by") || "", signal);
  let view = null, target = query.get("turn");
  const draw = () => {
    const [summary, ...others] = transcript(view, signal, turns, besides);
    show(first, summary);
    show(body, others);
    outline.set(outlined(page, turns));
    if (target && turns.all.length >= target) {
      turns.lead(target - 1);
      target = null;
    }
  };
  bind(keysOf(page, outline), signal);
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

// Links to the rollouts before and after this one, in an order that the reader chooses.
async function beside(box, run, task, rollout, by, signal) {
  const to = (of, text, rel) => (of ? el("a", { class: "button", rel, href: address(["rollout", run, ...of], { by }) }, text) : null);
  const choice = el("select", { "aria-label": "order of rollouts", onchange: (event) => { location.hash = address(["rollout", run, task, rollout], { by: event.target.value }); } },
    Object.entries(ORDERS).map(([value, text]) => el("option", { value, selected: value === by }, text)));
  for (;;) {
    const found = await get(["rollouts", run, task, rollout, "neighbours"], { order: by }, signal).catch(() => null);
    if (!found || signal.aborted) return;
    show(box, to(found.previous, "previous", "prev"), to(found.next, "next", "next"), choice,
      el("span", { class: "quiet small" }, found.num_rollouts ? `${count(Math.min(found.num_before + 1, found.num_rollouts))} of ${count(found.num_rollouts)}` : "none"));
    if (found.is_whole) return;
    await new Promise((done) => { setTimeout(done, 500); });
  }
}

function keysOf(page, outline) {
  const parts = () => [...page.querySelectorAll(".reading > section, .turn-group > summary")].filter((part) => part.checkVisibility());
  const step = (by) => {
    const all = parts();
    const top = 70; // below what sticks to the top of the window
    let at = all.findIndex((part) => part.getBoundingClientRect().bottom > top + 1);
    if (by < 0 && all[at]?.getBoundingClientRect().top >= top - 12) at -= 1;
    else if (by > 0) at += 1;
    if (all[at]) lead(all[at]);
  };
  const follow = (relation) => page.querySelector(`a[rel=${relation}]`)?.click();
  return {
    j: ["to the next part", () => step(1)],
    k: ["to the previous part", () => step(-1)],
    "/": ["search this rollout", () => outline.focus()],
    n: ["to the next match", () => outline.step(1)],
    "[": ["to the previous rollout", () => follow("prev")],
    "]": ["to the next rollout", () => follow("next")],
    c: ["open or close all that is folded", () => foldAll(page)],
  };
}

function foldAll(page) {
  const folds = [...page.querySelectorAll(".reading details:not(.record)")];
  const isOpening = folds.some((fold) => !fold.open);
  for (const fold of folds) if (isOpening && fold.unfold) fold.unfold(); else fold.open = isOpening;
}

// The nodes of a rollout, its head first; also used side by side.
export function transcript(view, signal, turns = new Turns(signal), besides = null) {
  return [head(view, signal, besides), failed(view, signal), judged(view), asked(view), ...turns.draw(view), timeline(view), rest(view)].filter(Boolean);
}

function outlined(page, turns) {
  const parts = [], inside = turns.parts();
  for (const node of page.querySelectorAll(":scope > .reading > *")) {
    if (!node.matches(".turn, .turn-group")) parts.push({ title: node.dataset.title || node.querySelector("h1, h2").textContent, words: "", text: () => node.textContent, node: () => node });
    else if (!parts.includes(inside[0])) parts.push(...inside);
  }
  return parts;
}

// The head ------------------------------------------------------------------------------------------------------------

function head(view, signal, besides) {
  const { run, task_index: task, rollout_index: rollout } = view;
  const facts = [["agent", view.agent], ["attempt", view.attempt ? view.attempt + 1 : null], ["worker", view.worker],
    ["model", view.model], ["policy", (view.policy_versions || []).join(", ")], ["started", view.started_at ? time(view.started_at) : null],
    ["took", view.duration_s ? seconds(view.duration_s) : null], ["turns", view.items?.length ? groupTurns(view.items).length : null],
    ["tokens", view.usage ? `${count(view.usage.input_tokens)} in, ${count(view.usage.output_tokens)} out` : null]];
  const here = (button) => copy(new URL(address(["rollout", run, task, rollout]), location.href).href, button);
  return el("section", { class: "card", tabindex: -1, "data-title": "Summary" },
    el("div", { class: "row" }, el("h1", null, `task ${task}, rollout ${rollout}`),
      el("span", { class: `badge ${view.state}` }, STATES[view.state]),
      view.reward === undefined ? null : el("span", { class: `reward ${gradeOf(view.reward)}` }, `reward ${decimals(view.reward)}`),
      el("span", { class: "push" }),
      besides, view.has_next_task ? link(["rollout", run, task + 1, 0], "next task", { class: "button" }) : null,
      el("button", { type: "button", onclick: (event) => here(event.target) }, "copy link")),
    view.state === "running" && !view.journal ? el("p", { class: "quiet" }, "Nothing is recorded yet. Turns appear here as the journal grows; an agent without tools keeps no journal, and its rollout appears when it is done.") : null,
    view.state === "waiting" ? el("p", { class: "quiet" }, "No agent is working on it: its task is in the queue, or the run has no such task.") : null,
    gist(view),
    el("dl", { class: "facts" }, facts.filter(([, value]) => value).map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, value)))),
    view.incomplete ? el("p", { class: "bad" }, `the reply was cut short: ${JSON.stringify(view.incomplete)}`) : null,
    view.duration_s === undefined ? null : record(view, signal));
}

function gist(view) {
  const rows = [];
  const row = (name, ...nodes) => rows.push(el("div", { class: "gist" }, el("dt", null, name), el("dd", null, nodes)));
  const question = [...(view.input || [])].reverse().find((item) => !item.role || item.role === "user");
  if (question) row("prompt", clipped(content(question.content)));
  for (const [name, value] of Object.entries(view.expected || {})) row(name === "expected" ? name : `expected (${name})`, valueNode(value));
  if (Object.keys(view.fields || {}).length) row("row", valueNode(view.fields));
  if (view.answer?.name || view.answer?.value) row(view.answer.name ? `answer (${view.answer.name})` : "answer", valueNode(view.answer.value));
  const named = new Set([view.answer?.name, ...Object.keys(view.expected || {})]);
  const rest = Object.entries(view.verdict || {}).filter(([name, value]) => !named.has(name) && value !== null && !isJudged(view, name));
  const isShort = ([, value]) => typeof value === "number" || typeof value === "boolean" || (typeof value === "string" && value.length <= 40 && !value.includes("\n"));
  const short = rest.filter(isShort);
  if (short.length) row("verdict", el("div", { class: "chips" }, short.map(([name, value]) => el("span", { class: "chip" }, el("span", { class: "quiet" }, `${name} `), typeof value === "number" ? decimals(value) : String(value)))));
  const reasons = reasonsOf(view.verdict);
  for (const [name, value] of rest.filter((entry) => !isShort(entry) && entry[1] !== reasons)) row(name, criteria(value, reasons) ?? valueNode(value));
  return rows.length ? el("dl", { class: "gists" }, rows) : null;
}

// The words of a judge on each criterion, where a verdict has both; null where it has not.
function reasonsOf({ criteria: met, reasons } = {}) {
  const given = Object.entries(reasons ?? {});
  return given.length && criteria(met) && given.every(([name, words]) => name in met && typeof words === "string") ? reasons : null;
}

// Criteria by name, each met or not, or each with its number, as a list; null if a value is something else.
function criteria(value, reasons = null) {
  const entries = value && typeof value === "object" && !Array.isArray(value) ? Object.entries(value) : [];
  if (!entries.length || entries.length > MOST_CRITERIA) return null;
  const are = (kind) => entries.every(([, one]) => typeof one === kind);
  if (are("boolean")) {
    return el("ul", { class: "criteria" }, entries.map(([name, isMet]) => el("li", null,
      el("span", { class: isMet ? null : "quiet", role: "img", "aria-label": isMet ? "met" : "not met" }, isMet ? "✓" : "✗"), " ", name,
      reasons?.[name] ? el("div", { class: "quiet small" }, reasons[name]) : null)));
  }
  if (!are("number")) return null;
  const written = sameDecimals(entries.map(([, one]) => one));
  return el("ul", { class: "criteria" }, entries.map(([name, one]) => el("li", null, el("span", { class: `number ${gradeOf(one)}` }, written(one)), " ", name)));
}

function valueNode(value) {
  if (typeof value === "string") return value.includes("Traceback (most recent") ? readable(value) : clipped(value);
  return oneLine(value, 200) !== null ? el("span", null, oneLine(value, 200)) : tree(value, undefined, false);
}

// A text of which a few lines are shown until it is opened.
function clipped(whole) {
  if (whole.length <= 400 && whole.split("\n").length <= 5) return rich(whole);
  const isLong = whole.length > 2 * CLIPPED;
  const box = el("div", { class: "clipped" }, rich(isLong ? whole.slice(0, CLIPPED) : whole));
  const button = el("button", { type: "button", class: "more", "aria-expanded": "false", onclick: () => {
    if (isLong) show(box, rich(box.classList.contains("clipped") ? whole : whole.slice(0, CLIPPED)));
    const isOpen = box.classList.toggle("clipped");
    button.textContent = isOpen ? "show all" : "show less";
    button.setAttribute("aria-expanded", String(!isOpen));
  } }, "show all");
  return [box, button];
}

function record(view, signal) {
  return folded("the stored record as JSON", () => {
    const box = el("div", null, el("p", { class: "quiet" }, "loading …"));
    text(["rollouts", view.run, view.task_index, view.rollout_index, "record"], signal).then((whole) => {
      const button = el("button", { type: "button", class: "more", onclick: () => copy(whole, button) }, "copy all of it");
      show(box, button, tree(JSON.parse(whole), undefined));
    }).catch((error) => show(box, el("p", { class: "bad" }, error.message)));
    return box;
  }, { class: "record" });
}

// Why there is a reward, or none ---------------------------------------------------------------------------------------

function failed(view, signal) {
  const { failure } = view;
  const before = view.attempt ? folded("failures before this attempt", () => {
    const box = el("div", null, el("p", { class: "quiet" }, "loading …"));
    get(["rollouts", view.run, view.task_index, view.rollout_index, "failures"], null, signal).then((found) => {
      const others = found.filter((one) => one.reason !== failure?.message);
      show(box, others.length ? others.map((one) => block(`${one.failure_class} at ${one.stage || "an unknown stage"}, ${time(one.at)}`, "output", plain(one.reason)))
        : el("p", { class: "quiet" }, "None was reported: an attempt that its agent retries at once, or whose process died, leaves only its number."));
    }).catch((error) => show(box, el("p", { class: "bad" }, error.message)));
    return box;
  }) : null;
  if (!failure) return before && el("section", { class: "card", tabindex: -1, "data-title": "Earlier attempts" }, before);
  return el("section", { class: "card", tabindex: -1 }, el("h2", { class: "bad" }, `No reward: ${failure.class} at ${failure.stage}`),
    readable(failure.message), el("p", { class: "quiet" }, `A retry ${failure.retry}.`,
      view.state === "unresolved" ? " gymq score can verify the response again." : ""), again(view, signal), before);
}

// A button that has the rollout made again, where the viewer may change something.
function again(view, signal) {
  const box = el("p", { role: "status" });
  const requeue = async (event) => {
    event.target.disabled = true;
    try {
      const done = await post(["rollouts", view.run, view.task_index, view.rollout_index, "requeue"], {}, signal);
      show(box, el("span", { class: "quiet" }, done.requeued ? "It is requeued. What comes of it takes the place of this failure."
        : done.rewarded ? "It has a reward by now." : `It is not requeued: ${done.reasons.join("; ") || "its failure is not among the dead letters"}`));
    } catch (error) {
      if (error.name !== "AbortError") show(box, el("span", { class: "bad" }, error.message));
    }
  };
  site(signal).then(({ may_change: mayChange }) => { if (mayChange) show(box, el("button", { type: "button", onclick: requeue }, "try again")); }).catch(() => {});
  return box;
}

// The conversation -----------------------------------------------------------------------------------------------------

function asked(view) {
  const parts = [];
  if (view.instructions) parts.push(block("instructions", "system", rich(view.instructions)));
  if (view.tools?.length) {
    parts.push(folded(`tools (${view.tools.length}): ${view.tools.map((tool) => tool.name || tool.type).join(", ")}`,
      () => el("div", null, view.tools.map((tool) => tree(tool, tool.name || tool.type, false))), { class: "block" }));
  }
  parts.push(...conversation(view.input || []));
  return parts.length ? el("section", { class: "card", tabindex: -1 }, el("h2", null, "Prompt"), parts) : null;
}

function rest(view) {
  const shown = { ...view.expected, ...view.fields };
  const others = typeof view.row === "string" ? view.row : Object.fromEntries(Object.entries(view.row ?? {}).filter(([name]) => !(name in shown)));
  const parts = [["other fields of the row", others], ["parameters of the model calls", view.params]].filter(([, value]) => value && Object.keys(value).length);
  return parts.length ? el("section", { class: "card", tabindex: -1, "data-title": "Row and parameters" },
    parts.map(([name, value]) => folded(name, () => (typeof value === "string" ? plain(value) : tree(value)), { class: "rest" }))) : null;
}
