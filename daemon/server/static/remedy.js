// What a person can do about a document that failed: have it tried again, or give its password.

import { post } from "./api.js";
import { el, icon, sentence } from "./dom.js";
import { note } from "./notes.js";

const said = (error) => [error.message, error.remedy].filter(Boolean).map(sentence).join(" ");

/** The text with what stands between backticks as code. */
export function withCode(text) {
  return text.split("`").map((piece, number) => (number % 2 ? el("code", {}, piece) : piece));
}

/** A button that helps `document`; `onDone` hears the document as it is then, or as it was. */
export function remedyButton(document, onDone, { small = true } = {}) {
  const isLocked = document.state === "needs_password";
  const run = isLocked ? () => unlock(document, onDone) : (event) => retry(document, onDone, event.currentTarget);
  return el(
    `button.button${small ? ".is-small" : ".is-main"}`,
    { type: "button", onclick: run, "aria-label": isLocked ? `Unlock ${document.name}` : `Try ${document.name} again` },
    icon(isLocked ? "lock" : "again"),
    isLocked ? "Unlock…" : "Try again",
  );
}

async function retry(document, onDone, button) {
  button.disabled = true;
  try {
    const now = await post(`/api/documents/${document.id}/retry`);
    note(document.name).done("Queued again");
    onDone(now);
  } catch (error) {
    note(document.name).failed(said(error));
    button.disabled = false;
    onDone(document);
  }
}

function unlock(document, onDone) {
  const field = el("input.field", { id: "password", type: "password", autocomplete: "off", required: true });
  const failed = el("p.dialog-said", { role: "alert" });
  const send = async (event) => {
    event.preventDefault();
    try {
      const now = await post(`/api/documents/${document.id}/retry`, { password: field.value });
      dialog.close();
      note(document.name).done("Tried again with the password");
      onDone(now);
    } catch (error) {
      failed.textContent = said(error);
    }
  };
  const dialog = el(
    "dialog",
    { "aria-labelledby": "unlock-title", onclose: () => dialog.remove() },
    el("h2", { id: "unlock-title" }, `Unlock ${document.name}`),
    el(
      "form",
      { onsubmit: send },
      el("label.label", { for: "password" }, "Password"),
      field,
      failed,
      el(
        "div.dialog-end",
        {},
        el("button.button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
        el("button.button.is-main", { type: "submit" }, "Unlock"),
      ),
    ),
  );
  window.document.body.append(dialog);
  dialog.showModal();
}
