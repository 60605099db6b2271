// Runs before anything is drawn: the theme that the reader chose, or the one of the system.
(() => {
  const root = document.documentElement;
  let mode = "auto";
  try {
    mode = localStorage.getItem("mode") || "auto";
  } catch {
    // storage is switched off: follow the system
  }
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.mode = mode;
  root.dataset.theme = mode === "auto" ? (dark ? "dark" : "light") : mode;
  root.classList.add("js");
})();
