// Each drawing becomes a Plotly chart once it is near the window. The library is in the page, once, packed.
const charts = (() => {
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "4px,2px", "1px,5px"];
  const live = new Map();
  const positions = JSON.parse(document.getElementById("positions")?.textContent ?? "[]");
  let plotly = null;
  let axis = "";

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

  const data = (figure) => JSON.parse(figure.querySelector("script[type='application/json']").textContent);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (c) => css(`--${c}`);
  const faint = (c, alpha) => colour(c) + Math.round(alpha * 255).toString(16).padStart(2, "0");
  const switched = (chart) => Boolean(axis) && chart.series.some((s) => s.at?.[axis] !== undefined);
  const titleOf = (s) => (s.seed === undefined ? s.name : `${s.name}, seed ${s.seed}`);

  // A series whose place on the chosen axis is unknown is left out there, never drawn at another's.
  function placed(chart) {
    if (!switched(chart)) return chart.series.map((s) => ({ ...s, x: positions[s.x] }));
    return chart.series.filter((s) => s.at?.[axis] !== undefined).map((s) => ({ ...s, x: positions[s.at[axis]] }));
  }

  function lines(chart, common) {
    return placed(chart).flatMap((s) => {
      const own = common(s);
      const out = [];
      if (s.low) {
        const edge = { x: s.x, mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false, legendgroup: s.name };
        out.push({ ...edge, y: own.place(s.low) }, { ...edge, y: own.place(s.high), fill: "tonexty", fillcolor: faint(s.c, 0.13) });
      }
      const mean = s.seed === undefined;
      const line = mean ? { color: colour(s.c), width: 2.6, dash: DASHES[s.d] } : { color: faint(s.c, 0.5), width: 1 };
      const size = s.dots && s.y.map((_, i) => (s.dots.includes(i) ? (mean ? 7 : 5) : 0));
      const marker = { color: mean ? colour(s.c) : faint(s.c, 0.5), size, opacity: 1, line: { width: 0 } };
      return [...out, { ...own.trace, mode: s.dots ? "lines+markers" : "lines", line, marker }];
    });
  }

  function columns(chart, common) {
    return placed(chart).map((s) => {
      const trace = { ...common(s).trace, offsetgroup: s.name, alignmentgroup: "all" };
      const dot = { color: colour(s.c), size: 7, line: { color: css("--paper"), width: 1 } };
      if (s.seed !== undefined) return { ...trace, mode: "markers", cliponaxis: false, marker: dot };
      if (chart.kind === "bars") return { ...trace, type: "bar", marker: { color: faint(s.c, 0.72), line: { color: colour(s.c), width: 1.5 } } };
      const tick = { symbol: "line-ew-open", size: 26, line: { color: colour(s.c), width: 3 }, color: colour(s.c) };
      return { ...trace, mode: "markers", marker: tick };
    });
  }

  function slopes(chart, common) {
    const few = chart.series.length <= 5; // else the names would stand in each other; hovering tells them
    // Seeds that end close together have one name for all of them, at the first of them.
    const ends = chart.series.filter((s) => few && s.seed !== undefined && s.y.at(-1) !== null).sort((a, b) => b.y.at(-1) - a.y.at(-1));
    const all = chart.series.flatMap((s) => s.y).filter((v) => v !== null);
    const least = 0.09 * (Math.max(...all) - Math.min(...all));
    const names = new Map();
    for (let i = 0, first = 0; i < ends.length; i++) {
      if (i && ends[first].y.at(-1) - ends[i].y.at(-1) <= least) names.set(ends[first].seed, `${names.get(ends[first].seed).replace(/^seed /, "seeds ")}, ${ends[i].seed}`);
      else names.set(ends[first = i].seed, `seed ${ends[i].seed}`);
    }
    return placed(chart).map((s) => {
      const mean = s.seed === undefined;
      const line = { color: mean ? colour(s.c) : faint(s.c, 0.65), width: mean ? 3 : 1.3, dash: mean ? DASHES[s.d] : "solid" };
      const text = s.y.map((_, i) => (i === (mean ? 0 : s.y.length - 1) ? (mean ? "mean" : names.get(s.seed) ?? "") : ""));
      return {
        ...common(s).trace, showlegend: false, mode: "lines+markers+text", line, text, textposition: mean ? "middle left" : "middle right",
        marker: { color: colour(s.c), size: mean ? 1 : 7 }, cliponaxis: false, textfont: { size: 11 },
      };
    });
  }

  function rows(chart) {
    const labels = [...new Set(chart.series.map((s) => s.name))];
    const found = chart.categories.flatMap((category) => labels.map((label) => [category, label]));
    return found.filter(([category, label]) =>
      chart.series.some((s) => s.seed === undefined && s.name === label && s.y[positions[s.x].indexOf(category)] != null),
    );
  }

  function forest(chart) {
    const order = rows(chart);
    const rowOf = (category, label) => order.findIndex(([c, l]) => c === category && l === label);
    return placed(chart).map((s) => {
      const seed = s.seed !== undefined;
      const trace = {
        x: s.y, y: s.x.map((category) => rowOf(category, s.name) - (seed ? 0.3 : 0)), name: s.name, legendgroup: s.name, mode: "markers",
        showlegend: !seed, customdata: s.x, meta: titleOf(s), hovertemplate: "%{meta}<br>%{customdata}: %{x:.4~g}<extra></extra>",
        marker: { color: colour(s.c), size: seed ? 5 : 10, symbol: seed ? "circle" : "diamond" },
      };
      if (s.low) {
        const reach = (edge) => s.y.map((y, i) => (y === null || edge[i] === null ? 0 : Math.abs(edge[i] - y)));
        trace.error_x = { type: "data", symmetric: false, array: reach(s.high), arrayminus: reach(s.low), color: colour(s.c), thickness: 2.2, width: 4 };
      }
      return trace;
    });
  }

  function stack(chart) {
    return placed(chart).map((s) => ({
      type: "bar", orientation: "h", x: s.y, y: s.x, name: s.name, text: s.y.map((y) => (y === null ? "" : `${Math.round(100 * y)}%`)),
      textposition: "inside", insidetextanchor: "middle", hovertemplate: `${s.name}, %{y}: %{x:.1%}<extra></extra>`, textangle: 0,
      marker: { color: faint(s.c, 0.72), line: { color: colour(s.c), width: 1.5 } }, insidetextfont: { color: css("--ink") },
    }));
  }

  function traces(chart) {
    // On a logarithmic axis zero has a place of its own, below the lowest decade; hovering shows the true number.
    const place = (values) => (chart.log ? values.map((v) => (v === 0 ? chart.log[0] : v)) : values);
    const hasMeans = chart.series.some((s) => s.seed === undefined);
    const named = new Set();
    const common = (s) => {
      const showlegend = (s.seed === undefined || !hasMeans) && !named.has(s.name);
      if (showlegend) named.add(s.name);
      const where = switched(chart) ? axis : chart.xTitle;
      const trace = {
        x: s.x, y: place(s.y), customdata: s.y, name: s.name, legendgroup: s.name, showlegend, meta: titleOf(s),
        hovertemplate: `%{meta}<br>${where} %{x}: %{customdata:${chart.share ? ".3~%" : ".4~g"}}<extra></extra>`,
      };
      return { trace, place };
    };
    const make = { lines, slopes, forest, stack }[chart.kind] ?? columns;
    return make(chart, common);
  }

  // As in the drawings: the beginning and the end, in which names of one family differ.
  function short(name, room) {
    if (name.length <= room) return name;
    const tail = Math.floor(((room - 1) * 2) / 5);
    return `${name.slice(0, room - 1 - tail)}…${name.slice(name.length - tail)}`;
  }

  function layout(chart, width) {
    // No letters for powers of ten but where things are counted ("500µ" is no share), and no superscripts: Plotly styles them
    // inline, which the policy forbids.
    const axisStyle = { exponentformat: "e", gridcolor: css("--line"), linecolor: css("--line"), zeroline: false, automargin: true };
    const title = (text) => ({ text, font: { size: 12.5 } });
    const upright = chart.kind !== "forest" && chart.kind !== "stack";
    const out = {
      margin: { l: 50, r: 10, t: 8, b: 42 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: css("--soft") },
      showlegend: !chart.small, legend: { traceorder: "normal", orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, hovermode: "closest", hoverlabel: { align: "left" },
      barmode: upright ? "group" : "stack", scattergap: 0.2, bargap: 0.2,
      scattermode: chart.kind === "bars" || (chart.kind === "dots" && !chart.series.every((s) => positions[s.x].length === 1)) ? "group" : "overlay",
      xaxis: { ...axisStyle, title: title(upright ? (switched(chart) ? axis : chart.xTitle) : chart.yTitle), showgrid: chart.kind === "lines" || !upright },
      yaxis: { ...axisStyle, title: title(upright ? chart.yTitle : "") },
    };
    if (switched(chart)) out.xaxis.exponentformat = "SI";
    else if (chart.reach) {
      const room = 0.02 * (chart.reach[1] - chart.reach[0]);
      out.xaxis.range = [chart.reach[0] - room, chart.reach[1] + room];
    }
    if (chart.share) out.yaxis.tickformat = ".3~%";
    if (upright && chart.kind !== "lines") {
      // Upright and as wide as their place: names that Plotly turns take the room of what they name.
      const room = Math.max(6, Math.floor((width - 60) / chart.categories.length / 7.5));
      Object.assign(out.xaxis, {
        type: "category", categoryorder: "array", categoryarray: chart.categories,
        tickmode: "array", tickvals: chart.categories, ticktext: chart.categories.map((one) => short(one, room)), tickangle: 0,
      });
    }
    if (chart.kind === "slopes") Object.assign(out.xaxis, { range: [-0.3, chart.categories.length - 0.4] });
    if (chart.kind === "stack") {
      Object.assign(out.yaxis, { type: "category", autorange: "reversed", categoryorder: "array", categoryarray: chart.categories });
      Object.assign(out.xaxis, { range: [0, 1], tickformat: ".0%" });
    }
    if (chart.kind === "forest") {
      const order = rows(chart);
      const places = chart.categories.map((category) => order.flatMap(([c], i) => (c === category ? [i] : [])));
      Object.assign(out.yaxis, {
        tickmode: "array", tickvals: places.map((own) => (own[0] + own.at(-1)) / 2), ticktext: chart.categories.map((one) => one.replace(", ", ",<br>")),
        range: [order.length - 0.4, -0.7], showgrid: false,
      });
      Object.assign(out.xaxis, { zeroline: true, zerolinecolor: css("--soft") });
      if (chart.margin !== undefined) {
        out.shapes = [{ type: "rect", xref: "x", yref: "paper", x0: -chart.margin, x1: chart.margin, y0: 0, y1: 1, line: { width: 0 }, fillcolor: css("--soft"), opacity: 0.13, layer: "below" }];
      }
      const least = [0, ...chart.series.flatMap((s) => [...s.y, ...(s.low ?? []), ...(s.high ?? [])])].filter((v) => v != null);
      const room = 0.04 * (Math.max(...least) - Math.min(...least));
      out.xaxis.range = chart.range ?? [Math.min(...least) - room, Math.max(...least) + room];
    }
    if (chart.log) {
      const [low, high] = chart.log.map(Math.log10);
      const room = (high - low) * 0.03;
      Object.assign(out.yaxis, { type: "log", range: [chart.kind === "bars" ? low : low - room, high + room], tickmode: "array", tickvals: chart.ticks[0], ticktext: chart.ticks[1] });
    } else if (chart.range && upright) out.yaxis.range = chart.range;
    return out;
  }

  async function enhance(figure) {
    const Plotly = await library();
    const chart = data(figure);
    const box = figure.querySelector(".plot");
    box.hidden = false;
    if (chart.kind === "forest") box.style.height = `${120 + 26 * rows(chart).length}px`;
    // On a phone the legend has a line for every name.
    if (chart.kind === "stack") box.style.height = `${100 + 36 * chart.categories.length + (innerWidth < 640 ? 20 * chart.series.length : 0)}px`;
    figure.classList.add("live");
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", chart.label);
    live.set(box, chart);
    await Plotly.newPlot(box, traces(chart), layout(chart, box.clientWidth), { displayModeBar: false, responsive: true });
  }

  const redraw = (chosen) => {
    for (const [box, chart] of live) if (chosen(chart)) window.Plotly.react(box, traces(chart), layout(chart, box.clientWidth));
  };
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

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw(() => true));

  const choices = document.querySelector(".axis");
  if (choices) {
    choices.hidden = false;
    choices.addEventListener("change", (event) => address.set("x", event.target.value));
    address.watch("x", (wanted) => {
      const known = [...choices.querySelectorAll("input")].find((input) => input.value === wanted) ?? choices.querySelector("input");
      known.checked = true;
      const affected = (chart) => chart.series.some((s) => s.at);
      axis = known.value;
      redraw(affected);
    });
  }
  return { data, positions };
})();
