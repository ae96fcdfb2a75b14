// Short notes at the edge of the page, read out by screen readers as they appear.

import { el, icon } from "./dom.js";

const STAYS_MS = 6000;

/** A note titled `title`; `progress(share)`, `done(text, link)` and `failed(text)` change it. */
export function note(title, { progress = false } = {}) {
  const bar = el("span");
  const track = el("div.track.is-thin", { hidden: !progress }, bar);
  const said = el("p", { hidden: true });
  const close = el("button.icon-button", { type: "button", "aria-label": "Dismiss", onclick: () => box.remove() }, icon("close"));
  const box = el("div.note", {}, el("div.note-head", {}, el("span", { title }, title), close), track, said);
  document.querySelector(".notes").append(box);
  const say = (text, link) => {
    track.hidden = true;
    said.hidden = false;
    said.replaceChildren(text, ...(link ? [". ", el("a", { href: link.href }, link.text)] : []));
  };
  return {
    progress: (share) => (bar.style.width = `${Math.round(share * 100)}%`),
    done: (text, link) => {
      say(text, link);
      setTimeout(() => box.remove(), STAYS_MS);
    },
    failed: (text) => {
      box.classList.add("is-bad");
      say(text);
    },
  };
}
