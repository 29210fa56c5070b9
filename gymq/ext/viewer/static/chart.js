// Drawings: pass@k over k with its intervals, values as a histogram, and figures over the course of a run.

import { el, svg } from "./dom.js";
import { count, decimals, percent, sameDecimals } from "./format.js";
import { ofAll } from "./numbers.js";

const WIDTH = 560, HEIGHT = 260, LEFT = 54, RIGHT = 14, TOP = 12, BOTTOM = 34;
const NUMBER = 30; // between the middles of two numbers under an axis
const MOST_BANDS = 2, ASIDE = 6; // curves with bands; points between the intervals of others
const CHARACTER = 11; // the widest that one of a label is
const tone = (number) => `tone${number % 6}`;

// The next higher round number, so that an axis up to it has labels that are read at a glance.
function round(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return unit * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * unit >= value * (1 - 1e-9));
}

// Draws the lines and labels of an axis; `y` gives the place of a value.
function axis(drawing, values, y, left) {
  const written = sameDecimals(values, 2);
  for (const value of values) {
    drawing.append(svg("line", { x1: left, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), class: "grid" }));
    drawing.append(svg("text", { x: left - 6, y: y(value) + 4, class: "tick end" }, written(value)));
  }
}

const leftOf = (values) => 10 + CHARACTER * Math.max(3, ...values.map((value) => sameDecimals(values, 2)(value).length));

// series: [{ name, points: [{ k, value, low, high }] }], values in percent
export function passCurve(series) {
  const ks = [...new Set(series.flatMap((one) => one.points.map((point) => point.k)))].sort((a, b) => a - b);
  if (!ks.length) return el("p", { class: "quiet" }, "no rewards");
  const most = Math.log2(ks[ks.length - 1]) || 1;
  // The bands of many curves look alike: then their intervals stand beside each other.
  const room = series.length > MOST_BANDS ? ASIDE : 0, inset = (room * series.length) / 2, start = LEFT + inset;
  const x = (k) => start + (ks.length === 1 ? 0.5 : Math.log2(k) / most) * (WIDTH - RIGHT - inset - start);
  const y = (value) => TOP + (1 - value / 100) * (HEIGHT - TOP - BOTTOM);
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": "pass@k in percent over k" });
  axis(drawing, [0, 25, 50, 75, 100], y, LEFT);
  let next = Infinity;
  for (const k of ks.toReversed()) {
    if (next - x(k) < NUMBER) continue;
    drawing.append(svg("text", { x: x(k), y: HEIGHT - BOTTOM + 18, class: "tick middle" }, k));
    next = x(k);
  }
  drawing.append(svg("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 2, class: "tick middle" }, "k"));
  series.forEach((one, number) => {
    const banded = one.points.filter((point) => point.low !== null && point.low !== undefined);
    const aside = (number - (series.length - 1) / 2) * room;
    if (banded.length > 1 && !room) {
      const upper = banded.map((point) => `${x(point.k)},${y(point.high)}`);
      const lower = banded.map((point) => `${x(point.k)},${y(point.low)}`).reverse();
      drawing.append(svg("polygon", { points: [...upper, ...lower].join(" "), class: `band ${tone(number)}` }));
    }
    for (const point of banded) {
      drawing.append(svg("line", { x1: x(point.k) + aside, x2: x(point.k) + aside, y1: y(point.low), y2: y(point.high), class: `whisker ${tone(number)}` }));
    }
    drawing.append(svg("polyline", { points: one.points.map((point) => `${x(point.k) + aside},${y(point.value)}`).join(" "), class: `curve ${tone(number)}` }));
    for (const point of one.points) {
      const interval = point.low === null || point.low === undefined ? "" : `, ${percent(point.low)} to ${percent(point.high)}`;
      drawing.append(svg("circle", { cx: x(point.k) + aside, cy: y(point.value), r: 3.5, class: `point ${tone(number)}` },
        svg("title", null, `${one.name}: pass@${point.k} ${percent(point.value)}${interval}`)));
    }
  });
  return el("div", null, drawing, legend(series.map((one) => one.name)));
}

// series: [{ name, bars: [{ low, high, count }] or null }]; drawn one below the other on one scale of rewards
export function histograms(series) {
  return series.map((one, number) => {
    const heading = series.length > 1 ? el("div", { class: "legend" }, swatch(number), one.name) : null;
    if (!one.bars) return el("div", null, heading, el("p", { class: "quiet" }, "too many different rewards for a histogram"));
    if (!one.bars.length) return el("div", null, heading, el("p", { class: "quiet" }, "no rewards"));
    return el("div", null, heading, histogram(one.bars, number, "rewards", series.length > 1 ? 100 : 180));
  });
}

function histogram(bars, number, title = "rewards", height = 180) {
  const total = bars.reduce((sum, bar) => sum + bar.count, 0);
  const most = Math.max(...bars.map((bar) => bar.count));
  const top = most > 1 ? round(most) : 1, marks = [...new Set([0, top % 2 ? 0 : top / 2, top])], start = leftOf(marks);
  const slot = (WIDTH - start - RIGHT) / bars.length;
  const single = bars.every((bar) => bar.low === bar.high);
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "chart", role: "img", "aria-label": title });
  const base = height - BOTTOM + 8;
  const place = (number) => base - (number / top) * (base - 26);
  axis(drawing, marks, place, start);
  bars.forEach((bar, index) => {
    const tall = base - place(bar.count);
    const wide = single ? Math.min(slot * 0.7, 70) : slot - 1.5;
    const left = start + index * slot + (slot - wide) / 2;
    const hint = single ? decimals(bar.low) : `${decimals(bar.low)} to ${decimals(bar.high)}`;
    drawing.append(svg("rect", { x: left, y: base - tall, width: wide, height: Math.max(tall, bar.count ? 1 : 0), rx: 2, class: `bar ${tone(number)}` },
      svg("title", null, `${title === "rewards" ? "reward" : title} ${hint}: ${count(bar.count)} rollouts, ${percent((100 * bar.count) / total)}`)));
    if (single) {
      drawing.append(svg("text", { x: left + wide / 2, y: base + 16, class: "tick middle" }, decimals(bar.low)));
      drawing.append(svg("text", { x: left + wide / 2, y: base - tall - 6, class: "tick middle" }, percent((100 * bar.count) / total)));
    }
  });
  if (!single) {
    drawing.append(svg("text", { x: start, y: base + 16, class: "tick" }, decimals(bars[0].low)));
    drawing.append(svg("text", { x: WIDTH - RIGHT, y: base + 16, class: "tick end" }, decimals(bars[bars.length - 1].high)));
  }
  return drawing;
}

