"use strict";
// The page is whole without this script. It makes the drawings explorable, and opens every table of numbers for print.
(() => {
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "4px,2px", "1px,5px", "solid", "dot"];
  const live = new Map();
  let plotly = null;

  function library() {
    plotly ??= (async () => {
      const packed = atob(document.getElementById("plotly-gzip").textContent);
      const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      const source = await new Response(stream).text();
      // The library brings a style sheet for maps, which the page's policy forbids and no chart here needs. It leaves
      // the sheet out where it finds an element with the sheet's id.
      for (const [, id] of source.matchAll(/getElementById\("([0-9a-f]{64})"\)/g)) {
        const standIn = document.createElement("template");
        standIn.id = id;
        document.head.append(standIn);
      }
      const script = document.createElement("script");
      script.textContent = source;
      document.head.append(script);
      return window.Plotly;
    })();
    return plotly;
  }

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (c) => css(`--a${c}`);
  const faint = (c, alpha) => colour(c) + Math.round(alpha * 255).toString(16).padStart(2, "0");

  function traces(chart) {
    // On a logarithmic axis zero has a place of its own, below the lowest decade; hovering shows the true number.
    const place = (values) => (chart.log ? values.map((v) => (v === 0 ? chart.log[0] : v)) : values);
    const lines = chart.kind === "lines";
    const hasMeans = chart.series.some((s) => s.seed === undefined);
    const named = new Set();
    return chart.series.flatMap((s) => {
      const mean = s.seed === undefined;
      const x = chart.x[s.x];
      const title = mean ? s.name : `${s.name}, seed ${s.seed}`;
      const common = {
        x, y: place(s.y), customdata: s.y, name: s.name, legendgroup: s.name,
        showlegend: (mean || !hasMeans) && !named.has(s.name),
        hovertemplate: `${chart.xTitle} %{x}: %{customdata:.4~g}<extra></extra>`, meta: title,
      };
      common.hovertemplate = "%{meta}<br>" + common.hovertemplate;
      if (common.showlegend) named.add(s.name);
      if (lines) {
        const out = [];
        if (s.low) {
          const edge = { x, mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false, legendgroup: s.name };
          out.push({ ...edge, y: place(s.low) }, { ...edge, y: place(s.high), fill: "tonexty", fillcolor: faint(s.c, 0.13) });
        }
        const line = mean ? { color: colour(s.c), width: 2.6, dash: DASHES[s.c] } : { color: faint(s.c, 0.5), width: 1 };
        const lonely = s.y.filter((v) => v !== null).length === 1;
        out.push({ ...common, mode: lonely ? "markers" : "lines", line, marker: { color: colour(s.c), size: 7 } });
        return out;
      }
      const group = { offsetgroup: s.name, alignmentgroup: "all" };
      if (!mean) return { ...common, ...group, mode: "markers", cliponaxis: false, marker: { color: colour(s.c), size: 7, line: { color: css("--paper"), width: 1 } } };
      if (chart.kind === "bars") return { ...common, ...group, type: "bar", marker: { color: faint(s.c, 0.72), line: { color: colour(s.c), width: 1.5 } } };
      const tick = { symbol: "line-ew-open", size: 26, line: { color: colour(s.c), width: 3 }, color: colour(s.c) };
      return { ...common, ...group, mode: "markers", marker: tick };
    });
  }

  function layout(chart) {
    const axis = { gridcolor: css("--line"), linecolor: css("--line"), zeroline: false, automargin: true };
    const title = (text) => ({ text, font: { size: 12.5 } });
    const out = {
      margin: { l: 50, r: 10, t: 8, b: 42 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: css("--soft") },
      showlegend: !chart.small, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, hovermode: "closest", hoverlabel: { align: "left" },
      barmode: "group", scattermode: chart.x.every((x) => x.length === 1) && chart.kind === "dots" ? "overlay" : "group",
      scattergap: 0.2, bargap: 0.2,
      xaxis: { ...axis, title: title(chart.xTitle), showgrid: chart.kind === "lines" },
      yaxis: { ...axis, title: title(chart.yTitle) },
    };
    if (chart.kind === "lines") out.scattermode = "overlay";
    else Object.assign(out.xaxis, { type: "category", categoryorder: "array", categoryarray: chart.categories });
    if (chart.log) {
      const [low, high] = chart.log.map(Math.log10);
      const room = (high - low) * 0.03;
      Object.assign(out.yaxis, { type: "log", range: [chart.kind === "bars" ? low : low - room, high + room], tickmode: "array", tickvals: chart.ticks[0], ticktext: chart.ticks[1] });
    } else if (chart.range) out.yaxis.range = chart.range;
    return out;
  }

  async function enhance(figure) {
    const Plotly = await library();
    const chart = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
    const box = figure.querySelector(".plot");
    box.hidden = false;
    figure.classList.add("live");
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", chart.label);
    live.set(box, chart);
    await Plotly.newPlot(box, traces(chart), layout(chart), { displayModeBar: false, responsive: true });
  }

  const give_up = (figure) => (error) => {
    figure.classList.remove("live");
    figure.querySelector(".plot").hidden = true;
    console.error(error);
  };
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      enhance(target).catch(give_up(target));
    }
  }, { rootMargin: "600px" });
  for (const block of document.querySelectorAll("figure > script[type='application/json']")) seen.observe(block.parentElement);

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const [box, chart] of live) window.Plotly.react(box, traces(chart), layout(chart));
  });

  function reveal() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    if (target) target.scrollIntoView();
  }
  addEventListener("hashchange", reveal);
  reveal();

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const one of closed) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of closed) one.open = false;
  });
})();
