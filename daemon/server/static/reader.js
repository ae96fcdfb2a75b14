// The reader: ties each block of text to its box on the picture, and moves between blocks, matches and pages.

import { get, post } from "./api.js";
import { icon, sentence } from "./dom.js";
import { bind } from "./keys.js";
import { note } from "./notes.js";
import { onStatus } from "./shell.js";

const reader = document.querySelector(".reader");
const { document: documentId, number, state, readAt } = reader.dataset;
const sheet = reader.querySelector(".sheet");
const picture = sheet.querySelector("img");
const panes = reader.querySelector(".panes");
const blocks = [...reader.querySelectorAll(".block")];
const boxes = [...reader.querySelectorAll(".box")];
const matches = [...reader.querySelectorAll(".match")];
const head = reader.querySelector(".reader-head");

let chosen = null; // position of a block
let matchAt = -1;

// --- the picture ---

function loaded() {
  sheet.classList.remove("is-loading");
  if (matches.length) toMatch(0, { quiet: true });
}

async function failed() {
  sheet.classList.remove("is-loading");
  sheet.classList.add("is-failed");
  const caption = sheet.querySelector(".sheet-failed");
  let told = { message: "The picture of this page cannot be shown" };
  try {
    await get(new URL(picture.src).pathname, { width: 1200 });
  } catch (error) {
    told = error;
  }
  const said = document.createElement("p");
  said.textContent = [told.message, told.remedy].filter(Boolean).map(sentence).join(" ");
  caption.replaceChildren(icon("page"), said);
  caption.hidden = false;
}

// How high the head is decides where the picture below it sticks.
new ResizeObserver(() => reader.style.setProperty("--head", `${head.offsetHeight}px`)).observe(head);

// --- blocks and boxes ---

const of = (nodes, position) => nodes.filter((node) => node.dataset.block === position);

function choose(position, { scrollText = false, scrollPicture = false, focus = false } = {}) {
  chosen = position;
  for (const node of [...blocks, ...boxes]) node.classList.toggle("is-chosen", node.dataset.block === position);
  if (position === null) return;
  const [block] = of(blocks, position);
  const [box] = of(boxes, position);
  if (scrollText && block) block.scrollIntoView({ block: "nearest", behavior: "smooth" });
  if (focus && block) block.focus({ preventScroll: true });
  if (scrollPicture && box) box.scrollIntoView({ block: "nearest", behavior: "smooth" });
}

function hover(position, isOver) {
  for (const node of [...of(blocks, position), ...of(boxes, position)]) node.classList.toggle("is-hovered", isOver);
}

for (const node of [...blocks, ...boxes]) {
  node.addEventListener("pointerenter", () => hover(node.dataset.block, true));
  node.addEventListener("pointerleave", () => hover(node.dataset.block, false));
}
for (const block of blocks) {
  block.addEventListener("click", (event) => {
    if (event.target.closest("a") || String(getSelection())) return; // a link, or text being selected
    choose(chosen === block.dataset.block ? null : block.dataset.block, { scrollPicture: true });
  });
}
for (const box of boxes) {
  box.addEventListener("click", () => {
    const again = chosen === box.dataset.block;
    if (!again && panes.dataset.shown === "picture" && narrow.matches) show("text");
    choose(again ? null : box.dataset.block, { scrollText: true });
  });
}

// --- matches ---

function toMatch(step, { quiet = false } = {}) {
  if (!matches.length) return false;
  matchAt = (matchAt + (step || 1) + matches.length) % matches.length;
  matches.forEach((node, at) => node.classList.toggle("is-now", at === matchAt));
  const match = matches[matchAt];
  match.scrollIntoView({ block: "center", behavior: quiet ? "instant" : "smooth" });
  const [block] = of(blocks, match.dataset.block);
  block?.scrollIntoView({ block: quiet ? "nearest" : "center", behavior: quiet ? "instant" : "smooth" });
  return true;
}

reader.querySelector("[data-next-match]")?.addEventListener("click", () => toMatch(1));

// --- narrow screens show one pane at a time ---

const narrow = matchMedia("(max-width: 900px)");

function show(name) {
  panes.dataset.shown = name;
  for (const button of reader.querySelectorAll(".tabs button")) {
    button.setAttribute("aria-pressed", String(button.dataset.show === name));
  }
  if (name === "picture" && chosen) of(boxes, chosen)[0]?.scrollIntoView({ block: "center" });
}

for (const button of reader.querySelectorAll(".tabs button")) {
  button.addEventListener("click", () => show(button.dataset.show));
}

