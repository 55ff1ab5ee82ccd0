// A click on a column's head, or Enter on it, sorts by that column: numbers by size, else by text; then the other way.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  if (!table.tHead || !body || body.rows.length < 2) continue;
  const heads = [...table.tHead.rows[0].cells];
  const original = [...body.rows];
  const keyOf = (row, column) => {
    const said = row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
    const number = /^[+−-]?\d[\d.,]*(e[+−-]?\d+)?/.exec(said.replace(/^±/, ""));
    return number ? Number(number[0].replaceAll("−", "-").replaceAll(",", "")) : said;
  };
  const compare = (a, b) =>
    typeof a === typeof b
      ? typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true })
      : typeof a === "number" ? -1 : 1; // what was not measured comes last
  heads.forEach((head, column) => {
    if (!head.textContent.trim()) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const next = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")];
      for (const one of heads) if (one.hasAttribute("aria-sort")) one.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", next);
      const turn = next === "descending" ? -1 : 1;
      const rows = next === "none" ? original : original.map((row) => [keyOf(row, column), row]).sort(([a], [b]) => turn * compare(a, b)).map(([, row]) => row);
      body.append(...rows);
    });
  });
}
