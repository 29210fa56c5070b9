// Quantities as people read them.

const MOST_LISTED = 50000; // rollouts of a run, as in `run_index.py`

// What lists, tasks and charts leave out of runs, in words; null if it is nothing.
export const leftOut = (views) => (views.some((view) => view.num_stored > MOST_LISTED)
  ? `lists, tasks and charts show the first ${count(MOST_LISTED)} rollouts of a run` : null);

export const count = (number) => (number === null || number === undefined ? "–" : Number(number).toLocaleString("en"));

export function decimals(number, digits = 3) {
  if (number === null || number === undefined) return "–";
  const value = Number(number);
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return value.toLocaleString("en");
  return Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(2) : String(Number(value.toFixed(digits)));
}

// With so many decimals, rounded as Python rounds: of two that are as near, to the even one.
export function fixed(number, digits) {
  if (number === null || number === undefined) return "–";
  const value = Number(number), scaled = value * 10 ** digits;
  const isHalfway = Number.isInteger(value * 2 ** (digits + 1)) && !Number.isInteger(scaled) && Number.isInteger(2 * scaled);
  return isHalfway ? ((2 * Math.round(scaled / 2)) / 10 ** digits).toFixed(digits) : value.toFixed(digits);
}

// Writes all numbers of a column with as many decimals as one of them needs.
export function sameDecimals(numbers, most = 3) {
  const known = numbers.filter((one) => typeof one === "number" && Number.isFinite(one));
  let digits = 0;
  while (digits < most && known.some((one) => Math.abs(one - Number(one.toFixed(digits))) > 1e-9)) digits += 1;
  return (number) => (typeof number === "number" && Math.abs(number) < 1e6 ? fixed(number, digits) : decimals(number));
}

export const percent = (number) => (number === null || number === undefined ? "–" : `${fixed(number, 1)} %`);

// A part of the full reward is neither won nor lost.
export const gradeOf = (reward) => (reward >= 1 ? "good" : reward > 0 ? "partly" : "bad");

// What answered in a run; a name that says no more than that it was the policy is left out.
export const policies = (run) => run.models.map((model) => model.replace(/^policy_model = /, "")).join(", ");

export function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = number, unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${value < 10 && unit ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.1) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 10) return `${value.toFixed(2)} s`;
  if (value < 120) return `${value.toFixed(0)} s`;
  if (value < 7200) return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
  return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
}

export function time(unix) {
  if (!unix) return "–";
  const at = new Date(unix * 1000);
  const pad = (number) => String(number).padStart(2, "0");
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${pad(at.getHours())}:${pad(at.getMinutes())}`;
}

// How long ago a time was.
export function age(unix) {
  if (!unix) return "–";
  const passed = Math.max(0, Date.now() / 1000 - unix);
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) if (passed >= length) return `${Math.floor(passed / length)} ${unit} ago`;
  return "just now";
}
