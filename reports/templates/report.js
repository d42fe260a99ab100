"use strict";
// What a reader does with the page: filter, link, copy, zoom, hover. Without a script all of the page can be read.
const experiments = [...document.querySelectorAll(".experiment")];
const rows = new Map([...document.querySelectorAll(".overview tr[data-name]")].map(row => [row.dataset.name, row]));
const form = document.querySelector(".filters");
const search = document.getElementById("search");
const byFault = document.getElementById("by-fault"), byInvariant = document.getElementById("by-invariant");
const verdicts = [...form.querySelectorAll("[data-verdict]")];
const views = new Map();

// ---- filters ----

function wanted() {
  return {
    q: search.value.trim().toLowerCase(),
    v: verdicts.filter(button => button.ariaPressed === "true").map(button => button.dataset.verdict).join(" "),
    f: byFault.value,
    i: byInvariant.value,
  };
}

function matches(experiment, { q, v, f, i }) {
  const has = (list, word) => list.split(" ").includes(word);
  const [kind, invariant] = i.split(" ");
  return q.split(/\s+/).every(word => experiment.dataset.text.includes(word))
    && (!v || has(v, experiment.dataset.verdict))
    && (!f || has(experiment.dataset.faults, f))
    && (!i || has(experiment.dataset[kind], invariant));
}

function filter() {
  const asked = wanted();
  let seen = 0;
  for (const experiment of experiments) {
    const shown = matches(experiment, asked);
    const row = rows.get(experiment.id);
    experiment.hidden = !shown;
    if (row) row.hidden = !shown;
    if (row && shown) seen += 1;
  }
  document.getElementById("count").textContent = seen === rows.size ? "" : `${seen} of ${rows.size} shown`;
}

function filtered() {
  filter();
  const asked = new URLSearchParams(Object.entries(wanted()).filter(([, value]) => value));
  history.replaceState(null, "", asked.size ? `#?${asked}` : "#");
}

// ---- deep links: #name, #name@11.2-13.4 (a stretch of its time line), #?v=FAIL&q=node (filters) ----

function follow() {
  const hash = location.hash.slice(1);
  if (hash.startsWith("?")) return restore(new URLSearchParams(hash.slice(1)));
  const [, name, from, to] = hash.match(/^(.*?)(?:@([\d.]+)-([\d.]+))?$/);
  const experiment = document.getElementById(decodeURIComponent(name));
  if (!experiment?.matches(".experiment")) return;
  experiment.hidden = false;
  experiment.open = true;
  if (to !== undefined) view(experiment)?.timeline.show(Number(from), Number(to));
  experiment.scrollIntoView();
}

function restore(asked) {
  search.value = asked.get("q") ?? "";
  byFault.value = asked.get("f") ?? "";
  byInvariant.value = asked.get("i") ?? "";
  const pressed = (asked.get("v") ?? "").split(" ");
  verdicts.forEach(button => { button.ariaPressed = String(pressed.includes(button.dataset.verdict)); });
  filter();
}

// ---- copy ----

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyTheOldWay(text);
  }
  const said = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = said === "Copied" ? "Copy" : said; }, 1500);
}

// where the browser keeps the clipboard from pages on disk
function copyTheOldWay(text) {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

// ---- time lines: each is made when it is first seen ----

function view(experiment) {
  const svg = experiment.querySelector("svg.timeline");
  if (!svg || views.has(experiment)) return views.get(experiment);
  const zoom = experiment.querySelector(".zoom"), holder = experiment.querySelector(".charts");
  const timeline = new Timeline(svg);
  timeline.layout();
  const made = { timeline, charts: holder ? charts(holder, timeline) : null };
  views.set(experiment, made);
  zoom.hidden = false;
  timeline.onchange = () => {
    made.charts?.follow();
    const near = (one, other) => Math.abs(one - other) < 0.002;
    for (const button of zoom.querySelectorAll("[data-from]")) {
      button.classList.toggle("on", near(button.dataset.from, timeline.from) && near(button.dataset.to, timeline.to));
    }
    const whole = near(timeline.span, timeline.duration);
    const stretch = whole ? "" : `@${timeline.from.toFixed(3)}-${timeline.to.toFixed(3)}`;
    history.replaceState(null, "", `#${encodeURIComponent(experiment.id)}${stretch}`);
  };
  zoom.addEventListener("click", event => zoomed(event.target.closest("button"), timeline));
  return made;
}

function zoomed(button, timeline) {
  if (!button) return;
  const { from, to, span } = timeline;
  if (button.dataset.from) timeline.show(Number(button.dataset.from), Number(button.dataset.to));
  else if (button.matches(".in")) timeline.show(from + span / 4, to - span / 4);
  else if (button.matches(".out")) timeline.show(from - span / 2, to + span / 2);
  else if (button.matches(".earlier")) timeline.show(from - span / 2, to - span / 2);
  else if (button.matches(".later")) timeline.show(from + span / 2, to + span / 2);
}

// ---- what listens ----

form.hidden = false;
form.addEventListener("submit", event => event.preventDefault());
form.addEventListener("input", filtered);
form.addEventListener("change", filtered);
form.addEventListener("click", event => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.id === "open-all") openAll(button);
  else {
    button.ariaPressed = String(button.ariaPressed !== "true");
    filtered();
  }
});

function openAll(button) {
  const open = button.textContent === "Open all";
  experiments.forEach(experiment => { experiment.open = open && !experiment.hidden; });
  button.textContent = open ? "Close all" : "Open all";
}

document.addEventListener("click", event => {
  const button = event.target.closest(".copy"), link = event.target.closest("a.link");
  if (button) copy(button, button.parentElement.querySelector("code").textContent);
  if (link) copy(link, link.href);
});
experiments.forEach(experiment => {
  experiment.addEventListener("toggle", () => { if (experiment.open) view(experiment)?.timeline.layout(); });
  if (experiment.open) view(experiment);
});
addEventListener("resize", () => {
  for (const [experiment, { timeline, charts }] of views) {
    if (!experiment.open) continue;
    timeline.layout();
    charts?.follow();
  }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => views.forEach(({ charts }) => charts?.recolour()));
addEventListener("hashchange", follow);
follow();
