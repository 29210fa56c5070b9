// In an exported viewer, what `api.js` is elsewhere: the same answers from files beside the page, loaded when they are
// needed. Figures are those that were exported; here they are only chosen and put in order.

const ROWS = 50, TASKS = 60, RUNS = 25;
const policy = globalThis.trustedTypes?.createPolicy("gymq-data", {
  createScriptURL: (name) => { if (!/^data\/[a-z0-9-]+\.js$/.test(name)) throw new TypeError("no file of the export"); return name; },
});
const files = new Map();
const arriving = new Map();

globalThis.gymqStored = (name, text) => arriving.get(name)?.(JSON.parse(text));

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const setKey = () => {};

function file(name) {
  if (!files.has(name)) {
    files.set(name, new Promise((done, fail) => {
      arriving.set(name, done);
      const script = document.createElement("script");
      const path = `data/${name}.js`;
      script.src = policy ? policy.createScriptURL(path) : path;
      script.addEventListener("error", () => { files.delete(name); fail(new Refused(404, `the export has no file data/${name}.js`)); });
      document.head.append(script);
    }));
  }
  return files.get(name);
}

const rendered = new Map();

async function numberOf(run) {
  const at = (await file("runs")).runs.findIndex(({ overview }) => overview.run === run);
  if (at < 0) throw new Refused(404, `the export has no run ${run}`);
  return at;
}

const remember = (trees) => { for (const [language, text, tree] of trees) rendered.set(`${language}\n${text}`, tree); };

async function runFile(run) {
  const found = await file(`run-${await numberOf(run)}`);
  remember(found.rendered);
  return found;
}

async function rolloutFile(run, task, rollout) {
  const found = await file(`rollout-${await numberOf(run)}-${task}-${rollout}`);
  remember(found.rendered);
  return found;
}

const by = (value, isDown) => (one, other) => {
  const [a, b] = [value(one), value(other)];
  if (a === null || a === "" || b === null || b === "") return (a === null || a === "") - (b === null || b === "");
  return (a < b ? -1 : a > b ? 1 : 0) * (isDown ? -1 : 1);
};
const page = (all, query, size) => all.slice(Number(query.skip || 0), Number(query.skip || 0) + size);

function fits(row, query) {
  const number = (name) => (query[name] === "" || query[name] === undefined ? null : Number(query[name]));
  const least = number("least_reward"), most = number("most_reward"), isFailed = row.reward === null, text = (query.text || "").toLowerCase();
  return (!query.result || (query.result === "failed") === isFailed) && (!query.failure || query.failure === row.failure_class)
    && (!query.agent || query.agent === row.agent) && (number("task") ?? row.task_index) === row.task_index
    && (least === null || (!isFailed && row.reward >= least)) && (most === null || (!isFailed && row.reward <= most)) && row.duration_s >= (number("least_s") ?? 0)
    && (!text || [row.prompt, row.expected, row.words].some((part) => part.toLowerCase().includes(text)));
}

async function runs(query) {
  const value = { started: (one) => one.overview.created_at, run: (one) => one.overview.run, state: (one) => one.state, reward: (one) => one.overview.mean_reward,
    pass_at_1: (one) => one.pass_at_1, tokens: (one) => one.output_tokens, duration_s: (one) => one.duration_s }[query.sort || "started"];
  const text = (query.text || "").toLowerCase();
  const found = (await file("runs")).runs.filter(({ overview }) => [overview.run, overview.note, ...overview.tags, ...overview.models].some((part) => part.toLowerCase().includes(text)));
  return { runs: page(found.toSorted(by(value, query.order !== "up")), query, RUNS), num_runs: found.length };
}

function table(rows, query) {
  const matching = rows.filter((row) => fits(row, query));
  const value = (row) => (query.sort.includes(".") ? row.details[query.sort] ?? null : row[query.sort]);
  const sorted = !query.sort || query.sort === "task" ? (query.order === "down" ? matching.toReversed() : matching) : matching.toSorted(by(value, query.order === "down"));
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row.details)))].sort();
  return { rows: page(sorted, query, ROWS), num_matching: matching.length, num_read: rows.length, is_whole: true, columns };
}

