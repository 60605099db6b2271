// Brings the widgets of a static page to life. No kernel: the page's HTML carries each widget's first state.
(() => {
  const here = new URL(".", document.currentScript.src);
  const known = /^[a-z_]+$/;

  // What anywidget hands to a module, as far as our modules use it.
  const modelOf = (state) => {
    const values = { state, result: {} };
    const listeners = {};
    return {
      get: (key) => values[key],
      set: (key, value) => {
        values[key] = value;
        for (const listener of [...(listeners[`change:${key}`] ?? [])]) listener();
      },
      save_changes: () => {},
      on: (event, listener) => (listeners[event] ??= []).push(listener),
      off: (event, listener) => (listeners[event] = (listeners[event] ?? []).filter((one) => one !== listener)),
    };
  };

  // Pages opened as files may not import modules; there the same code comes as a plain script.
  const load = (name) =>
    location.protocol === "file:"
      ? new Promise((done, fail) => {
          const script = document.createElement("script");
          script.src = new URL(`${name}.plain.js`, here);
          script.onload = () => done(globalThis.attnWidgets[name]);
          script.onerror = () => fail(new Error(`${name} did not load`));
          document.head.append(script);
        })
      : import(new URL(`${name}.js`, here)).then((module) => module.default);

  const start = async (place) => {
    const name = place.dataset.widget;
    if (!known.test(name)) return;
    try {
      const widget = await load(name);
      const live = document.createElement("div");
      live.className = "attn-live-place";
      const model = modelOf(JSON.parse(place.dataset.state));
      widget.render({ model, el: live });
      place.append(live);
      if (!live.querySelector(".attn-unusable")) place.classList.add("attn-started");
      place.model = model;
    } catch (error) {
      // The static picture stays where it is.
      console.error(error);
    }
  };

  const begin = () => document.querySelectorAll(".attn-widget[data-widget]").forEach(start);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
