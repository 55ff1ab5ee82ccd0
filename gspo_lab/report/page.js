"use strict";
// The page is whole without any script. These make the drawings explorable, the tables sortable, the transcripts
// filterable and the numbers downloadable. This file: what the address says, links, print, and a page that is watched.

// "#m-reward;x=prompts;show=flipped": first the element that the page shows, then how it shows things.
const address = (() => {
  const watchers = new Map();
  const state = new Map();

  function decoded(hash) {
    try {
      return decodeURIComponent(hash);
    } catch {
      return ""; // a mangled link leads to the top of the page
    }
  }

  function read() {
    const [target, ...pairs] = decoded(location.hash.slice(1)).split(";");
    if (target.includes("=")) pairs.unshift(target);
    for (const pair of pairs) {
      const [key, ...value] = pair.split("=");
      if (watchers.has(key)) state.set(key, value.join("="));
    }
    return target.includes("=") ? "" : target;
  }

  function write(target) {
    const parts = [target, ...[...state].filter(([, value]) => value).map(([key, value]) => `${key}=${value}`)];
    const hash = parts.filter((part) => part).map(encodeURIComponent).join(";").replaceAll("%3D", "=");
    history.replaceState(history.state, "", hash ? `#${hash}` : location.pathname + location.search);
  }

  return {
    // `shown(value)` is called now and whenever the address or a control gives `key` another value.
    watch(key, shown) {
      watchers.set(key, shown);
      read();
      shown(state.get(key) ?? "");
    },
    set(key, value) {
      const target = read();
      state.set(key, value);
      watchers.get(key)(value);
      write(target);
    },
    follow() {
      const before = new Map(state);
      const target = read();
      for (const [key, value] of state) if (before.get(key) !== value) watchers.get(key)(value);
      write(target);
      return target;
    },
  };
})();

addEventListener("DOMContentLoaded", () => {
  // The baseline of each table of arms is a part of the link: it is read before the address is written.
  for (const arms of document.querySelectorAll(".arms")) {
    const inputs = [...arms.querySelectorAll("input")];
    arms.addEventListener("change", (event) => address.set(event.target.name, encodeURIComponent(event.target.value)));
    address.watch(inputs[0].name, (wanted) => {
      const chosen = inputs.find((input) => encodeURIComponent(input.value) === wanted) ?? inputs[0];
      chosen.checked = true;
    });
  }

  const reloaded = document.documentElement.dataset.watch && performance.getEntriesByType("navigation")[0]?.type === "reload";
  function reveal() {
    const target = document.getElementById(address.follow());
    for (const one of document.querySelectorAll(".aimed")) one.classList.remove("aimed");
    if (!target) return;
    target.classList.add("aimed");
    target.hidden = false;
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    aim(target);
  }
  // Charts above the target grow as they come alive: it is held in its place until something else moves the page.
  const main = document.querySelector("main");
  let held = null;
  function hold() {
    if (!held) return;
    held.target.scrollIntoView({ behavior: "instant" });
    Object.assign(held, { height: main.offsetHeight, top: held.target.getBoundingClientRect().top });
  }
  function aim(target) {
    document.documentElement.style.setProperty("--bar", `${document.querySelector("header").offsetHeight + 12}px`);
    held = { target };
    hold();
  }
  new ResizeObserver(hold).observe(main);
  addEventListener("scroll", () => {
    if (held?.height === main.offsetHeight && Math.abs(held.target.getBoundingClientRect().top - held.top) > 2) held = null;
  });
  addEventListener("hashchange", reveal);
  if (reloaded) address.follow();
  else reveal();

  // Printed are the sections that decide; all of them, with every table, where that is asked for.
  const root = document.documentElement;
  for (const one of document.querySelectorAll("button[data-print]")) {
    one.hidden = false;
    one.addEventListener("click", () => {
      const closed = [...document.querySelectorAll("details:not([open])")];
      for (const each of closed) each.open = true;
      root.dataset.print = "all";
      print();
      for (const each of closed) each.open = false;
      delete root.dataset.print;
    });
  }

  // While its study runs, the file is written anew now and then. A page from a disk cannot ask whether it was: it looks
  // again, and comes back to the same place, unless somebody is selecting text or looks at something else.
  const seconds = Number(document.documentElement.dataset.watch);
  if (!seconds) return;
  const key = `watched ${location.pathname}`;
  const all = [...document.querySelectorAll("details")];
  // Figures change their height as they come alive, so a place is an element and how far from the top it stands.
  const landmarks = [...document.querySelectorAll("main [id]")];
  history.scrollRestoration = "manual";
  if (reloaded) {
    const kept = JSON.parse(sessionStorage.getItem(key) ?? "{}");
    for (const index of kept.open ?? []) if (all[index]) all[index].open = true;
    const place = document.getElementById(kept.at);
    if (place) scrollTo({ top: scrollY + place.getBoundingClientRect().top - kept.top, behavior: "instant" });
  }
  function reload() {
    if (document.hidden || !getSelection().isCollapsed) return;
    const open = all.flatMap((one, index) => (one.open ? [index] : []));
    const tops = landmarks.map((one) => [one.id, one.getBoundingClientRect().top]);
    const [at, top] = tops.findLast(([, y]) => y <= 1) ?? tops[0];
    sessionStorage.setItem(key, JSON.stringify({ open, at, top }));
    location.reload();
  }
  // From the moment when the page is whole: on a slow machine that may take longer than the pause.
  addEventListener("load", () => setInterval(reload, 1000 * seconds));
});
