// A document that could not be opened, or was not yet: what can be done, and its pages as soon as there are any.

import { remedyButton } from "./remedy.js";
import { onStatus } from "./shell.js";

const { document: id, name, state } = document.querySelector("[data-document]").dataset;

if (state === "failed" || state === "needs_password") {
  document.querySelector("[data-remedy]").append(remedyButton({ id, name, state }, () => {}, { small: false }));
}

onStatus((kind, value) => {
  if (kind !== "documents") return;
  const now = value.documents.find((one) => String(one.id) === id);
  if (value.more || (now && (now.pages || now.state !== state))) location.reload();
});
