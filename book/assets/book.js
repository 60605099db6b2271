// Small helps; every page reads in full without them.
(() => {
  // A box that scrolls can be reached by keyboard; one that does not is no stop on the way.
  const boxes = [...document.querySelectorAll(".math-scroll, .attn-scroll")];
  const stops = () => {
    // All is measured before anything is changed: else the browser lays out the page again for each box.
    const scrolls = boxes.map((box) => box.scrollWidth > box.clientWidth);
    boxes.forEach((box, at) => {
      if (!scrolls[at]) box.removeAttribute("tabindex");
      else if (box.tabIndex !== 0) box.tabIndex = 0;
    });
  };
  addEventListener("resize", stops);
  document.fonts?.ready.then(stops);
  stops();

  for (const button of document.querySelectorAll(".print-button")) button.addEventListener("click", () => print());

  // The theme button says what is set now; the theme's own script changes the setting.
  const root = document.documentElement;
  const words = { auto: "as the system", light: "light", dark: "dark" };
  const say = () => {
    for (const button of document.querySelectorAll(".theme-switch-button")) {
      const label = `Colours: ${words[root.dataset.mode] || words.auto}`;
      button.setAttribute("aria-label", label);
      button.title = label;
    }
  };
  new MutationObserver(say).observe(root, { attributes: true, attributeFilter: ["data-mode"] });
  say();

  // Only the browser knows where this site lies: it writes the address into the lines that install attnlib.
  const button = document.querySelector(".notebook-button");
  const site = button?.href.split("_sources/")[0];
  const here = (text) => text.replaceAll("https://SITE/", site).replace(/ \(for SITE, [^)]*\)/, "");
  if (document.querySelector('main a[href$=".whl"]')) {
    const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.data = here(texts.currentNode.data);
  }
  const fill = async (event) => {
    if (!location.protocol.startsWith("http")) return; // a page opened as a file may not read another
    event.preventDefault();
    try {
      const notebook = here(await (await fetch(button.href)).text());
      button.download = button.href.split("/").pop();
      button.href = URL.createObjectURL(new Blob([notebook], { type: "application/json" }));
    } finally {
      button.click();
    }
  };
  button?.addEventListener("click", fill, { once: true });

  // On paper, folded parts are open.
  const folded = () => document.querySelectorAll("main details:not([open])");
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...folded()];
    for (const part of opened) part.open = true;
  });
  addEventListener("afterprint", () => {
    for (const part of opened) part.open = false;
  });

  // A link into a folded part opens it.
  const open = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let part = target && target.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
    if (target && target.closest("details")) target.scrollIntoView();
  };
  addEventListener("hashchange", open);
  open();
})();
