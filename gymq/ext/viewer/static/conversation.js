// A conversation turn by turn: messages as Markdown, reasoning folded, each tool call with its result on one line.

import { el } from "./dom.js";
import { count, decimals, seconds } from "./format.js";
import { folded, oneLine, readable, tree } from "./json.js";
import { image, rich } from "./rich.js";

const WORDS = 160; // characters of a line that stands for a text

// The beginning of a text on one line.
export const words = (text, most = WORDS) => {
  const line = String(text).slice(0, most * 4).replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
};

// A turn is one reply of the model and what its tools answered.
export function groupTurns(items) {
  const turns = [];
  let isOpen = false;
  items.forEach((item, position) => {
    const ofModel = item.type !== "verdict" && !String(item.type).endsWith("_output") && !["user", "system", "developer"].includes(item.role);
    if (ofModel && !isOpen) turns.push([]);
    if (!turns.length) turns.push([]);
    turns[turns.length - 1].push({ item, position });
    // The engine's tokens are on the last item of its reply.
    isOpen = ofModel && !item.tokens;
  });
  return turns;
}

// All texts of an item, for searching and copying.
export function textOf(item) {
  if (item.type === "reasoning") return reasoning(item);
  if (item.type === "function_call") return `${item.name}(${item.arguments})`;
  if (item.type === "function_call_output") return content(item.output);
  if (item.type === "message" || !item.type) return content(item.content);
  return JSON.stringify(item, null, 2);
}

const reasoning = (item) => [...(item.summary || []), ...(item.content || [])].map((part) => part.text ?? "").join("\n");

export function content(value) {
  if (typeof value === "string") return value;
  if (!Array.isArray(value)) return value === undefined || value === null ? "" : JSON.stringify(value, null, 2);
  return value.map((part) => part?.text ?? part?.refusal ?? JSON.stringify(part)).join("\n");
}

function contentNodes(value) {
  if (!Array.isArray(value)) return typeof value === "string" ? [rich(value)] : value === undefined || value === null ? [] : [tree(value)];
  return value.map((part) => {
    if (typeof part?.text === "string") return rich(part.text);
    if (typeof part?.refusal === "string") return el("div", null, el("span", { class: "badge unresolved" }, "refusal"), rich(part.refusal));
    const address = part?.image_url?.url ?? part?.image_url;
    return (typeof address === "string" && image(address, part.alt)) || tree(part);
  });
}

// Results by the calls that they answer; one without a call's id belongs to the first call that has none yet.
function pairs(items) {
  const waiting = new Map(); // calls by id, by name and all of them, the last one first
  for (const call of items.filter((item) => item.type === "function_call").reverse()) {
    for (const key of [`id ${call.call_id}`, `name ${call.name}`, ""]) waiting.set(key, waiting.get(key) || []).get(key).push(call);
  }
  const results = new Map();
  for (const item of items) {
    if (item.type !== "function_call_output") continue;
    const calls = waiting.get(item.call_id ? `id ${item.call_id}` : item.name ? `name ${item.name}` : "") || [];
    let call = calls.pop();
    while (results.has(call)) call = calls.pop();
    if (call) results.set(call, item);
  }
  return results;
}

// The nodes of some items; `took` gives the seconds of a tool's result.
export function conversation(items, took = () => undefined) {
  const results = pairs(items);
  const answered = new Set(results.values());
  return items.filter((item) => !answered.has(item)).map((item) => itemNode(item, results.get(item), took));
}

function itemNode(item, result, took) {
  if (item.type === "reasoning") {
    const text = reasoning(item);
    return folded(["reasoning ", el("span", { class: "words" }, words(text) || "(hidden)"), when(item)], () => rich(text), { class: "block reasoning" });
  }
  if (item.type === "function_call") return callNode(item, result, took);
  if (item.type === "function_call_output") {
    const text = content(item.output);
    return folded(["result ", el("b", null, item.name || ""), el("span", { class: "words" }, words(text)), when(item)],
      () => el("div", null, el("p", { class: "quiet small" }, item.call_id || ""), readable(text)), { class: "block call" });
  }
  if (item.type === "verdict") {
    return block(`verdict: reward ${decimals(item.reward)}`, "output", tree(item.verdict ?? {}), when(item));
  }
  if (item.type === "message" || !item.type) return block(item.role || "message", item.role, contentNodes(item.content), when(item));
  return folded([el("b", null, item.type), el("span", { class: "words" }, oneLine(item, WORDS) ?? words(JSON.stringify(item)))], () => tree(item), { class: "block call" });
}

function callNode(call, result, took) {
  const given = parsed(call.arguments);
  const line = given === undefined ? words(call.arguments ?? "") : given && typeof given === "object" && !Array.isArray(given)
    ? Object.entries(given).map(([name, value]) => `${name}: ${oneLine(value) ?? words(typeof value === "string" ? value : JSON.stringify(value), 60)}`).join(", ")
    : words(JSON.stringify(given));
  const resultText = result === undefined ? null : content(result.output);
  const time = result === undefined ? undefined : took(result);
  return folded([el("b", null, call.name), el("span", { class: "words" }, words(line)),
    resultText === null ? null : [el("span", { class: "arrow", "aria-label": "result" }, " → "), el("span", { class: "words result" }, words(resultText) || "(empty)")],
    time === undefined ? null : el("span", { class: "quiet small" }, ` ${seconds(time)}`), when(result || call)],
  () => el("div", { class: "call-inside" },
    el("div", { class: "quiet small" }, `arguments ${call.call_id || ""}`), given === undefined ? rich(call.arguments ?? "", "json") : tree(given),
    result === undefined ? el("p", { class: "quiet small" }, "no result") : [el("div", { class: "quiet small" }, "result"), Array.isArray(result.output) ? contentNodes(result.output) : readable(resultText)]),
  { class: "block call" });
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function when(item) {
  const at = item.at ? new Date(item.at) : null;
  return at && !Number.isNaN(at.valueOf()) ? el("span", { class: "quiet small" }, ` ${at.toLocaleTimeString("en-GB")}`) : null;
}

export function block(heading, kind, body, note) {
  return el("div", { class: `block ${/^[a-z]+$/.test(kind || "") ? kind : ""}` }, el("div", { class: "heading" }, heading, note), body);
}

// How many tokens an item's reply had, in words.
export function tokenCounts({ prompt_token_ids: prompt, generation_token_ids: generated }) {
  return [prompt === undefined ? null : `${count(prompt)} tokens in the prompt`, generated === undefined ? null : `${count(generated)} generated`].filter(Boolean).join(", ");
}

// Which weights wrote the tokens of items: `[version, number of tokens]` for each stretch that is recorded, in order.
export function stretches(items) {
  const found = [];
  for (const { generation_policy_versions: recorded } of items) {
    if (!Array.isArray(recorded)) continue;
    for (const [version, tokens] of recorded.filter(Array.isArray)) {
      const last = found[found.length - 1];
      if (last && last[0] === version) last[1] += tokens;
      else found.push([version, tokens]);
    }
  }
  return found;
}

export const versionName = (version) => (version === null ? "unknown version" : version === "" ? "weights as started" : String(version));

// Which weights wrote something, in words: with numbers of tokens where there are several.
export function versionWords(found) {
  const all = found.reduce((sum, [, tokens]) => sum + tokens, 0);
  return found.map(([version, tokens]) => versionName(version) + (found.length > 1 ? ` (${count(tokens)} of ${count(all)} tokens)` : "")).join(", ");
}
