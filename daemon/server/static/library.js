// The library: documents page by page, filtered and sorted, and changing as they are read.

import { get } from "./api.js";
import { blank, bones, debounced, el, icon, sentence, trouble } from "./dom.js";
import { STATES, ago, count, plural, size, when } from "./format.js";
import { suggestFolders } from "./folders.js";
import { alongList, bind } from "./keys.js";
import { note } from "./notes.js";
import { remedyButton, withCode } from "./remedy.js";
import { onStatus } from "./shell.js";
import { onUploaded, send } from "./upload.js";

const PER_PAGE = 50;
const TYPING_MS = 160;
const LIVE_MS = 400;

const form = document.querySelector(".library-filters");
const fields = form.elements;
const states = form.querySelector(".states");
const list = document.querySelector(".documents");
const more = document.querySelector("[data-more]");
const said = document.querySelector("[data-said]");

const rows = new Map(); // document id → its row
let state = "";
let cursor = null;
let asking = null;

// --- the address ---

function readAddress() {
  const query = new URLSearchParams(location.search);
  state = query.get("state") ?? "";
  for (const name of ["name", "folder"]) fields[name].value = query.get(name) ?? "";
  fields.sort.value = query.get("sort") ?? "added";
  if (!fields.sort.value) fields.sort.value = "added";
}

function address() {
  const query = new URLSearchParams();
  const wished = { state, name: fields.name.value.trim(), folder: fields.folder.value.trim(), sort: fields.sort.value };
  for (const [name, value] of Object.entries(wished)) if (value && value !== "added") query.set(name, value);
  return query.size ? `/library?${query}` : "/library";
}

// --- asking ---

function values() {
  const [sort, order = "desc"] = fields.sort.value.split("-");
  return { sort, order, state, name: fields.name.value.trim(), folder: fields.folder.value.trim(), limit: PER_PAGE };
}

async function load({ push = false } = {}) {
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  if (address() !== location.pathname + location.search) history[push ? "pushState" : "replaceState"](null, "", address());
  if (!rows.size) list.replaceChildren(bones(5));
  try {
    const first = await fetchPage(null, signal);
    rows.clear();
    list.replaceChildren();
    append(first.documents);
    cursor = first.next;
    if (!rows.size) list.replaceChildren(nothing());
    said.textContent = cursor ? `The first ${plural(rows.size, "document")}` : plural(rows.size, "document");
  } catch (error) {
    if (error.name === "AbortError") return;
    rows.clear();
    list.replaceChildren(trouble(error, () => load()));
    cursor = null;
  }
  more.hidden = cursor === null;
}

/** A page of documents; the server may answer with none although more follow. */
async function fetchPage(from, signal) {
  let answer = await get("/api/documents", { ...values(), cursor: from }, signal);
  while (!answer.documents.length && answer.next) {
    answer = await get("/api/documents", { ...values(), cursor: answer.next }, signal);
  }
  return answer;
}

async function loadMore() {
  more.disabled = true;
  try {
    const { documents, next } = await fetchPage(cursor);
    append(documents);
    cursor = next;
    said.textContent = `${plural(documents.length, "more document")}`;
  } catch (error) {
    note("No more documents").failed(sentence(error.message));
  }
  more.disabled = false;
  more.hidden = cursor === null;
}

function append(documents) {
  for (const document of documents) {
    if (rows.has(document.id)) continue;
    const row = draw(document);
    rows.set(document.id, row);
    list.append(row);
  }
}

// --- a row ---

function draw(document) {
  const problem = document.error && document.state !== "done" && document.state !== "queued";
  return el(
    "article.document",
    { data: { id: document.id, state: document.state } },
    el("span.kind", { "aria-hidden": "true" }, kind(document)),
    el(
      "div.document-name",
      {},
      el("a", { href: `/documents/${document.id}`, title: document.path }, document.name),
      problem
        ? el("p", { title: document.error.remedy }, el("span.is-bad", {}, sentence(document.error.message)), " ", ...withCode(sentence(document.error.remedy)))
        : el("p", { title: document.path }, document.title ? `${document.title} · ${document.folder}` : document.folder),
    ),
    pages(document),
    el("span.document-size.number", {}, size(document.size)),
    el("time.document-when", { title: when(document.added_at), datetime: new Date(document.added_at * 1000).toISOString() }, ago(document.added_at)),
    el("div.document-end", {}, again(document)),
  );
}

function kind(document) {
  const [, type = ""] = (document.media_type ?? "").split("/");
  return (type || document.name.split(".").pop()).slice(0, 4).toUpperCase();
}

