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

// Copies a text; where the browser keeps its clipboard to itself, the text is shown so that it can be copied by hand.
export async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
  } catch {
    button.after(el("textarea", { readonly: true, "aria-label": "text to copy", rows: 3 }, text));
    button.textContent = "copy it from here";
  }
  setTimeout(() => { button.textContent = before; }, 1500);
}

export function commandToCopy(command) {
  const button = el("button", { type: "button", class: "more", onclick: () => copy(command, button) }, "copy");
  return el("span", { class: "block-line" }, el("code", null, command), " ", button);
}
