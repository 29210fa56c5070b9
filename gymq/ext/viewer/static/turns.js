// The turns of a rollout; those of a long one in groups, whose turns are made when the group is opened.

import { conversation, groupTurns, stretches, textOf, tokenCounts, versionWords, words } from "./conversation.js";
import { address, copy, el, show } from "./dom.js";
import { seconds } from "./format.js";
import { folded } from "./json.js";
import { lead } from "./outline.js";
import { tokenView } from "./tokens.js";

const MOST_UNGROUPED = 30; // turns
const GROUP = 10; // turns of a group

// What is drawn of a rollout's turns. It keeps the nodes from one drawing to the next, and the groups that are open.
export class Turns {
  constructor(signal) {
    this.signal = signal;
    this.all = []; // of each turn: its items, and a function that returns its node
    this.groups = []; // of each group: the number of its first turn, its node and what fills it
  }

  // The nodes of the turns of a view, or those of their groups.
  draw(view) {
    const wasDrawn = this.all.length > 0;
    this.update(view);
    if (this.all.length <= MOST_UNGROUPED) return this.all.map(({ node }) => node());
    for (let first = 0; first < this.all.length; first += GROUP) {
      // The beginning and the end are what is read first; and nothing is folded under the eyes of a reader.
      this.groups[first / GROUP] ??= this.group(first, wasDrawn || first === 0 || first + GROUP >= this.all.length);
    }
    this.groups.forEach((group) => group.fill());
    return this.groups.map(({ node }) => node);
  }

  update(view) {
    const grouped = groupTurns(view.items || []);
    const calls = (view.timings || []).filter(([stage]) => stage === "model");
    const tools = (view.timings || []).filter(([stage]) => stage === "tool");
    const outputs = new Map((view.items || []).filter((item) => item.type === "function_call_output").map((item, at) => [item, at]));
    const known = calls.length === grouped.length ? calls : [];
    const took = (item) => (tools.length === outputs.size ? tools[outputs.get(item)]?.[2] : undefined);
    const areSeveral = new Set(stretches(view.items || []).map(([version]) => version)).size > 1;
    const isSame = (one, other) => one && one.isStored === other.isStored && one.areSeveral === other.areSeveral && one.items.length === other.items.length && one.items.every((item, at) => item === other.items[at]);
    this.all = grouped.map((turn, number) => {
      const next = { number, items: turn.map(({ item }) => item), isStored: view.duration_s !== undefined, areSeveral };
      let made;
      next.node = () => (made ??= turnNode(view, turn, number, known[number]?.[2], took, areSeveral, this.signal));
      return isSame(this.all[number], next) ? this.all[number] : next;
    });
  }

  group(first, isOpen) {
    const inside = () => this.all.slice(first, first + GROUP);
    const name = el("b"), did = el("span", { class: "words" }), box = el("div", { class: "reading" });
    let isMade = false;
    const made = () => show(box, inside().map(({ node }) => node()));
    const node = folded([name, " ", did], () => { isMade = true; made(); return box; }, { class: "turn-group", open: isOpen });
    return { first, node, fill: () => {
      name.textContent = first + 1 < Math.min(first + GROUP, this.all.length) ? `Turns ${first + 1} to ${Math.min(first + GROUP, this.all.length)}` : `Turn ${first + 1}`;
      did.textContent = summary(inside().flatMap(({ items }) => items), 120);
      if (isMade) made();
    } };
  }

  // The node of a turn, in an open group.
  reveal(number) {
    this.groups[Math.floor(number / GROUP)]?.node.unfold();
    return this.all[number].node();
  }

  lead(number) {
    if (this.all[number]) lead(this.reveal(number));
  }

  // The turns as parts of an outline.
  parts() {
    return this.all.map(({ items, number }) => ({ title: `Turn ${number + 1}`, words: summary(items, 60), text: () => items.map(textOf).join("\n"),
      node: () => this.reveal(number), group: this.groups[Math.floor(number / GROUP)]?.node }));
  }
}

// What some turns did: the tools that they called, or what they said first.
function summary(items, most) {
  const calls = new Map();
  for (const item of items) if (item.type === "function_call") calls.set(item.name, (calls.get(item.name) || 0) + 1);
  if (calls.size) return words([...calls].map(([name, times]) => (times > 1 ? `${name} × ${times}` : name)).join(", "), most);
  const said = items.find((item) => item.type === "message" || !item.type) || items[0];
  return words(textOf(said).slice(0, 400).replace(/[*`#]+/g, ""), most);
}

function turnNode(view, turn, number, modelS, took, namesWeights, signal) {
  const items = turn.map(({ item }) => item);
  const body = el("div", null, conversation(items, took), turn.filter(({ item }) => item.tokens).map(({ item, position }) => tokensOf(view, item, position, signal)));
  const written = namesWeights ? stretches(items) : [];
  const here = address(["rollout", view.run, view.task_index, view.rollout_index], { turn: number + 1 });
  return el("section", { class: "card turn", tabindex: -1 },
    el("div", { class: "row" }, el("h2", null, `Turn ${number + 1}`), modelS === undefined ? null : el("span", { class: "quiet small" }, `model ${seconds(modelS)}`),
      written.length ? el("span", { class: "chip", title: "the weights that wrote this turn" }, versionWords(written)) : null,
      el("span", { class: "push" }),
      el("button", { type: "button", class: "more", onclick: (event) => copy(items.map(textOf).join("\n\n"), event.target) }, "copy"),
      el("button", { type: "button", class: "more", onclick: (event) => copy(new URL(here, location.href).href, event.target) }, "link")),
    body);
}

function tokensOf(view, item, position, signal) {
  const place = el("div", { class: "tokens" }, el("span", { class: "quiet small" }, tokenCounts(item.tokens)));
  if (view.duration_s === undefined || !item.tokens.generation_token_ids) return place;
  const button = el("button", { type: "button", class: "more", onclick: async () => {
    button.disabled = true;
    try {
      place.append(await tokenView(view, position, signal));
      button.remove();
    } catch (error) {
      place.append(el("p", { class: "bad" }, error.message));
    }
  } }, "show tokens");
  place.append(" ", button);
  return place;
}