// --- copy, download, read again ---

async function copy() {
  const source = reader.querySelector("[data-markdown]");
  const button = reader.querySelector("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(source.value);
  } catch {
    source.select(); // no clipboard over plain HTTP from another machine: the old way
    document.execCommand("copy");
  }
  button.querySelector("use").setAttribute("href", "/static/icons.svg#check");
  setTimeout(() => button.querySelector("use").setAttribute("href", "/static/icons.svg#copy"), 1600);
  note("Markdown copied").done(`Page ${number}`);
}

reader.querySelector("[data-copy]")?.addEventListener("click", copy);

const menu = reader.querySelector(".menu");
document.addEventListener("click", (event) => menu.contains(event.target) || menu.removeAttribute("open"));
menu.addEventListener("click", (event) => event.target.closest("a") && menu.removeAttribute("open"));

const dialog = document.querySelector(".reread");
const form = dialog.querySelector("form");
reader.querySelector("[data-reread]").addEventListener("click", () => dialog.showModal());
dialog.querySelector("[data-cancel]").addEventListener("click", () => dialog.close());
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const wish = Object.fromEntries([...new FormData(form)].filter(([, value]) => value));
  if (wish.dpi) wish.dpi = Number(wish.dpi);
  const said = dialog.querySelector(".reread-failed");
  said.hidden = true;
  try {
    await post(`/api/documents/${documentId}/retry`, wish);
    dialog.close();
    waiting = note("Reading again");
    waiting.done("The new text shows here when it is there");
    awaited = true;
  } catch (error) {
    said.textContent = [error.message, error.remedy].filter(Boolean).map(sentence).join(" ");
    said.hidden = false;
  }
});

reader.querySelector("[data-retry]")?.addEventListener("click", async (event) => {
  event.target.disabled = true;
  try {
    await post(`/api/documents/${documentId}/retry`);
    location.reload();
  } catch (error) {
    event.target.disabled = false;
    note("Not queued").failed(sentence(error.message));
  }
});

// --- a page that is not read yet, or read anew ---

let waiting = null;
let awaited = state === "pending" || state === "reading";

async function look() {
  const page = await get(`/api/documents/${documentId}/pages/${number}`);
  const isRead = page.state === "done" || page.state === "blank" || page.state === "failed";
  if (isRead && (page.state !== state || String(page.provenance?.read_at ?? "") !== readAt)) location.reload();
}

onStatus((kind, value) => {
  if (!awaited || kind !== "documents") return;
  if (value.more || value.documents.some((one) => String(one.id) === documentId)) look().catch(() => {});
});

// --- the way back ---

// To the search as it was, with its filters and page.
if (document.referrer.startsWith(`${location.origin}/?`)) reader.querySelector(".reader-back").href = document.referrer;

// --- the keyboard ---

function step(by) {
  const at = blocks.findIndex((block) => block.dataset.block === chosen);
  const next = blocks[at < 0 ? (by > 0 ? 0 : blocks.length - 1) : at + by];
  if (next) choose(next.dataset.block, { scrollText: true, scrollPicture: true, focus: true });
}

function follow(selector) {
  const link = reader.querySelector(selector);
  if (!link) return false;
  link.click();
  return true;
}

bind(["j", "ArrowDown"], (event) => (event.key === "j" || chosen !== null ? step(1) : false));
bind(["k", "ArrowUp"], (event) => (event.key === "k" || chosen !== null ? step(-1) : false));
bind("ArrowRight", () => follow("a[rel=next][href]"));
bind("ArrowLeft", () => follow("a[rel=prev][href]"));
bind("n", () => toMatch(1));
bind("N", () => toMatch(-1));
bind("c", () => void copy());
bind("Enter", (event) => {
  const block = event.target.closest?.(".block");
  if (!block) return false;
  choose(block.dataset.block, { scrollPicture: true });
  if (narrow.matches) show("picture");
});
bind("Escape", (event) => {
  if (menu.open) return menu.removeAttribute("open");
  if (event.target.closest("input")) return event.target.blur();
  if (chosen !== null) return choose(null);
  follow(".reader-back");
});

// Only now does a click do something.
for (const button of reader.querySelectorAll("[data-copy], [data-reread]")) button.disabled = false;

// Last, as it uses all of the above: the picture may be there already.
if (picture.complete && picture.naturalWidth) loaded();
else if (picture.complete && picture.currentSrc) failed();
picture.addEventListener("load", loaded, { once: true });
picture.addEventListener("error", failed, { once: true });
