// Every figure's and table's numbers as CSV, and all of them as one JSON file, made from what the page holds.
{
  const quoted = (value) => {
    const said = value === null || value === undefined ? "" : String(value);
    return /[",\n\r]/.test(said) ? `"${said.replaceAll('"', '""')}"` : said;
  };
  const csv = (rows) => rows.map((row) => row.map(quoted).join(",") + "\r\n").join("");
  const name = document.body.dataset.name;

  function link(file, address) {
    Object.assign(document.createElement("a"), { href: address, download: `${name}-${file}` }).click();
  }
  function save(file, type, content) {
    const address = URL.createObjectURL(new Blob([content], { type }));
    link(file, address);
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }

  // One row per point of every line, bar or dot: nothing is averaged for the table's sake. A point's `customdata` holds the
  // name of its place, where that has one, its value, and the ends of the range around it.
  function rowsOf(figure) {
    const { data, layout } = charts.data(figure);
    const { x, y, zero, named, across } = layout.meta;
    const traces = data.filter((one) => one.meta.role === undefined);
    const axes = [...new Set(traces.flatMap((one) => Object.keys(one.meta.at ?? {})))];
    const head = ["series", "seed", x || "of", ...axes, y, "low", "high"];
    const rows = traces.flatMap(({ meta, customdata = [], ...one }) =>
      (across ? one.x : one.y).map((value, i) => {
        const own = customdata[i] ?? [];
        const places = axes.map((axis) => meta.at?.[axis]?.[i]);
        const [low, high] = own.slice(named ? 2 : 1);
        return [meta.series, meta.seed ?? "mean", named ? own[0] : one.x[i], ...places, value === zero ? 0 : value, low, high];
      }),
    );
    return [head, ...rows];
  }

  const captionOf = (table) => table.getAttribute("aria-label");
  const tableRows = (table) =>
    [...table.rows].map((row) => [...row.cells].map((cell) => cell.dataset.sort ?? cell.innerText.trim()));

  function button(text, label, act) {
    const one = document.createElement("button");
    one.type = "button";
    one.className = "save";
    one.textContent = text;
    one.setAttribute("aria-label", label);
    one.addEventListener("click", act);
    return one;
  }

  const figures = [...document.querySelectorAll("figure[id]:not(.empty)")];
  for (const figure of figures) {
    const act = () => save(`${figure.id}.csv`, "text/csv", csv(rowsOf(figure)));
    const heading = figure.querySelector("h3");
    const of = heading.textContent;
    heading.append(button("CSV", `The numbers of ${of} as CSV`, act));
    for (const format of ["png", "svg"]) {
      const draw = async () => link(`${figure.id}.${format}`, await charts.image(figure, format));
      heading.append(button(format.toUpperCase(), `${of} as ${format.toUpperCase()}`, draw));
    }
  }
  const tables = [...document.querySelectorAll("table")].filter((table) => !table.closest("figure"));
  tables.forEach((table, index) => {
    const of = captionOf(table) ?? table.closest("section")?.querySelector("h2")?.textContent ?? "table";
    const act = () => save(`table-${index + 1}.csv`, "text/csv", csv(tableRows(table)));
    const box = table.closest(".table");
    if (!box.querySelector(".caption")) box.prepend(Object.assign(document.createElement("p"), { className: "caption" }));
    box.querySelector(".caption").append(button("CSV", `${of} as CSV`, act));
  });

  const everything = {
    json: () => {
      const data = { figures: {}, tables: [] };
      for (const figure of figures) {
        const [head, ...rows] = rowsOf(figure);
        data.figures[figure.id] = { title: charts.data(figure).finding || charts.data(figure).title, columns: head, rows };
      }
      data.tables = tables.map((table) => ({ caption: captionOf(table) ?? "", rows: tableRows(table) }));
      save("data.json", "application/json", JSON.stringify(data, null, 1));
    },
    csv: () => {
      const rows = figures.flatMap((figure) => {
        const [head, ...own] = rowsOf(figure);
        const values = (row) => head.slice(3).map((what, i) => [figure.id, row[0], row[1], row[2], what, row[i + 3]]);
        return own.flatMap((row) => values(row).filter((one) => one[5] !== null && one[5] !== undefined));
      });
      save("figures.csv", "text/csv", csv([["figure", "series", "seed", "at", "what", "value"], ...rows]));
    },
  };
  for (const one of document.querySelectorAll("button[data-save]")) {
    one.hidden = false;
    one.addEventListener("click", everything[one.dataset.save]);
  }
}
