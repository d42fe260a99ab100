"use strict";
// One tip for everything that has a text (data-t). The record behind it (data-r) is unpacked when it is first asked for.
const tip = document.getElementById("tip");
const records = new Map();

async function unpacked(experiment) {
  if (!records.has(experiment)) records.set(experiment, unpack(experiment.querySelector("script.records")?.textContent));
  return records.get(experiment);
}

async function unpack(text) {
  if (!text) return {};
  const bytes = Uint8Array.from(atob(text), character => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

function written(record) {
  const short = value => Array.isArray(value) && value.length > 8 ? `[${value.slice(0, 8).join(", ")}, … ${value.length} in all]` : JSON.stringify(value);
  return Object.entries(record).map(([key, value]) => `${key}: ${short(value)}`).join("\n");
}

async function point(event) {
  const thing = event.target.closest?.("[data-t]");
  if (!thing) return hide();
  const same = tip.thing === thing;
  tip.thing = thing;
  tip.hidden = false;
  if (!same) await describe(thing);
  if (tip.thing === thing) beside(event.clientX, event.clientY);
}

async function describe(thing) {
  const said = document.createElement("b");
  said.textContent = thing.dataset.t;
  tip.replaceChildren(said);
  const record = thing.dataset.r && (await unpacked(thing.closest(".experiment")))[thing.dataset.r];
  if (!record || tip.thing !== thing) return;
  const where = document.createElement("div"), text = document.createElement("pre");
  where.textContent = `line ${thing.dataset.r} of history.jsonl`;
  text.textContent = written(record);
  tip.replaceChildren(said, where, text);
}

function beside(x, y) {
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${y + 16 + height < innerHeight ? y + 16 : Math.max(4, y - height - 12)}px`;
}

function hide() {
  tip.hidden = true;
  tip.thing = null;
}

document.querySelector("main").addEventListener("pointermove", point);
document.querySelector("main").addEventListener("pointerdown", point);
document.querySelector("main").addEventListener("pointerleave", hide);
addEventListener("scroll", hide, { passive: true });
