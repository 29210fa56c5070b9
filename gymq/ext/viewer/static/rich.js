// Texts of models as Markdown, code and formulas. The bridge renders them as trees of elements, whose nodes are made here
// one by one. A text is shown as it is at first, and rendered when it comes near the window.

import { post } from "./api.js";
import { el, visible } from "./dom.js";

const HTML = new Set("p blockquote ul ol li strong em s table thead tbody tr th td h3 h4 h5 h6 br hr pre code span div img".split(" "));
const MATH = new Set(("math mrow mi mn mo ms mtext mspace mfrac msqrt mroot msub msup msubsup munder mover munderover mmultiscripts "
  + "mprescripts none mtable mtr mtd mstyle mpadded mphantom").split(" "));
const NAMES = new Set(("class title start alt data-language display displaystyle scriptlevel stretchy fence form columnalign mathvariant accent "
  + "accentunder linethickness movablelimits largeop separator symmetric minsize maxsize lspace rspace width height depth").split(" "));
const MATHML = "http://www.w3.org/1998/Math/MathML";
const IMAGE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+$/;

const PIECE = 20000; // characters; the bridge renders no longer texts
const MOST_TEXTS = 32, MOST_CHARS = 120000; // of one request
const AHEAD = "1200px";
const MARKS = /[*_`#$\\|[\]~<&]|^\s*([-+]|\d+[.)])\s|^\s*>|\n\s*\n|^[=-]{3,}\s*$/m;

function built(node) {
  if (typeof node === "string") return document.createTextNode(visible(node));
  const [tag, attributes, ...children] = node;
  const made = MATH.has(tag) ? document.createElementNS(MATHML, tag) : document.createElement(HTML.has(tag) ? tag : "span");
  for (const [name, value] of Object.entries(attributes)) if (NAMES.has(name)) made.setAttribute(name, visible(value));
  if (tag === "img" && IMAGE.test(attributes.src)) made.src = attributes.src;
  for (const child of children) made.append(built(child));
  return made;
}

// An image that a text or a message holds itself; nothing is loaded from anywhere.
export function image(address, alt) {
  return IMAGE.test(address) ? el("img", { src: address, alt: alt || "image", loading: "lazy" }) : null;
}

const known = new Map(); // trees by what they were made of; the newest last
const MOST_KNOWN = 600;
const waiting = new Map(); // box -> source
let isAsking = false;

const keyOf = ({ text, language }) => `${language}\n${text}`;

const near = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    const source = sources.get(target);
    const tree = known.get(keyOf(source));
    if (tree) put(target, tree);
    else waiting.set(target, source);
  }
  ask();
}, { rootMargin: `${AHEAD} 0px` });
const sources = new WeakMap();

async function ask() {
  if (isAsking) return;
  isAsking = true;
  try {
    while (waiting.size) {
      const boxes = [];
      let chars = 0;
      for (const [box, source] of waiting) {
        if (boxes.length && (boxes.length === MOST_TEXTS || chars + source.text.length > MOST_CHARS)) break;
        boxes.push([box, source]);
        chars += source.text.length;
        waiting.delete(box);
      }
      const trees = await post(["rendered"], boxes.map(([, source]) => source)).catch(() => null);
      boxes.forEach(([box, source], at) => {
        const tree = trees?.[at];
        if (!tree) return box.classList.remove("pending");
        known.set(keyOf(source), tree);
        if (known.size > MOST_KNOWN) known.delete(known.keys().next().value);
        return put(box, tree);
      });
    }
  } finally {
    isAsking = false;
  }
}

function put(box, tree) {
  box.replaceChildren(...tree.map(built));
  box.classList.remove("as-is", "pending");
}

function piece(text, language) {
  const box = el("div", { class: language ? "rich as-is code" : "rich as-is" }, text);
  if (!language && !MARKS.test(text)) return box;
  box.classList.add("pending");
  sources.set(box, { text, language });
  near.observe(box);
  return box;
}

// The end of a piece that begins at `from`: behind a line if there is one, never within a character.
function cut(text, from) {
  const most = from + PIECE;
  if (text.length <= most) return text.length;
  const line = text.lastIndexOf("\n", most - 1);
  if (line > from + PIECE / 2) return line + 1;
  return (text.charCodeAt(most - 1) & 0xfc00) === 0xd800 ? most - 1 : most;
}

// A text, rendered; of one that is very long the beginning, and the rest when it is asked for.
export function rich(text, language = "") {
  const whole = String(text);
  const first = cut(whole, 0);
  const head = piece(whole.slice(0, first), language);
  return first === whole.length ? head : el("div", null, head, rest(whole, first, (part) => piece(part, language)));
}

// The same, as it is: the output of a program, for one.
export function plain(text) {
  const whole = String(text);
  const first = cut(whole, 0);
  const shown = (part) => el("pre", { class: "code" }, part);
  return first === whole.length ? shown(whole) : el("div", null, shown(whole.slice(0, first)), rest(whole, first, shown));
}

function rest(whole, first, shown) {
  const button = el("button", { type: "button", class: "more", onclick: () => {
    const parts = [];
    for (let from = first; from < whole.length;) {
      const end = cut(whole, from);
      parts.push(el("div", { class: "chunk" }, shown(whole.slice(from, end))));
      from = end;
    }
    button.replaceWith(...parts);
  } }, `show the other ${(whole.length - first).toLocaleString("en")} characters`);
  return button;
}
