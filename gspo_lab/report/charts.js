// The figures are plain Plotly JSON in the page, and so is the library that draws them, packed: each figure once it is near
// the window. What a reader does to one of them (another x axis, hidden arms or seeds, dark colours) is done to all.
const charts = (() => {
  const held = JSON.parse(document.getElementById("figures").textContent);
  const figures = [...document.querySelectorAll("figure[id]:not(.empty)")];
  const boxes = figures.map((figure) => figure.querySelector(".plot"));
  const live = new Map(); // box -> the width that it was drawn at
  const values = new Set([...document.querySelectorAll('[data-hide^="arm @"]')].map((button) => button.dataset.hide)); // of a sweep
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const PAPER = 570; // pixels; the style scales a figure to its column
  const LETTER = 7.4;
  let [axis, hidden, printing, plotly] = ["", new Set(), false, null];

  function library() {
    plotly ??= (async () => {
      const packed = atob(document.getElementById("plotly-gzip").textContent);
      const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      const script = document.createElement("script");
      script.textContent = await new Response(stream).text();
      document.head.append(script);
      return window.Plotly;
    })();
    return plotly;
  }

  // Lists that stand in several places of the page are written once.
  function unpacked(part) {
    if (Array.isArray(part)) return part.map(unpacked);
    if (part === null || typeof part !== "object") return part;
    return "$" in part ? held.lists[part.$] : Object.fromEntries(Object.entries(part).map(([key, one]) => [key, unpacked(one)]));
  }
  const known = new Map();
  function data(figure) {
    if (!known.has(figure.id)) known.set(figure.id, unpacked(held.figures[figure.id]));
    return known.get(figure.id);
  }

  // The beginning and the end, in which names of one family differ. Names are escaped: what is cut is not.
  const ENTITIES = { "&lt;": "<", "&gt;": ">", "&amp;": "&" };
  function short(escaped, room) {
    const name = escaped.replace(/&(lt|gt|amp);/g, (one) => ENTITIES[one]);
    if (name.length <= room) return escaped;
    const tail = Math.floor(((room - 1) * 2) / 5);
    const cut = `${name.slice(0, Math.max(1, room - 1 - tail))}…${name.slice(name.length - tail)}`;
    return cut.replace(/[&<>]/g, (one) => Object.keys(ENTITIES).find((key) => ENTITIES[key] === one));
  }

  const recoloured = (part) => {
    if (typeof part === "string") return held.dark[part] ?? part;
    if (part === null || typeof part !== "object") return part;
    if (Array.isArray(part)) return typeof part[0] === "object" ? part.map(recoloured) : part;
    return Object.fromEntries(Object.entries(part).map(([key, one]) => [key, recoloured(one)]));
  };

  // What Plotly draws: the figure as it stands in the page, as wide as its place, with what the reader chose.
  function drawn(figure, width, scheme) {
    const { data: traces, layout } = data(figure);
    const switched = Boolean(axis) && traces.some((trace) => trace.meta.at?.[axis]);
    const shown = traces.map((trace) => {
      // An arm of a sweep, "grpo@0.001", goes with its rule and with its value, which has a button.
      const parts = trace.meta.series.split(/(?=@[^@]*$)/);
      const names = [trace.meta.series, ...(values.has(`arm ${parts[1]}`) ? parts : [])];
      const away = names.some((name) => hidden.has(`arm ${name}`)) || (hidden.has("seeds") && trace.meta.seed !== null);
      // A line whose place on the chosen axis is unknown is left out there, never drawn at another's.
      const lost = switched && !trace.meta.at?.[axis];
      return { ...trace, ...(switched && !lost ? { x: trace.meta.at[axis] } : {}), visible: !away && !lost };
    });
    const there = new Set(shown.flatMap((trace) => (trace.visible ? [trace.name] : [])));
    const notes = (layout.annotations ?? []).filter((note) => note.name === undefined || there.has(note.name));
    const atEnd = notes.filter((note) => note.x === 1 && note.xref === "paper");
    const longest = Math.max(0, ...atEnd.map((note) => note.text.length));
    const room = Math.min(0.3 * width, LETTER * longest + 12);
    const out = {
      ...layout, width, xaxis: { ...layout.xaxis }, yaxis: { ...layout.yaxis }, template: held.templates[scheme],
      annotations: notes.map((note) => (atEnd.includes(note) ? { ...note, text: short(note.text, Math.floor((room - 12) / LETTER)) } : note)),
    };
    if (atEnd.length) out.margin = { r: room };
    if (switched) {
      delete out.xaxis.range;
      Object.assign(out.xaxis, { title: { text: axis }, exponentformat: "SI", unifiedhovertitle: { text: `%{x} ${axis}` } });
    }
    for (const [side, space] of [["xaxis", (width - 72) / (layout.xaxis.ticktext?.length ?? 1)], ["yaxis", 0.38 * width]]) {
      out[side].ticktext &&= out[side].ticktext.map((name) => name.split("<br>").map((line) => short(line, Math.max(5, Math.floor(space / LETTER)))).join("<br>"));
    }
    out.height = heightOf(figure, width);
    const whole = { data: shown, layout: out };
    return scheme === "dark" ? { data: recoloured(shown), layout: { ...recoloured({ ...out, template: null }), template: out.template } } : whole;
  }
  // On a phone a figure's own legend has a line for every name.
  function heightOf(figure, width) {
    const { data: traces, layout } = data(figure);
    return layout.height + (layout.showlegend && width && width < 480 ? 20 * traces.filter((trace) => trace.showlegend).length : 0);
  }

  const CONFIG = { displayModeBar: false, showTips: false };
  function draw(box) {
    const width = printing ? PAPER : box.clientWidth;
    if (!width || !window.Plotly) return;
    const { data: traces, layout } = drawn(box.parentElement, width, dark.matches && !printing ? "dark" : "light");
    if (!live.has(box)) box.replaceChildren();
    live.set(box, width);
    if (!printing) box.style.height = `${layout.height}px`; // it may have been folded away, without a width
    box.parentElement.classList.add("live");
    window.Plotly.react(box, traces, layout, CONFIG);
  }
  const redraw = () => [...live.keys()].forEach(draw);
  const mend = (box) => {
    if (live.has(box) && !printing && box.clientWidth && live.get(box) !== box.clientWidth) draw(box);
  };

  // A figure's place has its height from the beginning, so that a link to what stands below lands there.
  for (const box of boxes) box.style.height = `${heightOf(box.parentElement, box.clientWidth)}px`;
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      library().then(() => draw(target), console.error);
    }
  }, { rootMargin: "600px" });
  const sized = new ResizeObserver((entries) => entries.forEach(({ target }) => mend(target)));
  for (const box of boxes) {
    seen.observe(box);
    sized.observe(box);
  }
  dark.addEventListener("change", redraw);

  // On paper every figure that is printed stands, in light colours.
  if (boxes.length) addEventListener("load", () => setTimeout(library, 500));
  addEventListener("beforeprint", () => {
    printing = true;
    const whole = document.documentElement.dataset.print === "all";
    boxes.filter((box) => whole || (box.closest(".printed") && !box.closest(".of-small, details:not([open])"))).forEach(draw);
  });
  addEventListener("afterprint", () => {
    printing = false;
    redraw();
  });

  const choices = document.querySelector(".axis");
  if (choices) {
    choices.hidden = false;
    choices.addEventListener("change", (event) => address.set("x", event.target.value));
    address.watch("x", (wanted) => {
      const chosen = [...choices.querySelectorAll("input")].find((input) => input.value === wanted) ?? choices.querySelector("input");
      chosen.checked = true;
      axis = chosen.value;
      redraw();
    });
  }

  const legend = document.querySelector(".who");
  if (legend && boxes.length) {
    const buttons = [...legend.querySelectorAll("button")];
    legend.hidden = false;
    for (const button of buttons) {
      button.addEventListener("click", () => {
        const next = new Set(hidden);
        if (!next.delete(button.dataset.hide)) next.add(button.dataset.hide);
        address.set("hide", [...next].map(encodeURIComponent).join(","));
      });
    }
    address.watch("hide", (wanted) => {
      hidden = new Set(wanted.split(",").filter(Boolean).map(decodeURIComponent));
      for (const button of buttons) button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.hide)));
      redraw();
    });
  }

  // The figure as an image file of its own, under its heading.
  async function image(figure, format) {
    const Plotly = await library();
    const { data: traces, layout } = drawn(figure, 900, "light");
    // A heading about an arm that the reader has hidden is left to the plain title.
    const { title: plain, finding, focus, study } = data(figure);
    const told = finding && !focus.some((arm) => hidden.has(`arm ${arm}`)) ? `${plain}. ${finding}` : plain;
    const date = figure.closest("article")?.dataset.date;
    const lines = [[study, date].filter(Boolean).join(" · "), told].join("\n").replace(/(.{1,100})(\s|$)/g, "$1\n").trim().replace(/[&<>]/g, (one) => Object.keys(ENTITIES).find((key) => ENTITIES[key] === one)).split("\n");
    const top = 30 + 20 * lines.length;
    const title = { text: lines.join("<br>"), x: 0.01, xanchor: "left", font: { size: 15 } };
    const whole = { ...layout, title, height: layout.height + top + 80, margin: { ...layout.margin, t: top } };
    return Plotly.toImage({ data: traces, layout: whole }, { format, width: 900, height: whole.height, scale: format === "png" ? 2 : 1 });
  }
  return { data, image };
})();
