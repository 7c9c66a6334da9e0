// The run page: charts by plotly, kept live by the service's events, at most one refresh a second.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const { swap, banner, clock } = window.twoclocks;
  const page = document.querySelector(".run");
  const metrics = page.querySelector("[data-metrics]");
  const more = page.querySelector("[data-all]");
  const pulse = page.querySelector("[data-pulse]");
  const word = page.querySelector("[data-pulse-word]");
  const CONFIG = {
    responsive: true, displaylogo: false, displayModeBar: "hover", doubleClick: false,
    // Named one by one: plotly's own set has buttons that would send data to another host.
    modeBarButtons: [["toImage", "zoom2d", "pan2d",
      { name: "all", title: "Show everything", icon: Plotly.Icons.home, click: (plot) => reset(plot) }]],
  };
  let all = false, state = "", heard = clock(), streaming = false, linking = false, zoom = null;

  const frame = (id) => page.querySelector(`[data-figure="${CSS.escape(id)}"]`);

  const cards = (list) => {
    const wanted = new Set(list.map((metric) => metric.id));
    for (const old of metrics.querySelectorAll("figure")) {
      const plot = old.querySelector(".plot");
      if (!wanted.has(plot.dataset.figure)) {
        Plotly.purge(plot);
        old.remove();
      }
    }
    if (!list.length) return;
    metrics.querySelector(":scope > p")?.remove();
    list.forEach((metric, place) => {
      let card = frame(metric.id)?.closest("figure");
      if (!card) {
        card = document.createElement("figure");
        card.className = "chart little";
        const caption = document.createElement("figcaption");
        const name = document.createElement("h3");
        name.textContent = metric.name.replaceAll("_", " ");
        const unit = document.createElement("span");
        unit.className = "sub";
        unit.textContent = metric.unit;
        caption.append(name, unit);
        caption.title = metric.help;
        const plot = document.createElement("div");
        plot.className = "plot";
        plot.dataset.figure = metric.id;
        plot.setAttribute("role", "img");
        plot.setAttribute("aria-label", `${metric.name} against samples: ${metric.help}`);
        card.append(caption, plot);
      }
      if (metrics.children[place] !== card) metrics.insertBefore(card, metrics.children[place] || null);
    });
  };

  // Zooming one chart's samples zooms all that share them; a double click shows everything again.
  const homes = new WeakMap();
  const drawn = () => [...page.querySelectorAll("[data-figure].drawn")];
  const shares = (plot) => plot.dataset.figure !== "forecasts";
  const relayout = (plots, change) => {
    linking = true;
    return Promise.all(plots.map((plot) => Plotly.relayout(plot, change(plot)))).finally(() => {
      linking = false;
    });
  };
  const reset = (plot) => {
    if (shares(plot)) zoom = null;
    return relayout(shares(plot) ? drawn().filter(shares) : [plot], (each) => {
      const { x, y } = homes.get(each);
      return { "xaxis.range": [...x], ...(y ? { "yaxis.range": [...y] } : { "yaxis.autorange": true }) };
    });
  };
  const link = (plot) => {
    plot.on("plotly_doubleclick", () => {
      reset(plot);
    });
    plot.on("plotly_relayout", (change) => {
      const range = change["xaxis.range"] || [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      if (linking || !shares(plot) || range[0] === undefined) return;
      zoom = [...range];
      relayout(drawn().filter((other) => other !== plot && shares(other)), () => ({ "xaxis.range": [...zoom] }));
    });
  };

  const draw = async (figures) => {
    for (const [id, figure] of Object.entries(figures)) {
      const plot = frame(id);
      if (!plot) continue;
      if (figure.empty) {
        if (plot.classList.contains("drawn")) Plotly.purge(plot);
        plot.classList.remove("drawn");
        plot.classList.add("vacant");
        plot.textContent = figure.empty;
        continue;
      }
      if (!plot.classList.contains("drawn")) plot.textContent = "";
      plot.classList.remove("vacant");
      homes.set(plot, { x: [...figure.layout.xaxis.range], y: figure.layout.yaxis.range });
      if (zoom && shares(plot)) figure.layout.xaxis.range = [...zoom];
      const little = plot.closest(".little") !== null;
      await Plotly.react(plot, figure.data, figure.layout, little ? { ...CONFIG, displayModeBar: false } : CONFIG);
      if (!plot.classList.contains("drawn")) {
        plot.classList.add("drawn");
        link(plot);
      }
    }
  };

  const show = async (document_) => {
    state = document_.state;
    document.title = document_.title;
    for (const [name, html] of Object.entries(document_.parts)) swap(page.querySelector(`[data-part="${name}"]`), html);
    cards(document_.metrics);
    more.hidden = !document_.hidden && !all;
    more.textContent = all ? "Show fewer" : `Show ${document_.hidden} more`;
    await draw(document_.figures);
  };

  let busy = false, again = false, last = 0;
  const refresh = async () => {
    if (document.hidden) return;
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    again = false;
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, last + 1000 - Date.now())));
    last = Date.now();
    try {
      const address = `${page.dataset.figures}?theme=${window.twoclocksTheme()}${all ? "&all=1" : ""}`;
      const answer = await fetch(address, { cache: "no-cache", signal: AbortSignal.timeout(15000) });
      if (!answer.ok) throw new Error(String(answer.status));
      await show(await answer.json());
      heard = clock();
    } catch (error) {
      if (error instanceof TypeError || error.name === "TimeoutError" || /^\d+$/.test(error.message)) tell();
      else throw error;
    } finally {
      busy = false;
      if (again) refresh();
    }
    tell();
  };

  const tell = () => {
    const over = ["finished", "failed", "stopped"].includes(state);
    pulse.dataset.state = !streaming ? "down" : state === "lost" ? "lost" : over ? "over" : "live";
    const said = !streaming ? "not connected" : state === "lost" ? "silent" : over ? "ended" : "live";
    if (word.textContent !== said) word.textContent = said;
    if (!streaming) banner(`The service does not answer; this is what was known at ${heard}. Connecting again.`);
    else banner(state === "lost" ? "The run is silent: it has missed its declared interval. The charts end where its reports do." : "");
  };

  let patience = 0;
  const connect = () => {
    const stream = new EventSource(page.dataset.events);
    stream.addEventListener("open", () => {
      clearTimeout(patience);
      patience = 0;
      streaming = true;
      tell();
    });
    stream.addEventListener("run", refresh);
    stream.addEventListener("error", () => {
      // The browser connects again by itself, except where the answer was an error.
      if (!patience) patience = setTimeout(() => {
        streaming = false;
        patience = 0;
        tell();
      }, 3000);
      if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
    });
  };

  more.addEventListener("click", () => {
    all = !all;
    refresh();
  });
  window.addEventListener("twoclocks-theme", refresh);
  document.addEventListener("visibilitychange", refresh);
  setInterval(refresh, 60000); // what is said of a silent run changes without an event
  refresh();
  connect();
});
