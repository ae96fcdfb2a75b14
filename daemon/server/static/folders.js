// Suggests folders to filter by: those at the top, and below one as soon as it is typed or chosen.

import { get } from "./api.js";
import { el } from "./dom.js";

/** Have `field` suggest folders through its datalist. Without an answer it stays a plain field. */
export function suggestFolders(field) {
  const list = field.list;
  const known = new Map(); // path → the folders below it have been asked for
  const ask = async (below) => {
    known.set(below, true);
    const { folders } = await get("/api/folders", { below });
    for (const { path } of folders) {
      if (known.has(path)) continue;
      known.set(path, false);
      list.append(el("option", { value: path }));
    }
  };
  field.addEventListener("focus", () => ask("").catch(() => {}), { once: true });
  field.addEventListener("input", () => {
    if (known.get(field.value) === false) ask(field.value).catch(() => {});
  });
}
