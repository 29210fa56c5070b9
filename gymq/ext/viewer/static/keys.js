// Keys of the view that is shown. A view binds them; they are gone when it is left, and so is their list.

import { el, show } from "./dom.js";

let bound = {};
const dialog = el("dialog", { class: "keys", "aria-label": "keys" });

// keys: { key: [what it does in words, function] }
export function bind(keys, signal) {
  bound = keys;
  signal.addEventListener("abort", () => {
    if (bound === keys) bound = {};
    dialog.close();
  });
}

function help() {
  show(dialog, el("h2", null, "Keys"), el("dl", { class: "facts wide" },
    Object.entries({ ...bound, "?": ["this list"] }).map(([key, [meaning]]) => el("div", { class: "row" }, el("dt", null, el("kbd", null, key)), el("dd", null, meaning)))),
  el("button", { type: "button", onclick: () => dialog.close() }, "close"));
  if (!dialog.isConnected) document.body.append(dialog);
  dialog.showModal();
}

window.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || dialog.open) return;
  if (event.target.closest?.("input, textarea, select")) return;
  const action = event.key === "?" ? help : bound[event.key]?.[1];
  if (!action) return;
  event.preventDefault();
  action();
});
