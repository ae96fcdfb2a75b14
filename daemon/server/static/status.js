// The status page: what happens now, what comes next, what failed, and how the last hours went.

import { get, post } from "./api.js";
import { draw } from "./chart.js";
import { debounced, el, icon, sentence, trouble } from "./dom.js";
import { STATES, ago, compact, count, duration, hour, plural } from "./format.js";
import { note } from "./notes.js";
import { remedyButton, withCode } from "./remedy.js";
import { onStatus } from "./shell.js";

const QUEUE_SHOWN = 8;
const FAILURES_SHOWN = 50;
const LIVE_MS = 500;
const CHART_MS = 60_000;

const at = (name) => document.querySelector(`[data-${name}]`);
const figure = (name) => document.querySelector(`[data-figure="${name}"]`);

let hoursShown = 24;
let hours = [];

// --- what happens now ---

const STAGES = { intake: "Opening", prepare: "Drawing the page", read: "Reading", save: "Saving", publish: "Writing Markdown and JSON" };
const TITLES = { running: "Reading", idle: "All read", paused: "Paused", stopped: "Not running" };

function show(status) {
  const { state, counts, pause, engine } = status;
  put(at("state"), state === "idle" && counts.failed + counts.needs_password ? "Up to date" : TITLES[state]);
  put(at("engine"), engine ? `with ${engine}` : "");
  put(at("said"), explained(state, counts, pause));
  const finished = counts.pages_done + counts.pages_failed;
  const share = counts.pages_total ? finished / counts.pages_total : 0;
  at("progress").setAttribute("aria-valuenow", Math.round(share * 100));
  at("progress").firstElementChild.style.width = `${100 * share}%`;
  at("figures").removeAttribute("aria-busy");
  figure("pages").replaceChildren(compact(counts.pages_done), el("small", {}, ` of ${compact(counts.pages_total)}`));
  put(figure("rate"), status.rate_pages_per_min ? count(Math.round(status.rate_pages_per_min)) : "–");
  put(figure("eta"), counts.waiting && status.eta_s ? duration(status.eta_s) : "–");
  put(figure("waiting"), compact(counts.waiting));
  put(figure("memory"), status.rss_mb ? `${count(Math.round(status.rss_mb))} MB` : "–");
  showReading(status);
  showRoots(status.roots);
}

/** Text, written only when it is another: what is read out is what changed. */
function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function explained(state, counts, pause) {
  if (state === "paused") return pause.map((one) => sentence(one.reason)).join(" ");
  if (state === "stopped") return counts.waiting ? `${plural(counts.waiting, "file")} waiting. Start \`ocrd watch\` to have them read.` : "Nothing is being watched. Start `ocrd watch FOLDER` to read a folder as it fills.";
  if (state === "idle") return `${counts.total ? finishedFiles(counts) : "No file yet"}. New ones are noticed as they arrive.`;
  return `${plural(counts.waiting, "file")} to go.`;
}

/** "22 files read, 4 failed, 2 locked". */
function finishedFiles({ done, failed, needs_password: locked }) {
  return [`${plural(done, "file")} read`, failed ? `${count(failed)} failed` : "", locked ? `${count(locked)} locked` : ""].filter(Boolean).join(", ");
}

function showReading({ reading, state }) {
  const rows = reading.map((one) =>
    el(
      "div.row",
      {},
      one.document_id ? el("a.row-name", { href: `/documents/${one.document_id}${one.page ? `?page=${one.page}` : ""}`, title: one.path }, one.name) : el("span.row-name", {}, one.name),
      el("span.row-end.number", {}, one.pages ? `page ${count(one.page ?? 1)} of ${count(one.pages)}` : ""),
      el("span.row-said", {}, STAGES[one.stage] ?? one.stage ?? "Opening"),
      one.pages > 1 && bar(one.pages_done / one.pages),
    ),
  );
  at("reading").replaceChildren(...(rows.length ? rows : [el("p.none", {}, state === "paused" ? "Nothing while it is paused." : "Nothing at the moment.")]));
}

function bar(share) {
  const inner = el("span");
  inner.style.width = `${100 * share}%`;
  return el("div.track.is-thin", {}, inner);
}

function showRoots(roots) {
  const shown = roots.filter((root) => root.watched || root.state !== "ok");
  at("roots").closest("section").hidden = !shown.length;
  at("roots").replaceChildren(
    ...shown.map((root) =>
      el(
        "div.row",
        {},
        el("span.row-name", { title: root.path }, root.path),
        el("span.row-end", {}, root.scanned_at ? `looked at ${ago(root.scanned_at)}` : ""),
        root.state === "ok"
          ? el("span.row-said", {}, root.mode === "polling" ? "Looked at from time to time" : "Watched")
          : el("span.row-said.is-bad", {}, sentence(root.message ?? "The folder is away")),
      ),
    ),
  );
}

