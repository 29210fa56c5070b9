// Which view is shown: the part of the address behind the #.

import { get, Refused, setKey } from "./api.js";
import { compareRollout, compareView } from "./compare.js";
import { el, link, show } from "./dom.js";
import { logsView } from "./logs.js";
import { rolloutView } from "./rollout.js";
import { runView } from "./run.js";
import { runsView } from "./runs.js";

const RESTORE_MS = 5000;
const LOOK_MS = 2000;
const main = document.getElementById("main");
const crumbs = document.getElementById("crumbs");
const badge = document.getElementById("live");
let leaving = new AbortController();
const left = new Map(); // how far views were scrolled when they were left, by address
let isBack = false;
let isAway = false; // the view could not be shown, since the server was away

const live = (on) => { badge.hidden = !on; };

function index(text) {
  if (!/^\d{1,16}$/.test(text || "")) throw new Error(`${text} is not an index`);
  return Number(text);
}

async function open() {
  leaving.abort();
  leaving = new AbortController();
  isAway = false;
  const { signal } = leaving;
  live(false);
  const [path, asked] = location.hash.replace(/^#\/?/, "").split("?");
  const query = new URLSearchParams(asked || "");
  show(main, el("p", { class: "quiet" }, "loading …"));
  try {
    const [view, ...rest] = path.split("/").map(decodeURIComponent);
    if (view === "run" && rest[0]) {
      place([["run", rest[0]], rest[0]]);
      await runView(main, rest[0], query, signal, live);
    } else if (view === "rollout" && rest.length === 3) {
      const [run, task, rollout] = [rest[0], index(rest[1]), index(rest[2])];
      place([["run", run], run], [["rollout", run, task, rollout], `${task} / ${rollout}`]);
      await rolloutView(main, run, task, rollout, query, signal, live);
    } else if (view === "compare" && rest.length === 4) {
      place([["compare", rest[0], rest[1]], `${rest[0]} | ${rest[1]}`]);
      await compareRollout(main, rest[0], rest[1], index(rest[2]), index(rest[3]), query, signal);
    } else if (view === "compare" && rest.length === 2) {
      const runs = [...rest, ...(query.get("more") || "").split(",").filter(Boolean)];
      place([["compare", rest[0], rest[1]], runs.join(" | ")]);
      await compareView(main, runs, query, signal);
    } else if (view === "logs") {
      place([["logs"], "logs"]);
      await logsView(main, query, signal);
    } else {
      place();
      await runsView(main, query, signal);
    }
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    live(false);
    isAway = error instanceof Refused && [0, 503].includes(error.status);
    if (error instanceof Refused && error.status === 401) askForKey();
    else show(main, el("section", { class: "card" }, el("p", { class: "bad" }, error.message), el("button", { type: "button", onclick: open }, "try again")));
  }
}

function place(...steps) {
  show(crumbs, steps.flatMap(([parts, text]) => [el("span", { class: "quiet" }, "/"), link(parts, text)]));
  document.title = ["gymq", ...steps.map(([, text]) => text)].join(" / ");
}

function askForKey() {
  const field = el("input", { type: "password", autocomplete: "off", "aria-label": "key", placeholder: "the bridge's api_key" });
  show(main, el("form", { class: "card key", onsubmit: (event) => {
    event.preventDefault();
    setKey(field.value.trim());
    open();
  } }, el("h1", null, "Key"), el("p", { class: "quiet" }, "This bridge has a key. It is kept in this tab until you close it."), el("div", { class: "row" }, field, el("button", { type: "submit" }, "continue"))));
  field.focus();
}

// Says what is the matter with the cluster; a view that could not be shown is opened again once nothing is.
async function look() {
  const { notice } = await get(["notice"]).catch((error) => ({ notice: error.status === 0 ? "gymq does not answer: is it still running?" : "" }));
  const line = document.getElementById("notice");
  line.textContent = notice;
  line.hidden = !notice;
  if (isAway && !notice) open();
  setTimeout(look, LOOK_MS);
}

// Back leads to where the reader was, once the view is as long again as it was.
function restore(top, { signal }) {
  const giveUp = performance.now() + RESTORE_MS;
  const look = () => {
    if (signal.aborted || performance.now() > giveUp) return;
    if (document.documentElement.scrollHeight >= top + innerHeight) window.scrollTo(0, top);
    else requestAnimationFrame(look);
  };
  look();
}

history.scrollRestoration = "manual";
globalThis.navigation?.addEventListener("navigate", (event) => {
  left.set(location.hash, window.scrollY);
  isBack = event.navigationType === "traverse";
});
window.addEventListener("hashchange", () => {
  window.scrollTo(0, 0);
  open();
  if (isBack) restore(left.get(location.hash) || 0, leaving);
});
open();
look();
