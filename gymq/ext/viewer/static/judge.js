// The calls of judges behind a verdict, each on one line that opens: the prompt, the reasoning and the reply.

import { content, conversation, words } from "./conversation.js";
import { el } from "./dom.js";
import { count, seconds } from "./format.js";
import { folded, oneLine } from "./json.js";

// The card of a rollout whose verifier asked judges.
export function judged(view) {
  const calls = view.judge_calls || [];
  if (!calls.length) return null;
  const { judge_input_tokens: read, judge_output_tokens: written } = view.verdict;
  return el("section", { class: "card", tabindex: -1 },
    el("div", { class: "row judge-head" }, el("h2", null, calls.length > 1 ? `Judge, ${count(calls.length)} calls` : "Judge"),
      read === undefined ? null : el("span", { class: "quiet small" }, `${count(read)} tokens in, ${count(written)} out`)),
    calls.map(callNode));
}

// Whether a field of the verdict is about the calls that are shown here.
export const isJudged = (view, name) => (view.judge_fields || []).includes(name);

function callNode({ path, facts, prompt, output }) {
  const { model, label, seconds: took, input_tokens: read, output_tokens: written, texts_left_out: isCut, ...others } = facts;
  const said = output.filter((item) => item.type === "message" || !item.type).map((item) => content(item.content)).join("\n");
  const chips = Object.entries({ label, ...others }).filter(([, value]) => value !== null && value !== undefined);
  const numbers = [model, read === undefined ? null : `${count(read)} in, ${count(written)} out`, took === undefined ? null : seconds(took)].filter(Boolean).join(" · ");
  const line = [chips.map(([name, value]) => el("span", { class: "chip" }, el("span", { class: "quiet" }, `${name} `), typeof value === "string" ? words(value, 80) : oneLine(value, 80) ?? "…")),
    el("span", { class: "quiet small" }, numbers || path), el("span", { class: "words" }, isCut ? "the texts of this call are left out" : words(said))];
  const open = () => el("div", { class: "call-inside" },
    el("div", { class: "quiet small" }, "the judge's prompt"), conversation(prompt),
    el("div", { class: "quiet small" }, "the judge's reply"), conversation(output));
  return folded(el("span", { class: "judge-line" }, line), open, { class: "block judge" });
}