// --- the queue and the failures ---

async function loadQueue() {
  const { documents } = await get("/api/documents", { state: "queued", sort: "added", order: "asc", limit: QUEUE_SHOWN });
  const rows = documents.map((one) =>
    el(
      "div.row",
      {},
      el("a.row-name", { href: `/documents/${one.id}`, title: one.path }, one.name),
      el("span.row-end.number", {}, one.pages ? plural(one.pages, "page") : ""),
      el("span.row-said", {}, `since ${ago(one.added_at)}`),
    ),
  );
  at("queue").replaceChildren(...(rows.length ? rows : [el("p.none", {}, "Nothing waits.")]));
}

async function loadFailures() {
  const { documents } = await get("/api/failures", { limit: FAILURES_SHOWN });
  const section = at("failures").closest("section");
  section.hidden = !documents.length;
  at("failures").replaceChildren(...documents.map(failure));
}

function failure(one) {
  const isPartly = one.state !== "failed" && one.state !== "needs_password";
  const said = one.error ? sentence(one.error.message) : isPartly ? `${plural(one.pages_failed, "page")} of ${count(one.pages)} could not be read.` : STATES[one.state];
  return el(
    "div.row",
    { data: { failed: one.id } },
    el("a.row-name", { href: `/documents/${one.id}`, title: one.path }, one.name),
    el("div.row-end", {}, remedyButton(one, () => refresh.now())),
    el("p.row-said", {}, el("span.is-bad", { class: "row-said is-bad" }, said), one.error?.remedy ? [" ", ...withCode(sentence(one.error.remedy))] : null),
  );
}

at("retry-all").addEventListener("click", async (event) => {
  event.currentTarget.disabled = true;
  try {
    const { documents } = await post("/api/retry-failed");
    note("Try all again").done(`${plural(documents, "file")} queued`);
  } catch (error) {
    note("Try all again").failed(sentence(error.message));
  }
  event.target.closest("button").disabled = false;
  refresh.now();
});

// --- charts ---

async function loadHours() {
  ({ hours } = await get("/api/stats/hours", { hours: hoursShown }));
  drawCharts();
}

function drawCharts() {
  const sum = (name) => hours.reduce((total, one) => total + one[name], 0);
  put(at("reads"), plural(sum("pages"), "page"));
  const passes = sum("target_passes");
  put(at("accepts"), passes ? `${(sum("accepted") / passes).toFixed(2)} of ${(sum("drafted") / passes).toFixed(2)} drafted` : "");
  draw(document.querySelector('[data-chart="pages"]'), hours, {
    kind: "columns",
    label: "Pages read hour by hour",
    value: (one) => one.pages,
    say: (one) => `${hour(one.start)}: ${plural(one.pages, "page")}`,
    empty: "No page was read in this time.",
  });
  draw(document.querySelector('[data-chart="accepted"]'), hours, {
    kind: "curve",
    label: "Accepted draft tokens per pass of the model, hour by hour",
    value: (one) => (one.target_passes ? one.accepted / one.target_passes : null),
    say: (one) => (one.target_passes ? `${hour(one.start)}: ${(one.accepted / one.target_passes).toFixed(2)} a pass, ${plural(one.tokens, "token")}` : `${hour(one.start)}: no model read`),
    empty: "No model read in this time. Classic engines and text layers need no drafts.",
  });
}

for (const button of document.querySelectorAll("[data-hours]")) {
  button.addEventListener("click", () => {
    hoursShown = Number(button.dataset.hours);
    for (const one of document.querySelectorAll("[data-hours]")) one.setAttribute("aria-pressed", String(one === button));
    loadHours().catch(() => {});
  });
}
addEventListener("resize", debounced(() => hours.length && drawCharts(), 150));

// --- keeping up ---

async function loadRest() {
  await Promise.all([loadQueue(), loadFailures()]);
}

function report(error) {
  at("trouble").replaceChildren(trouble(error, () => location.reload()));
}

const refresh = debounced(() => loadRest().catch(report), LIVE_MS);
const refreshCharts = debounced(() => loadHours().catch(() => {}), 2000);

onStatus((kind, value) => {
  if (kind === "status") {
    at("trouble").replaceChildren();
    show(value);
    refresh();
  }
  if (kind === "documents") {
    refresh();
    refreshCharts();
  }
  if (kind === "error") report(value);
  if (kind === "connected" && !value) put(at("said"), "The connection is lost; trying to get it back.");
});

refresh.now();
loadHours().catch(report);
setInterval(() => document.hidden || loadHours().catch(() => {}), CHART_MS);
