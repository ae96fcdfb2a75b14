// What every page has: help, the way to the search, the live sign in the bar, and files dropped anywhere.

import { get, listen } from "./api.js";
import { plural } from "./format.js";
import { bind } from "./keys.js";
import { acceptDrops } from "./upload.js";

const help = document.querySelector("dialog.help");
document.querySelector("[data-help]")?.addEventListener("click", () => help.showModal());
bind("?", () => help.showModal());
bind("/", () => {
  const field = document.querySelector("input[type=search]");
  if (!field) return location.assign("/");
  field.focus();
  field.select();
});

const hearers = new Set();

/** Be told of the status now and whenever it changes, and of documents that did. */
export function onStatus(hear) {
  hearers.add(hear);
}

const pulse = document.querySelector(".pulse");

function show(status) {
  if (!pulse) return;
  const { counts, state, reading } = status;
  const open = counts.waiting;
  const text = {
    running: reading.length ? `Reading, ${plural(open, "file")} to go` : `${plural(open, "file")} waiting`,
    paused: "Paused",
    idle: counts.failed + counts.needs_password ? "Up to date" : "All read",
    stopped: open ? `${plural(open, "file")} waiting` : "Not watching",
  }[state];
  pulse.hidden = false;
  pulse.querySelector(".pulse-text").textContent = text;
  pulse.querySelector(".dot").classList.toggle("is-live", state === "running");
  pulse.querySelector(".dot").classList.remove("is-bad");
}

function tell(kind, value) {
  for (const hear of hearers) hear(kind, value);
}

function connected(isConnected) {
  tell("connected", isConnected);
  if (isConnected || !pulse) return;
  pulse.hidden = false;
  pulse.querySelector(".pulse-text").textContent = "No connection";
  pulse.querySelector(".dot").classList.remove("is-live");
  pulse.querySelector(".dot").classList.add("is-bad");
}

function begin() {
  const update = (status) => {
    show(status);
    tell("status", status);
  };
  get("/api/status").then(update, (error) => tell("error", error));
  listen("/api/events", { status: update, documents: (changed) => tell("documents", changed) }, connected);
  acceptDrops();
}

begin();