function tasks(all, query) {
  const uniform = all.filter((task) => task.is_uniform);
  const spread = ({ rollouts }) => { const rewards = rollouts.map(([, reward]) => reward).filter((one) => one !== null); return rewards.length ? Math.max(...rewards) - Math.min(...rewards) : -1; };
  const shown = query.show === "uniform" ? uniform : all;
  const sorted = query.sort === "mean" ? shown.toSorted(by((task) => task.mean)) : query.sort === "spread" ? shown.toSorted(by(spread, true)) : shown;
  return { tasks: page(sorted, query, TASKS), num_tasks: all.length, num_uniform: uniform.length, is_whole: true };
}

async function compared(run, other, query) {
  const [a, b] = [await numberOf(run), await numberOf(other)];
  if (query.more) throw new Refused(404, "an export compares two runs at a time; gymq view compares more");
  const found = await file(`compared-${a}-${b}`);
  const sorted = query.sort === "task" ? found.tasks : found.tasks.toSorted(by((pair) => pair.difference, query.sort === "better"));
  const at = sorted.findIndex((pair) => pair.task_index === query.around);
  return { ...found, tasks: query.around === undefined ? page(sorted, query, TASKS) : sorted.slice(Math.max(0, at - 1), at + 2) };
}

function neighbours(rows, task, rollout, query) {
  const key = (row) => [query.order === "reward" ? row.reward ?? 0 : 0, row.task_index, row.rollout_index];
  const isBefore = (a, b) => { const at = a.findIndex((value, index) => value !== b[index]); return at >= 0 && a[at] < b[at]; };
  const kept = rows.filter((row) => !query.order || query.order === "task" || (row.reward === null) === (query.order === "failure"));
  const ordered = kept.toSorted((one, other) => (isBefore(key(one), key(other)) ? -1 : 1));
  const own = rows.find((row) => row.task_index === task && row.rollout_index === rollout);
  const here = own ? key(own) : [0, task, rollout];
  const before = ordered.filter((row) => isBefore(key(row), here)), after = ordered.filter((row) => isBefore(here, key(row)));
  const of = (row) => (row ? [row.task_index, row.rollout_index] : null);
  return { previous: of(before.at(-1)), next: of(after[0]), num_before: before.length, num_rollouts: ordered.length, is_whole: true };
}

export async function get([kind, run, ...rest], query) {
  const asked = Object.fromEntries(Object.entries(query || {}).map(([name, value]) => [name, value ?? ""]));
  if (kind === "site") return { may_change: false, has_logs: false, is_static: true };
  if (kind === "notice") return { notice: "" };
  if (kind === "cluster") return { is_here: false };
  if (kind === "logs") return { lines: [], is_here: false };
  if (kind === "runs" && run === undefined) return runs(asked);
  if (kind === "runs") {
    const [part, other] = rest;
    if (part === "compared") return compared(run, other, asked);
    const found = await runFile(run);
    if (part === "table") return table(found.rows, asked);
    if (part === "rollouts") return { rows: found.rows.filter((row) => fits(row, asked)), looked_at: found.rows.length, position: 0, is_end: true };
    if (part === "tasks") return tasks(found.tasks, asked);
    if (part === "in-flight") return [];
    if (part === "rescoring") return { older: [], failures: "" };
    return part === undefined ? found.view : found[part];
  }
  const [task, rollout] = [Number(rest[0]), Number(rest[1])];
  if (rest[2] === "neighbours") return neighbours((await runFile(run)).rows, task, rollout, asked);
  if (rest[2] === "failures") return [];
  const found = await rolloutFile(run, task, rollout);
  return rest[2] === "tokens" ? found.tokens[rest[3]] : found.view;
}

export const post = async (parts, sources) => sources.map(({ text, language }) => rendered.get(`${language}\n${text}`) ?? null);

export const text = async ([, run, task, rollout]) => (await rolloutFile(run, task, rollout)).record;

export async function download() {
  throw new Refused(404, "an export holds no file to download");
}

export async function listen([kind, ...rest], handlers) {
  if (kind === "runs") return handlers.run((await runFile(rest[0])).view);
  return handlers.stored((await rolloutFile(...rest)).view);
}
