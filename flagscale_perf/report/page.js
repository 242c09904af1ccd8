"use strict";
(() => {
  const root = document.documentElement;
  let specs = JSON.parse(document.getElementById("charts").textContent);
  const narrow = () => window.innerWidth < 560;
  const chartOf = (name) => document.getElementById("chart-" + name);
  // Only these buttons: the library has one that sends a chart to a service.
  const configuration = () => ({
    responsive: true, displaylogo: false, displayModeBar: narrow() ? false : "hover", doubleClick: "reset", plotlyServerURL: "",
    modeBarButtons: [["zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
  });

  // Colours stand in the style sheet alone; a chart's "var(--name)" is looked up there, in places for colours only.
  function themed(value, key) {
    if (Array.isArray(value)) return value.map((one) => (one !== null && typeof one === "object" ? themed(one, key) : one));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, themed(one, name)]));
    }
    const found = typeof value === "string" && /color$/.test(key) && /^var\((--[a-z-]+)\)$/.exec(value);
    return found ? colour(found[1]) : value;
  }
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // A name keeps its ends where there is little room; what stands for a character ("&lt;") is not cut.
  const short = (name) => (name.length > 22 && !name.includes("&") ? name.slice(0, 8) + "\u2026" + name.slice(-13) : name);

  function layoutOf(spec) {
    const axis = { gridcolor: colour("--grid"), linecolor: colour("--rule"), zeroline: false, automargin: true, spikecolor: colour("--soft"), spikethickness: 1, spikedash: "dot" };
    const layout = themed(spec.layout, "");
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis/.test(key)) layout[key] = { ...axis, ...layout[key] };
      if (/^legend/.test(key)) {
        layout[key] = { orientation: "h", x: 0, xanchor: "left", yanchor: "bottom", bgcolor: "rgba(0,0,0,0)", ...layout[key] };
        layout[key].title.side = narrow() ? "top" : "left";
        layout[key].font = { size: narrow() ? 11 : 12 };
      }
    }
    if (narrow() && layout.yaxis?.type === "category") {
      const names = spec.data.flatMap((trace) => trace.y);
      layout.yaxis.labelalias = Object.fromEntries(names.map((name) => [name, short(name)]));
    }
    if (spec.sync && zoom) layout.xaxis.range = zoom;
    return {
      ...layout,
      height: layout.height + (narrow() ? 60 : 0),
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--soft") },
      hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--rule"), font: { color: colour("--ink"), size: 12 }, namelength: -1 },
      margin: { l: narrow() ? 44 : 62, r: 16, ...layout.margin },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--grey"), activecolor: colour("--accent") },
      uirevision: "kept",
    };
  }

  async function unpack() {
    const packed = Uint8Array.from(atob(document.getElementById("library").textContent), (letter) => letter.charCodeAt(0));
    const script = document.createElement("script");
    script.textContent = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
    document.head.append(script);
  }

  async function draw() {
    if (!window.Plotly) return;
    for (const [name, spec] of Object.entries(specs)) {
      const data = shown(name, themed(spec.data, ""));
      await Plotly.react(chartOf(name), data, layoutOf(spec), configuration());
    }
    link();
  }

  // A map of the ranks that a button chose stays chosen when the colours change, and so do runs with a ticked box.
  function shown(name, data) {
    const pressed = document.querySelector(`.switch[data-chart="${name}"] [aria-pressed="true"]`);
    if (pressed) data.forEach((trace, number) => { trace.visible = String(number) === pressed.dataset.trace; });
    if (narrow()) fit(data);
    const slots = slotsOfTicked();
    for (const trace of data) {
      if (trace.meta?.group === undefined) continue;
      const slot = slots.get(trace.meta.group);
      trace.visible = slot !== undefined;
      if (!trace.visible) continue;
      trace.line = { ...trace.line, color: colour(shadeOf(slot)), dash: DASHES[Math.floor(slot / SHADES.length) % DASHES.length] };
      trace.marker = { ...trace.marker, color: trace.line.color };
    }
    return data;
  }

  // Where there is little room a legend does not repeat what the ones above it have, and small cells have no figures.
  function fit(data) {
    const named = new Set();
    for (const trace of data) {
      if (trace.texttemplate && trace.x.length > 6) trace.texttemplate = "";
      if (trace.colorbar) trace.colorbar = { ...trace.colorbar, len: 130, title: { ...trace.colorbar.title, side: "top" } };
      if (trace.legend && named.has(trace.name)) trace.showlegend = false;
      named.add(trace.name);
    }
  }

  // A ticked run keeps its colour, and no other ticked one has it as long as there are enough.
  const SHADES = ["--blue", "--orange", "--green", "--red", "--sky", "--yellow", "--grey"];
  const DASHES = ["solid", "5px,3px", "2px,2px"];
  const shadeOf = (slot) => SHADES[slot % SHADES.length];
  const taken = new Map();
  function slotsOfTicked() {
    const boxes = [...document.querySelectorAll(".pick input")];
    for (const box of boxes) if (!box.checked) taken.delete(box.dataset.group);
    for (const box of boxes) {
      const group = box.dataset.group;
      if (box.checked && !taken.has(group)) {
        let slot = 0;
        while ([...taken.values()].includes(slot)) slot += 1;
        taken.set(group, slot);
      }
      box.style.accentColor = box.checked ? colour(shadeOf(taken.get(group))) : "";
    }
    return taken;
  }

  // One zoom for all charts over the iterations. It is kept here, for the library forgets those of our own relayout() on the next draw.
  let zoom = null;
  let isZooming = false;
  function link() {
    for (const source of linked()) {
      if (source.dataset.linked) continue;
      source.dataset.linked = "true";
      source.on("plotly_relayout", async (change) => {
        const whole = change["xaxis.autorange"];
        const range = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
        if (isZooming || (!whole && range[0] === undefined)) return;
        const all = specs[source.id.slice("chart-".length)].layout.xaxis.range;
        zoom = whole || String(range) === String(all) ? null : range;
        isZooming = true;
        const update = whole ? { "xaxis.autorange": true } : { "xaxis.range": range };
        await Promise.all(linked().filter((one) => one !== source).map((one) => Plotly.relayout(one, update)));
        isZooming = false;
      });
    }
  }
  const linked = () => Object.keys(specs).filter((name) => specs[name].sync).map(chartOf);

  function listen() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
    const show = (theme) => { root.dataset.theme = theme; draw(); };
    document.getElementById("theme").addEventListener("click", () => show(isDark() ? "light" : "dark"));
    dark.addEventListener("change", () => { if (!root.dataset.theme) draw(); });
    document.addEventListener("click", (event) => { // also for what an update brings
      if (event.target.matches(".switch [data-trace]")) { press(event.target); draw(); }
      if (event.target.matches(".copy")) copy(event.target);
      if (event.target.matches(".pick input")) draw();
    });
    document.addEventListener("toggle", (event) => { // a chart that was folded away had no width
      for (const one of event.target.querySelectorAll(".js-plotly-plot")) Plotly.Plots.resize(one);
    }, true);
    let before;
    addEventListener("beforeprint", () => {
      before = root.dataset.theme;
      document.querySelectorAll("details").forEach((one) => { one.open = true; });
      show("light");
    });
    addEventListener("afterprint", () => {
      if (before) root.dataset.theme = before; else delete root.dataset.theme;
      draw();
    });
  }

  function press(button) {
    for (const one of button.parentElement.children) one.setAttribute("aria-pressed", String(one === button));
  }

  async function copy(button) {
    if (!navigator.clipboard) { // a page that came over plain http
      getSelection().selectAllChildren(button.previousElementSibling);
      return;
    }
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  // A page with a server behind it shows what the run has written since. A hidden page asks for nothing.
  const PERIOD_MS = 2000;
  async function follow() {
    const status = document.getElementById("status");
    let version = "";
    for (;;) {
      try {
        const answer = await fetch(root.dataset.updates, { headers: version ? { "If-None-Match": version } : {} });
        if (answer.status === 200) {
          version = answer.headers.get("ETag");
          await update(await answer.json());
        } else if (answer.status !== 304) throw new Error(answer.status + " " + (await answer.text()));
        status.textContent = (narrow() ? "" : "updated ") + new Date().toLocaleTimeString();
        status.className = "state";
      } catch (error) {
        status.textContent = "not updated: " + error.message;
        status.className = "state bad";
      }
      root.dataset.updated = version;
      await new Promise((done) => setTimeout(done, PERIOD_MS));
      while (document.hidden) await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
    }
  }

  // A page with a server behind it asks that what a change would bring.
  let asking = null;
  function offer() {
    const section = document.getElementById("what-if");
    if (!section) return;
    if (!asking) {
      asking = document.createElement("form");
      const [label, field, button, said] = ["label", "input", "button", "pre"].map((name) => document.createElement(name));
      label.append("What if ", field);
      Object.assign(field, { maxLength: 500, required: true, placeholder: "m=16 data_loading=0" });
      button.textContent = "Predict";
      said.setAttribute("role", "status");
      asking.append(label, " ", button, said);
      asking.addEventListener("submit", async (event) => {
        event.preventDefault();
        button.disabled = true;
        try {
          const answer = await fetch("what-if", { method: "POST", body: field.value });
          said.textContent = await answer.text();
        } catch (error) {
          said.textContent = error.message;
        }
        button.disabled = false;
      });
    }
    section.append(asking);
  }

  // Charts stay the elements they are, so that a zoom outlives the update; so do opened tables and chosen maps.
  async function update(parts) {
    const content = document.getElementById("content");
    const next = document.createElement("template");
    next.innerHTML = parts.content;
    const opened = new Set([...content.querySelectorAll("details[open] > summary")].map((one) => one.textContent));
    for (const one of next.content.querySelectorAll("details")) one.open = opened.has(one.firstElementChild.textContent);
    for (const pressed of content.querySelectorAll(".switch [aria-pressed='true']")) {
      const group = next.content.querySelector(`.switch[data-chart="${pressed.parentElement.dataset.chart}"]`);
      const same = [...(group?.children ?? [])].find((one) => one.textContent === pressed.textContent);
      if (same) press(same);
    }
    for (const place of next.content.querySelectorAll(".chart")) {
      const old = document.getElementById(place.id);
      if (old) place.replaceWith(old);
    }
    for (const gone of content.querySelectorAll(".chart")) if (window.Plotly) Plotly.purge(gone);
    content.replaceChildren(next.content);
    offer();
    document.getElementById("menu").innerHTML = parts.menu;
    document.title = parts.title;
    specs = parts.charts;
    await draw();
  }

  listen();
  unpack().then(draw).then(() => {
    root.dataset.drawn = "true";
    if (root.dataset.updates) {
      offer();
      follow();
    }
  }, (error) => {
    for (const name of Object.keys(specs)) {
      const line = document.createElement("p");
      line.textContent = "No chart: " + error.message + ". It needs a browser of 2023 or newer.";
      chartOf(name).append(line);
    }
    throw error;
  });
})();
