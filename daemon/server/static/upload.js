// Files dropped anywhere on a page, or chosen: sent one after another, each with its progress.

import { upload } from "./api.js";
import { el, icon, sentence } from "./dom.js";
import { note } from "./notes.js";

const hearers = new Set();
let last = Promise.resolve();

/** Be told of each document that was sent. */
export function onUploaded(hear) {
  hearers.add(hear);
}

/** Send files; one at a time, so that each shows honest progress. */
export function send(files) {
  for (const file of files) {
    const shown = note(file.name, { progress: true });
    last = last.then(() => sendOne(file, shown));
  }
}

async function sendOne(file, shown) {
  try {
    const answer = await upload("/api/documents", file, shown.progress);
    shown.done(answer.known ? "The library already has this content" : "Sent; it will be read in its turn", {
      href: "/library",
      text: "See the library",
    });
    for (const hear of hearers) hear(answer.document);
  } catch (error) {
    shown.failed(sentence(error.message) + (error.remedy ? ` ${sentence(error.remedy)}` : ""));
  }
}

/** Show where files may be dropped as soon as some are dragged over the page. */
export function acceptDrops() {
  const over = el("div.drop", { hidden: true, "aria-hidden": "true" }, icon("upload"), "Drop files to have them read");
  document.body.append(over);
  let depth = 0;
  const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
  const leave = () => {
    depth = 0;
    over.hidden = true;
  };
  addEventListener("dragenter", (event) => {
    if (!carriesFiles(event)) return;
    depth += 1;
    over.hidden = false;
  });
  addEventListener("dragleave", () => {
    depth -= 1;
    if (depth <= 0) leave();
  });
  addEventListener("dragover", (event) => carriesFiles(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    leave();
    send(event.dataTransfer.files);
  });
}
