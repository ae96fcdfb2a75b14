// Sets the remembered theme before anything is drawn. Not a module: modules run too late for that.
(() => {
  const KEY = "ocrd-theme";
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try {
    chosen = localStorage.getItem(KEY);
  } catch {
    // Storage may be forbidden; then the system's choice stands.
  }
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  const shown = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");

  const label = (button) => {
    button.querySelector("use").setAttribute("href", `/static/icons.svg#${shown() === "dark" ? "sun" : "moon"}`);
    button.setAttribute("aria-label", shown() === "dark" ? "Switch to light" : "Switch to dark");
  };

  addEventListener("DOMContentLoaded", () => {
    const button = document.querySelector("[data-theme-toggle]");
    if (!button) return;
    label(button);
    dark.addEventListener("change", () => label(button));
    button.addEventListener("click", () => {
      const next = shown() === "dark" ? "light" : "dark";
      root.dataset.theme = next;
      try {
        localStorage.setItem(KEY, next);
      } catch {
        // Remembered for this page only.
      }
      label(button);
    });
  });
})();