function pages(document) {
  const { state: now, pages: all, pages_done: done, pages_failed: failed } = document;
  if (now === "done" && !failed) return el("div.document-pages.number", {}, plural(all, "page"));
  if (now === "failed" || now === "needs_password" || now === "missing") {
    return el("div.document-pages", {}, el("span.chip", { class: `chip ${now === "missing" ? "" : "is-bad"}` }, now === "needs_password" ? icon("lock") : null, STATES[now]));
  }
  if (now === "done") return el("div.document-pages.number", {}, `${count(done)} of ${plural(all, "page")}, `, el("span.chip.is-bad", {}, `${count(failed)} failed`));
  const bar = el("span");
  bar.style.width = all ? `${(100 * (done + failed)) / all}%` : "0";
  return el(
    "div.document-pages.number",
    {},
    el("span.document-state", {}, now === "running" ? el("span.dot.is-live", { "aria-hidden": "true" }) : null, STATES[now], all ? el("span.muted", {}, `${count(done)} of ${count(all)}`) : null),
    el("div.track.is-thin", { hidden: now !== "running" && !done }, bar),
  );
}

function again(document) {
  if (document.state !== "failed" && document.state !== "needs_password" && !document.pages_failed) return null;
  return remedyButton(document, replace);
}

function replace(document) {
  const old = rows.get(document.id);
  const row = draw(document);
  const focused = old.contains(window.document.activeElement) ? window.document.activeElement.tagName : null;
  old.replaceWith(row);
  rows.set(document.id, row);
  if (focused) row.querySelector(focused)?.focus();
}

function nothing() {
  if (state || fields.name.value || fields.folder.value) {
    const clear = () => {
      state = "";
      fields.name.value = fields.folder.value = "";
      markState();
      load({ push: true });
    };
    return blank("library", "No document fits", "None has this state, name or folder.", el("button.button", { type: "button", onclick: clear }, "Show all"));
  }
  return blank("upload", "Nothing here yet", "Drop PDFs or pictures anywhere on this page, or add them above.", "A folder can also be watched:", el("p", {}, el("code", {}, "ocrd watch ~/Scans --serve")));
}

// --- states to choose from ---

function drawStates(counts) {
  const shown = [["", "All", counts.total], ...Object.entries(STATES).map(([name, text]) => [name, text, counts[name]])];
  states.replaceChildren(
    ...shown
      .filter(([name, , found]) => !name || found || name === state)
      .map(([name, text, found]) => el("button", { type: "button", data: { state: name }, "aria-pressed": String(name === state) }, text, el("span.number", {}, count(found)))),
  );
  document.querySelector("[data-total]").textContent = counts.pages_total ? `${plural(counts.pages_done, "page")} read of ${count(counts.pages_total)}` : "";
}

function markState() {
  for (const button of states.children) button.setAttribute("aria-pressed", String(button.dataset.state === state));
}

states.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  state = button.dataset.state;
  markState();
  load({ push: true });
});

// --- what changes meanwhile ---

const refresh = debounced(load, LIVE_MS);

onStatus((kindOf, value) => {
  if (kindOf === "status") {
    const pressed = states.contains(document.activeElement) ? document.activeElement.dataset.state : null;
    drawStates(value.counts);
    if (pressed !== null) states.querySelector(`[data-state="${pressed}"]`)?.focus();
  }
  if (kindOf === "documents") {
    if (value.more) return refresh();
    for (const one of value.documents) arrive(one);
  }
});

function arrive(document) {
  if (rows.has(document.id)) return replace(document);
  // On top where it belongs there; a filter or another order needs the server's word.
  const isPlain = !state && !fields.name.value && !fields.folder.value && fields.sort.value === "added";
  if (!isPlain) return state ? refresh() : undefined;
  const row = draw(document);
  row.classList.add("is-new");
  if (!rows.size) list.replaceChildren();
  rows.set(document.id, row);
  list.prepend(row);
}

onUploaded(arrive);

// --- what people do ---

const typed = debounced(load, TYPING_MS);
fields.name.addEventListener("input", () => typed());
fields.folder.addEventListener("input", () => typed());
fields.sort.addEventListener("change", () => load({ push: true }));
form.addEventListener("submit", (event) => {
  event.preventDefault();
  typed.now({ push: true });
});
more.addEventListener("click", loadMore);
document.querySelector("[data-choose]").addEventListener("change", (event) => {
  send(event.target.files);
  event.target.value = "";
});
addEventListener("popstate", () => {
  readAddress();
  markState();
  load();
});
alongList(
  () => [...list.querySelectorAll(".document-name a")],
  () => fields.name.focus(),
);
bind("Escape", (event) => {
  if (event.target === fields.name && fields.name.value) {
    fields.name.value = "";
    return load({ push: true });
  }
  document.activeElement?.blur();
});

suggestFolders(fields.folder);
readAddress();
load();
