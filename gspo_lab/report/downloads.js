// Every figure's and table's numbers as CSV, and all of them as one JSON file, made from what the page holds.
{
  const quoted = (value) => {
    const said = value === null || value === undefined ? "" : String(value);
    return /[",\n\r]/.test(said) ? `"${said.replaceAll('"', '""')}"` : said;
  };
  const csv = (rows) => rows.map((row) => row.map(quoted).join(",") + "\r\n").join("");
  const name = document.body.dataset.name;

  function save(file, type, content) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
    link.download = `${name}-${file}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }

  // One row per point of every line, bar or dot: nothing is averaged for the table's sake.
  function rowsOf(figure) {
    const chart = charts.data(figure);
    const axes = [...new Set(chart.series.flatMap((s) => Object.keys(s.at ?? {})))];
    const head = ["series", "seed", chart.xTitle || "of", ...axes, chart.yTitle, "low", "high"];
    const rows = chart.series.flatMap((s) => {
      const places = axes.map((axis) => (s.at?.[axis] === undefined ? null : charts.positions[s.at[axis]]));
      const own = charts.positions[s.x];
      return s.y.map((y, i) => [s.name, s.seed ?? "mean", own[i], ...places.map((p) => p?.[i]), y, s.low?.[i], s.high?.[i]]);
    });
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
    figure.querySelector("h3").append(button("CSV", `The numbers of ${figure.querySelector("h3").textContent} as CSV`, act));
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
        data.figures[figure.id] = { title: charts.data(figure).title, columns: head, rows };
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
