// What a reader may do with a run: describe it, take it along, requeue its failures, pause, resume and cancel it.

import { download, get, post } from "./api.js";
import { address, el, show } from "./dom.js";
import { count } from "./format.js";

// The buttons of a run; `site` says what this viewer can do.
export function actionBar(run, site, signal) {
  const notice = el("p", { class: "quiet", role: "status", hidden: true });
  const say = (text) => { notice.hidden = false; notice.textContent = text; };
  const act = (button, work) => async () => {
    button.disabled = true;
    try {
      say(await work());
    } catch (error) {
      if (error.name !== "AbortError") say(error.message);
    }
    button.disabled = false;
  };
  const button = (text, work) => {
    const made = el("button", { type: "button" }, text);
    made.addEventListener("click", act(made, work));
    return made;
  };
  const save = button("export", async () => {
    await download(["runs", run, "export"], `${run}.jsonl`, signal);
    return `${run}.jsonl has all rollouts; gymq export has other forms`;
  });
  const replay = button("requeue failures", async () => {
    const done = await post(["runs", run, "requeue"], {}, signal);
    return `${count(done.requeued)} requeued, ${count(done.rewarded)} had a reward by now, ${count(done.kept)} left${done.reasons.length ? `: ${done.reasons.join("; ")}` : ""}`;
  });
  const pause = button("pause", async () => {
    await post(["runs", run, "pause"], {}, signal);
    return "paused: rollouts in flight finish, no other is started until the run is resumed";
  });
  const resume = button("resume", async () => {
    await post(["runs", run, "resume"], {}, signal);
    return "resumed";
  });
  let isSure = false;
  const cancel = button("cancel", async () => {
    if (!isSure) {
      isSure = true;
      cancel.textContent = "cancel it: sure?";
      return "A cancelled run cannot be resumed. Press again to cancel it.";
    }
    const done = await post(["runs", run, "cancel"], {}, signal);
    cancel.textContent = "cancel";
    isSure = false;
    return `cancelled; ${count(done.num_queued)} of its rollouts were queued or in flight`;
  });
  const node = el("div", { class: "row actions" }, el("a", { class: "button", href: address([], { with: run }) }, "compare"), site.is_static ? null : save);
  return {
    node, notice,
    // Only what makes sense now is offered.
    update: (view) => {
      const failures = Object.keys(view.overview.failures).length;
      const isPaused = view.state === "paused";
      const isOpen = isPaused || ["queued", "running", "interrupted"].includes(view.state);
      const offers = [
        [replay, failures && view.state !== "cancelled"], [pause, isOpen && !isPaused], [resume, isPaused], [cancel, isOpen],
      ];
      for (const [one, isOffered] of offers) {
        if (site.may_change && isOffered) { if (!one.isConnected) node.append(one); } else one.remove();
      }
    },
  };
}

// The note and the tags of a run, which can be changed where the viewer may.
export function description(run, site, signal) {
  const node = el("div", { class: "described" });
  let known = null;
  const draw = ({ note, tags }) => show(node,
    tags.length ? el("span", { class: "chips" }, tags.map((tag) => el("a", { class: "chip tag", href: address([], { text: tag }) }, tag))) : null,
    note ? el("span", { class: "lines" }, note) : null,
    site.may_change ? el("button", { type: "button", class: "more", onclick: () => edit({ note, tags }) }, note || tags.length ? "edit" : "add a note or tags") : null);
  const edit = ({ note, tags }) => {
    const text = el("textarea", { rows: 2, maxlength: 4000, "aria-label": "note", placeholder: "a note" }, note);
    const names = el("input", { value: tags.join(", "), "aria-label": "tags", placeholder: "tags, with commas in between" });
    const notice = el("span", { class: "bad", role: "status" });
    show(node, el("form", { class: "describe", onsubmit: async (event) => {
      event.preventDefault();
      const given = names.value.split(",").map((tag) => tag.trim()).filter(Boolean);
      try {
        known = await post(["runs", run, "description"], { note: text.value, tags: given }, signal);
        draw(known);
      } catch (error) { notice.textContent = error.message; }
    } }, text, names, el("button", { type: "submit" }, "save"), el("button", { type: "button", onclick: () => draw(known) }, "leave it"), notice));
    text.focus();
  };
  return {
    node,
    update: ({ overview: { note, tags } }) => {
      if (node.querySelector("form") || (known && known.note === note && known.tags.join() === tags.join())) return;
      known = { note, tags };
      draw(known);
    },
  };
}

export const site = (signal) => get(["site"], null, signal);
