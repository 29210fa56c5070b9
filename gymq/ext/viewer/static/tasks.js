// The tasks of a run at a glance: a dot a rollout, coloured by its reward, and the groups from which nothing is learnt.

import { get } from "./api.js";
import { address, el, link, show } from "./dom.js";
import { count, decimals, fixed, percent } from "./format.js";

const PAGE = 60;
const MOST_DOTS = 64;
const GRADES = 5;

// Dots of a task's rollouts; `scale` is the lowest and highest reward that are shown together.
export function dots(run, task, [low, high]) {
  const grade = (reward) => (reward === null ? "failed" : `grade${high > low ? Math.min(GRADES - 1, Math.floor(((reward - low) / (high - low)) * GRADES)) : reward > 0 ? GRADES - 1 : 0}`);
  const more = task.rollouts.length - MOST_DOTS;
  return el("span", { class: "dots" }, task.rollouts.slice(0, MOST_DOTS).map(([rollout, reward]) => {
    const hint = `task ${task.task_index}, rollout ${rollout}: ${reward === null ? "failed" : `reward ${decimals(reward)}`}`;
    return link(["rollout", run, task.task_index, rollout], "", { class: `dot ${grade(reward)}`, title: hint, "aria-label": hint });
  }), more > 0 ? el("span", { class: "quiet small" }, ` and ${more} more`) : null);
}

export function scaleOf(tasks) {
  const rewards = tasks.flatMap((task) => task.rollouts.map(([, reward]) => reward)).filter((reward) => reward !== null);
  return [Math.min(0, ...rewards), Math.max(1, ...rewards)];
}

export function taskGrid(box, run, query, signal) {
  const sort = query.get("sort") || "task", shown = query.get("show") || "all", skip = Number(query.get("skip") || 0);
  const here = (changed) => address(["run", run], { sort, show: shown, ...changed });
  const body = el("tbody"), note = el("p", { class: "quiet", role: "status" }, "loading …"), foot = el("div", { class: "pager" });
  const choice = (name, label, value, options) => el("select", { "aria-label": label, onchange: (event) => { location.hash = here({ [name]: event.target.value }); } },
    options.map(([key, text]) => el("option", { value: key, selected: key === value }, text)));
  show(box, el("div", { class: "filters" },
    choice("sort", "order", sort, [["task", "in order"], ["mean", "lowest mean first"], ["spread", "widest spread first"]]),
    choice("show", "which", shown, [["all", "all tasks"], ["uniform", "only those without variance"]])), note,
  el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "tasks" }, el("table", { class: "cards" },
    el("thead", null, el("tr", null, ["task", "rollouts", "mean", "variance", "prompt"].map((name, at) => el("th", { class: at === 2 ? "number" : null }, name)))), body)), foot);
  const draw = async () => {
    for (;;) {
      const found = await get(["runs", run, "tasks"], { sort, show: shown, skip }, signal);
      const scale = scaleOf(found.tasks);
      note.textContent = `${count(found.num_uniform)} of ${count(found.num_tasks)} tasks (${percent((100 * found.num_uniform) / (found.num_tasks || 1))}) have the same reward in all their rollouts`
        + (found.is_whole ? "" : "; loading …");
      show(body, found.tasks.map((task) => el("tr", { class: task.is_uniform ? "uniform" : null },
        el("td", null, el("a", { href: address(["run", run], { tab: "rollouts", task: task.task_index }) }, task.task_index)),
        el("td", null, dots(run, task, scale)), el("td", { class: "number", "data-name": "mean" }, fixed(task.mean, 3)),
        el("td", null, task.is_uniform ? el("span", { class: "badge" }, "no variance") : null),
        el("td", { class: "words-cell" }, el("span", { class: "clip" }, task.prompt)))));
      const number = shown === "uniform" ? found.num_uniform : found.num_tasks;
      show(foot, skip > 0 ? el("a", { class: "button", href: here({ skip: Math.max(0, skip - PAGE) || "" }) }, "back") : null,
        skip + PAGE < number ? el("a", { class: "button", href: here({ skip: skip + PAGE }) }, "next") : null);
      if (found.is_whole || signal.aborted) return;
      await new Promise((done) => { setTimeout(done, 250); });
    }
  };
  const failed = (error) => { if (error.name !== "AbortError") note.textContent = error.message; };
  draw().catch(failed);
  return () => draw().catch(failed);
}
