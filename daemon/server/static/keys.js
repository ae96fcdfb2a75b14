// The keyboard: single keys that work wherever nobody is typing, and moving along a list.

const bindings = new Map();

/** `run(event)` when `key` is pressed outside of fields. The last one bound wins; return false to let it pass. */
export function bind(keys, run) {
  for (const key of [keys].flat()) bindings.set(key, run);
}

/** Whether the key goes into a field. */
export function isTyping(target) {
  return target.closest?.("input:not([type=checkbox], [type=radio], [type=button]), select, textarea, [contenteditable]") !== null;
}

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]")) return;
  if (isTyping(event.target) && event.key !== "Escape") return;
  const run = bindings.get(event.key);
  if (run && run(event) !== false) event.preventDefault();
});

/** j, k and the arrows move the focus along what `items()` gives. `onFirst` is called above the first. */
export function alongList(items, onFirst = () => {}) {
  const move = (step) => {
    const all = items();
    if (!all.length) return false;
    const at = all.indexOf(document.activeElement);
    if (at === 0 && step < 0) {
      onFirst();
      return true;
    }
    const next = all[at < 0 ? 0 : Math.min(all.length - 1, at + step)];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
    return true;
  };
  bind(["j", "ArrowDown"], () => move(1));
  bind(["k", "ArrowUp"], () => move(-1));
}
