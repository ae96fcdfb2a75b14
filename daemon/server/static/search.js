// The search page: asks as you type, shows what was found, and keeps the address telling what is shown.

import { get } from "./api.js";
import { blank, bones, debounced, el, trouble } from "./dom.js";
import { suggestFolders } from "./folders.js";
import { plural, reader } from "./format.js";
import { alongList, bind } from "./keys.js";
import { onStatus } from "./shell.js";

const PER_PAGE = 20;
const TYPING_MS = 140;
const DAY_S = 86_400;
const STALE = { missing: "File gone", superseded: "Being read again" };

const form = document.querySelector("form.search");
const fields = form.elements;
const dates = form.querySelector(".dates");
const said = document.querySelector(".said");
const answers = document.querySelector(".answers");
const pager = document.querySelector(".pager");

let page = 1;
let asking = null;
let library = null; // the last status: is there anything to search?

// --- the address ---

function wishes() {
  const wished = { q: fields.q.value.trim(), folder: fields.folder.value.trim(), since: fields.since.value, engine: fields.engine.value };
  if (wished.since === "dates") Object.assign(wished, { from: fields.from.value, until: fields.until.value });
  return wished;
}

function address(wished, number) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(wished)) if (value) query.set(name, value);
  if (number > 1) query.set("page", number);
  return query.size ? `/?${query}` : "/";
}

function readAddress() {
  const query = new URLSearchParams(location.search);
  for (const name of ["q", "folder", "since", "from", "until"]) fields[name].value = query.get(name) ?? "";
  choose(fields.engine, query.get("engine") ?? "");
  if (!fields.since.value) fields.since.value = "";
  dates.hidden = fields.since.value !== "dates";
  page = Math.max(1, Number.parseInt(query.get("page"), 10) || 1);
}

/** Choose a value of a list that may not have been filled yet. */
function choose(list, value) {
  if (value && ![...list.options].some((option) => option.value === value)) list.add(new Option(reader(value), value));
  list.value = value;
}

/** Times in seconds of what was chosen; days are the reader's own. */
function times(wished) {
  if (wished.since === "dates") {
    const start = (text, days) => (text ? new Date(`${text}T00:00`).getTime() / 1000 + days * DAY_S : "");
    return { since: start(wished.from, 0), until: start(wished.until, 1) };
  }
  return { since: wished.since ? Math.floor(Date.now() / 1000 - wished.since * DAY_S) : "" };
}

// --- asking ---

async function search({ push = false } = {}) {
  const wished = wishes();
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  const url = address(wished, page);
  if (url !== location.pathname + location.search) history[push ? "pushState" : "replaceState"](null, "", url);
  document.title = wished.q ? `${wished.q} · ocrd` : "Search · ocrd";
  if (!wished.q) return showStart();
  answers.setAttribute("aria-busy", "true");
  if (!answers.querySelector(".hit")) answers.replaceChildren(bones(4));
  try {
    const { q, folder, engine } = wished;
    const values = { q, folder, engine, ...times(wished), limit: PER_PAGE, offset: (page - 1) * PER_PAGE };
    show(await get("/api/search", values, signal), wished);
  } catch (error) {
    if (error.name === "AbortError") return;
    said.textContent = "";
    pager.hidden = true;
    answers.replaceChildren(trouble(error, () => search()));
  }
  answers.removeAttribute("aria-busy");
}

function show(answer, wished) {
  const { hits, note, next } = answer;
  answers.replaceChildren(...(hits.length ? hits.map((hit) => entry(hit, wished.q)) : [showNothing(wished, note)]));
  said.textContent = [hits.length ? counted(hits.length, next) : "", note].filter(Boolean).join(". ");
  pager.hidden = page === 1 && next === null;
  const [before, , after] = pager.children;
  link(before, page > 1, wished, page - 1);
  link(after, next !== null, wished, page + 1);
  pager.children[1].textContent = `Page ${page}`;
}

function counted(found, next) {
  if (page === 1 && next === null) return plural(found, "page");
  const first = (page - 1) * PER_PAGE + 1;
  return `Pages ${first} to ${first + found - 1}, best first`;
}

function link(anchor, isOn, wished, number) {
  anchor.toggleAttribute("href", isOn);
  if (isOn) anchor.href = address(wished, number);
  anchor.setAttribute("aria-disabled", String(!isOn));
}

