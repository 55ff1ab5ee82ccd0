// The filter of the transcripts: one choice for the page, kept in its address.
{
  const groups = [...document.querySelectorAll(".filters")];
  const items = [...document.querySelectorAll(".item")];
  const buttons = groups.flatMap((group) => [...group.querySelectorAll("button")]);
  for (const group of groups) group.hidden = false;
  for (const button of buttons) button.addEventListener("click", () => address.set("show", button.dataset.show));
  if (groups.length) {
    address.watch("show", (wanted) => {
      const known = buttons.some((button) => button.dataset.show === wanted) ? wanted : "";
      for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.show === known));
      for (const item of items) item.hidden = Boolean(known) && !item.dataset.tags.split(" ").includes(known);
      for (const group of groups) {
        const own = [...group.parentElement.querySelectorAll(".item")];
        group.querySelector("output").textContent = `${own.filter((item) => !item.hidden).length} of ${own.length} shown`;
      }
    });
  }
}
