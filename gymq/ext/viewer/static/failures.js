// The failures of a run by class and message, with the workers that had them and what those logged.

import { get } from "./api.js";
import { address, commandToCopy, el, show } from "./dom.js";
import { count } from "./format.js";
import { foldedLogs } from "./logs.js";

const AGAIN_MS = 300;

// Draws into `box` and returns a function that draws again with what is new.
export function failureList(box, run, view, signal) {
  const draw = async () => {
    const { failures: command } = await get(["runs", run, "rescoring"], null, signal);
    for (;;) {
      const found = await get(["runs", run, "failing"], null, signal);
      show(box, classes(run, view.overview.failures), remedy(view.overview.failures, command), groups(run, found, signal));
      if (found.is_whole || signal.aborted) return;
      await new Promise((done) => { setTimeout(done, AGAIN_MS); });
    }
  };
  const failed = (error) => { if (error.name !== "AbortError") show(box, el("p", { class: "bad" }, error.message)); };
  draw().catch(failed);
  // What a reader has opened stays.
  return (now) => { view = now; return box.querySelector("details[open]") ? null : draw().catch(failed); };
}

// What makes the failures good: a reply without a verdict is verified again without the model.
function remedy(failures, command) {
  if (!Object.keys(failures).length) return null;
  return el("p", null, "verifier_failed" in failures ? ["Once the verifier is mended, this verifies the replies again without the model: ",
    command ? commandToCopy(command) : "gymq score with the failures file of the run. "] : null,
  el("span", { class: "quiet" }, "The same gymq collect command tries all of them again."));
}

function classes(run, failures) {
  const sorted = Object.entries(failures).sort((a, b) => b[1] - a[1]);
  return [el("h2", null, "Failed rollouts by class"), sorted.length
    ? el("div", { class: "chips" }, sorted.map(([name, number]) => el("a", { class: "chip bad", href: address(["run", run], { tab: "rollouts", failure: name }) }, `${name} ${count(number)}`)))
    : el("p", { class: "quiet" }, "no failures")];
}

function groups(run, { groups: found, num_failed: number, is_whole: isWhole }, signal) {
  if (!found.length) return null;
  return [el("h2", { class: "spaced" }, "By message", el("span", { class: "quiet" }, ` ${count(number)} rollouts without a reward${isWhole ? "" : ", loading …"}`)),
    found.map((group) => el("div", { class: "block output" },
      el("div", { class: "row" }, el("b", null, count(group.count)), el("span", { class: "bad" }, group.failure_class), el("span", { class: "quiet" }, group.stage ? `at ${group.stage}` : ""),
        group.workers.length ? el("span", { class: "quiet small" }, "worker ", group.workers.map(([worker, times], at) => [at ? ", " : "",
          el("a", { href: address(["logs"], { worker }) }, worker), times < group.count ? ` (${count(times)})` : ""])) : null),
      el("p", { class: "lines" }, group.message),
      el("div", { class: "chips" }, group.rollouts.map(([task, rollout]) => el("a", { class: "chip", href: address(["rollout", run, task, rollout], { by: "failure" }) }, `${task} / ${rollout}`)),
        group.count > group.rollouts.length ? el("a", { class: "chip", href: address(["run", run], { tab: "rollouts", failure: group.failure_class }) }, `all of ${group.failure_class}`) : null),
      foldedLogs("log lines about the first", { rollout: `${run}/${group.rollouts[0].join("/")}` }, signal)))];
}