const swatch = (number) => el("span", { class: `swatch ${tone(number)}` });

function legend(names) {
  return el("div", { class: "legend" }, names.map((name, number) => el("span", { class: "entry" }, swatch(number), name)));
}

// points: [{ at, value, low, high, hint }] with `at` in any unit; a line with the band of its intervals
export function course(points, { label, name, low = 0, hint }) {
  const known = points.filter((point) => point.value !== null && point.value !== undefined);
  if (!known.length) return el("p", { class: "quiet" }, "nothing yet");
  const height = 190, base = height - BOTTOM + 8;
  const first = points[0].at, last = points[points.length - 1].at;
  const highest = Math.max(...known.map((point) => point.high ?? point.value), low);
  const most = highest > 0 ? round(highest) : highest || 1;
  const least = Math.min(low, ...known.map((point) => point.low ?? point.value));
  const marks = [least, (least + most) / 2, most], start = leftOf(marks);
  const x = (at) => start + (last > first ? (at - first) / (last - first) : 0.5) * (WIDTH - start - RIGHT);
  const y = (value) => TOP + (1 - (value - least) / ((most - least) || 1)) * (base - TOP);
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "chart", role: "img", "aria-label": label });
  axis(drawing, marks, y, start);
  const banded = known.filter((point) => point.low !== null && point.low !== undefined);
  if (banded.length > 1) {
    const edge = (side) => banded.map((point) => `${x(point.at)},${y(point[side])}`);
    drawing.append(svg("polygon", { points: [...edge("high"), ...edge("low").reverse()].join(" "), class: "band tone0" }));
  }
  for (const point of banded.length > 1 ? [] : banded) drawing.append(svg("line", { x1: x(point.at), x2: x(point.at), y1: y(point.low), y2: y(point.high), class: "whisker tone0" }));
  drawing.append(svg("polyline", { points: known.map((point) => `${x(point.at)},${y(point.value)}`).join(" "), class: "curve tone0" }));
  for (const point of known) drawing.append(svg("circle", { cx: x(point.at), cy: y(point.value), r: 3, class: "point tone0" }, svg("title", null, hint(point))));
  drawing.append(svg("text", { x: start, y: base + 16, class: "tick" }, name(points[0])));
  if (points.length > 1) drawing.append(svg("text", { x: WIDTH - RIGHT, y: base + 16, class: "tick end" }, name(points[points.length - 1])));
  return drawing;
}

// Values as bars of the bridge's histogram.
export const lengths = (bars, title, number) => histogram(bars, number, title);

export const curveOf = (name, agent) => ({
  name,
  points: Object.entries(ofAll(agent))
    .map(([k, estimate]) => ({ k: Number(k), value: estimate.value, low: estimate.interval?.low, high: estimate.interval?.high }))
    .sort((a, b) => a.k - b.k),
});
