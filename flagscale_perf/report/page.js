"use strict";
(() => {
  const root = document.documentElement;
  const specs = JSON.parse(document.getElementById("charts").textContent);
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
  }

  // A map of the ranks that a button chose stays chosen when the colours change.
  function shown(name, data) {
    const pressed = document.querySelector(`.switch[data-chart="${name}"] [aria-pressed="true"]`);
    if (pressed) data.forEach((trace, number) => { trace.visible = String(number) === pressed.dataset.trace; });
    return data;
  }

  // One zoom for all charts over the iterations.
  function link() {
    const linked = Object.keys(specs).filter((name) => specs[name].sync).map(chartOf);
    let isBusy = false;
    for (const source of linked) {
      source.on("plotly_relayout", async (change) => {
        const whole = change["xaxis.autorange"];
        const range = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
        if (isBusy || (!whole && range[0] === undefined)) return;
        isBusy = true;
        const update = whole ? { "xaxis.autorange": true } : { "xaxis.range": range };
        await Promise.all(linked.filter((one) => one !== source).map((one) => Plotly.relayout(one, update)));
        isBusy = false;
      });
    }
  }

  function listen() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
    const show = (theme) => { root.dataset.theme = theme; draw(); };
    document.getElementById("theme").addEventListener("click", () => show(isDark() ? "light" : "dark"));
    dark.addEventListener("change", () => { if (!root.dataset.theme) draw(); });
    for (const group of document.querySelectorAll(".switch")) {
      group.addEventListener("click", (event) => {
        if (event.target.dataset.trace === undefined) return;
        for (const button of group.children) button.setAttribute("aria-pressed", String(button === event.target));
        draw();
      });
    }
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

  function copying() {
    for (const button of document.querySelectorAll(".copy")) {
      button.addEventListener("click", async () => {
        if (!navigator.clipboard) { // a page that came over plain http
          getSelection().selectAllChildren(button.previousElementSibling);
          return;
        }
        await navigator.clipboard.writeText(button.dataset.copy);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 1500);
      });
    }
  }

  copying();
  listen();
  unpack().then(draw).then(() => { link(); root.dataset.drawn = "true"; }, (error) => {
    for (const name of Object.keys(specs)) {
      const line = document.createElement("p");
      line.textContent = "No chart: " + error.message + ". It needs a browser of 2023 or newer.";
      chartOf(name).append(line);
    }
    throw error;
  });
})();
