// Elements are made here and nowhere else. Text becomes text nodes; markup is never parsed.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "href" && !String(value).startsWith("#")) throw new Error("links lead to this page only");
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : visible(child))));
  return node;
}

export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Marks that turn the direction of what follows, and other marks without a shape, as their codes.
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

export const visible = (text) =>
  String(text).replace(HIDDEN, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`);

export function show(node, ...children) {
  node.replaceChildren(...children.flat(9).filter((child) => child));
}

// A link to a view of this page; each part is encoded, so that no name can lead elsewhere.
export const link = (parts, text, attributes) =>
  el("a", { href: address(parts), ...attributes }, text);

export const address = (parts, query) => {
  const path = "#/" + parts.map((part) => encodeURIComponent(part)).join("/");
  const asked = new URLSearchParams(Object.entries(query || {}).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  return asked.size ? `${path}?${asked}` : path;
};

const LONG = 6000;

// A text that may be very long: the first part of it, and the rest when it is asked for.
export function longText(text, attributes) {
  const whole = visible(text);
  const node = el("pre", attributes);
  if (whole.length <= LONG * 1.2) {
    node.textContent = whole;
    return node;
  }
  node.textContent = whole.slice(0, LONG);
  const more = el("button", { type: "button", class: "more", onclick: () => { node.textContent = whole; more.remove(); } },
    `show all ${whole.length.toLocaleString("en")} characters`);
  return el("div", null, node, more);
}