function entry(hit, q) {
  const number = hit.number === null ? "" : `page ${hit.number}${hit.label && hit.label !== String(hit.number) ? ` (printed ${hit.label})` : ""}`;
  const url = `/pages/${hit.page_id}?${new URLSearchParams({ q })}`;
  return el(
    "article.hit",
    {},
    el(
      "div.hit-head",
      {},
      el("a.hit-title", { href: url }, hit.name),
      el("span.hit-page.number", {}, number),
      STALE[hit.state] ? el("span.chip", {}, STALE[hit.state]) : null,
    ),
    el("p.hit-where", { title: hit.paths.join("\n") }, where(hit)),
    el("p.hit-snippet", { dir: "auto" }, hit.snippet.map((piece) => (piece.match ? el("mark", {}, piece.text) : piece.text))),
  );
}

function where(hit) {
  const folder = hit.path.slice(0, -hit.name.length).replace(/\/$/, "") || "/";
  return hit.paths.length > 1 ? `${folder}, and ${plural(hit.paths.length - 1, "copy", "copies")}` : folder;
}

// --- nothing to show ---

function showNothing(wished, note) {
  if (note && !wished.q.match(/[\p{L}\p{N}]/u)) return blank("search", "Nothing to look for", "Type a word, a number or a part of a name.");
  const isFiltered = wished.folder || wished.since || wished.engine;
  const drop = () => {
    for (const name of ["folder", "since", "engine"]) fields[name].value = "";
    dates.hidden = true;
    restart({ push: true });
  };
  return blank(
    "search",
    `No page has “${wished.q}”`,
    isFiltered ? "The filters may hide some." : "All words must be on one page. Fewer words find more, and a star stands for any ending: harb*",
    isFiltered ? el("button.button", { type: "button", onclick: drop }, "Search without filters") : null,
  );
}

function showStart() {
  said.textContent = "";
  pager.hidden = true;
  answers.removeAttribute("aria-busy");
  if (library && library.counts.total === 0) {
    return answers.replaceChildren(
      blank("upload", "The library is empty", "Drop a PDF or a picture anywhere on this page.", "Or watch a folder:", el("p", {}, el("code", {}, "ocrd watch ~/Scans --serve"))),
    );
  }
  const hints = [
    ["harbour ledger", "pages with both words"],
    ["\"water damage\"", "these words in this order"],
    ["harb*", "harbour, harbours, harbinger"],
  ];
  const read = library?.counts ? `${plural(library.counts.pages_done, "page")} of ${plural(library.counts.total, "file")} can be found.` : "";
  const type = (text) => {
    fields.q.value = text;
    fields.q.focus();
    restart({ push: true });
  };
  const hint = ([typed, meaning]) => [el("dt", {}, el("button", { type: "button", onclick: () => type(typed) }, typed)), el("dd", {}, meaning)];
  answers.replaceChildren(el("div.starting", {}, el("p.muted", {}, read), el("dl.hints", {}, hints.map(hint))));
}

// --- what people do ---

function restart(options) {
  page = 1;
  search(options);
}

const typed = debounced(restart, TYPING_MS);

fields.q.addEventListener("input", () => typed());
fields.folder.addEventListener("input", () => typed());
for (const name of ["since", "engine", "from", "until"]) {
  fields[name].addEventListener("change", () => {
    dates.hidden = fields.since.value !== "dates";
    restart({ push: true });
  });
}
form.addEventListener("submit", (event) => {
  event.preventDefault();
  typed.now({ push: true });
});
pager.addEventListener("click", (event) => {
  const anchor = event.target.closest("a[href]");
  if (!anchor || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  page += Number(anchor.dataset.step);
  search({ push: true }).then(() => scrollTo({ top: 0 }));
});
addEventListener("popstate", () => {
  readAddress();
  search();
});

alongList(
  () => [...answers.querySelectorAll(".hit-title")],
  () => fields.q.focus(),
);
fields.q.addEventListener("keydown", (event) => {
  if (event.key !== "ArrowDown") return;
  const first = answers.querySelector(".hit-title");
  if (!first) return;
  event.preventDefault();
  first.focus();
});
bind("Escape", () => {
  if (document.activeElement === fields.q && fields.q.value) {
    fields.q.value = "";
    return restart({ push: true });
  }
  if (document.activeElement === fields.q) return fields.q.blur();
  fields.q.focus();
  fields.q.select();
});

onStatus((kind, value) => {
  if (kind !== "status") return;
  const wasEmpty = library === null || library.counts.total !== value.counts.total || library.counts.pages_done !== value.counts.pages_done;
  library = value;
  if (wasEmpty && !fields.q.value.trim()) showStart();
});

async function fillFilters() {
  const { engines } = await get("/api/facets");
  for (const engine of engines) choose(fields.engine, engine);
  choose(fields.engine, new URLSearchParams(location.search).get("engine") ?? "");
}

suggestFolders(fields.folder);
readAddress();
search();
fillFilters().catch(() => {}); // the search works without
