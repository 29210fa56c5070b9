// Drawings: pass@k over k with its intervals, values as a histogram, and figures over the course of a run.

import { el, svg } from "./dom.js";
import { count, decimals, percent } from "./format.js";

const WIDTH = 560, HEIGHT = 260, LEFT = 40, RIGHT = 14, TOP = 12, BOTTOM = 34;
const NUMBER = 30; // between the middles of two numbers under an axis
const MOST_BANDS = 2, ASIDE = 6; // curves with bands; points between the intervals of others
const tone = (number) => `tone${number % 6}`;

// series: [{ name, points: [{ k, value, low, high }] }], values in percent
export function passCurve(series) {
  const ks = [...new Set(series.flatMap((one) => one.points.map((point) => point.k)))].sort((a, b) => a - b);
  if (!ks.length) return el("p", { class: "quiet" }, "no rewards");
  const most = Math.log2(ks[ks.length - 1]) || 1;
  const x = (k) => LEFT + (ks.length === 1 ? 0.5 : Math.log2(k) / most) * (WIDTH - LEFT - RIGHT);
  const y = (value) => TOP + (1 - value / 100) * (HEIGHT - TOP - BOTTOM);
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": "pass@k in percent over k" });
  for (const value of [0, 25, 50, 75, 100]) {
    drawing.append(svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), class: "grid" }));
    drawing.append(svg("text", { x: LEFT - 6, y: y(value) + 4, class: "tick end" }, value));
  }
  let room = Infinity;
  for (const k of ks.toReversed()) {
    if (room - x(k) < NUMBER) continue;
    drawing.append(svg("text", { x: x(k), y: HEIGHT - BOTTOM + 18, class: "tick middle" }, k));
    room = x(k);
  }
  drawing.append(svg("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 2, class: "tick middle" }, "k"));
  series.forEach((one, number) => {
    const banded = one.points.filter((point) => point.low !== null && point.low !== undefined);
    // The bands of many curves look alike: then their intervals stand beside each other.
    const aside = series.length > MOST_BANDS ? (number - (series.length - 1) / 2) * ASIDE : 0;
    if (banded.length > 1 && series.length <= MOST_BANDS) {
      const upper = banded.map((point) => `${x(point.k)},${y(point.high)}`);
      const lower = banded.map((point) => `${x(point.k)},${y(point.low)}`).reverse();
      drawing.append(svg("polygon", { points: [...upper, ...lower].join(" "), class: `band ${tone(number)}` }));
    }
    for (const point of banded) {
      drawing.append(svg("line", { x1: x(point.k) + aside, x2: x(point.k) + aside, y1: y(point.low), y2: y(point.high), class: `whisker ${tone(number)}` }));
    }
    drawing.append(svg("polyline", { points: one.points.map((point) => `${x(point.k)},${y(point.value)}`).join(" "), class: `curve ${tone(number)}` }));
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
  const slot = (WIDTH - LEFT - RIGHT) / bars.length;
  const single = bars.every((bar) => bar.low === bar.high);
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "chart", role: "img", "aria-label": title });
  const base = height - BOTTOM + 8;
  drawing.append(svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: base, y2: base, class: "grid" }));
  bars.forEach((bar, index) => {
    const tall = (bar.count / most) * (base - 26);
    const wide = single ? Math.min(slot * 0.7, 70) : slot - 1.5;
    const left = LEFT + index * slot + (slot - wide) / 2;
    const hint = single ? decimals(bar.low) : `${decimals(bar.low)} to ${decimals(bar.high)}`;
    drawing.append(svg("rect", { x: left, y: base - tall, width: wide, height: Math.max(tall, bar.count ? 1 : 0), rx: 2, class: `bar ${tone(number)}` },
      svg("title", null, `${title === "rewards" ? "reward" : title} ${hint}: ${count(bar.count)} rollouts, ${percent((100 * bar.count) / total)}`)));
    if (single) {
      drawing.append(svg("text", { x: left + wide / 2, y: base + 16, class: "tick middle" }, decimals(bar.low)));
      drawing.append(svg("text", { x: left + wide / 2, y: base - tall - 6, class: "tick middle" }, percent((100 * bar.count) / total)));
    }
  });
  if (!single) {
    drawing.append(svg("text", { x: LEFT, y: base + 16, class: "tick" }, decimals(bars[0].low)));
    drawing.append(svg("text", { x: WIDTH - RIGHT, y: base + 16, class: "tick end" }, decimals(bars[bars.length - 1].high)));
    drawing.append(svg("text", { x: LEFT, y: 14, class: "tick" }, `highest bar: ${count(most)} rollouts`));
  }
  return drawing;
}

const swatch = (number) => el("span", { class: `swatch ${tone(number)}` });

function legend(names) {
  return el("div", { class: "legend" }, names.map((name, number) => el("span", { class: "entry" }, swatch(number), name)));
}

// points: [{ at, value, low, high, hint }] with `at` in any unit; a line with the band of its intervals
export function course(points, { label, name, low = 0, high, hint }) {
  const known = points.filter((point) => point.value !== null && point.value !== undefined);
  if (!known.length) return el("p", { class: "quiet" }, "nothing yet");
  const height = 190, base = height - BOTTOM + 8;
  const first = points[0].at, last = points[points.length - 1].at;
  const most = high ?? (Math.max(...known.map((point) => point.high ?? point.value), low) || 1);
  const least = Math.min(low, ...known.map((point) => point.low ?? point.value));
  const x = (at) => LEFT + (last > first ? (at - first) / (last - first) : 0.5) * (WIDTH - LEFT - RIGHT);
  const y = (value) => TOP + (1 - (value - least) / ((most - least) || 1)) * (base - TOP);
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "chart", role: "img", "aria-label": label });
  for (const value of [least, (least + most) / 2, most]) {
    drawing.append(svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), class: "grid" }));
    drawing.append(svg("text", { x: LEFT - 6, y: y(value) + 4, class: "tick end" }, decimals(value, 2)));
  }
  const banded = known.filter((point) => point.low !== null && point.low !== undefined);
  if (banded.length > 1) {
    const edge = (side) => banded.map((point) => `${x(point.at)},${y(point[side])}`);
    drawing.append(svg("polygon", { points: [...edge("high"), ...edge("low").reverse()].join(" "), class: "band tone0" }));
  }
  for (const point of banded.length > 1 ? [] : banded) drawing.append(svg("line", { x1: x(point.at), x2: x(point.at), y1: y(point.low), y2: y(point.high), class: "whisker tone0" }));
  drawing.append(svg("polyline", { points: known.map((point) => `${x(point.at)},${y(point.value)}`).join(" "), class: "curve tone0" }));
  for (const point of known) drawing.append(svg("circle", { cx: x(point.at), cy: y(point.value), r: 3, class: "point tone0" }, svg("title", null, hint(point))));
  drawing.append(svg("text", { x: LEFT, y: base + 16, class: "tick" }, name(points[0])));
  if (points.length > 1) drawing.append(svg("text", { x: WIDTH - RIGHT, y: base + 16, class: "tick end" }, name(points[points.length - 1])));
  return drawing;
}

// Values as bars of the bridge's histogram.
export const lengths = (bars, title, number) => histogram(bars, number, title);

export const curveOf = (name, agent) => ({
  name,
  points: Object.entries(agent.pass_at_k)
    .map(([k, estimate]) => ({ k: Number(k), value: estimate.value, low: estimate.interval?.low, high: estimate.interval?.high }))
    .sort((a, b) => a.k - b.k),
});
