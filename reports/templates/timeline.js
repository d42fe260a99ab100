"use strict";
// Lays the time line of one experiment out anew, for the width that there is and the stretch of time that is shown.
// The server has drawn it; whatever stands at a time carries its seconds (data-a, data-b). Nothing is drawn here but
// the axis.
class Timeline {
  constructor(svg) {
    this.svg = svg;
    this.duration = Number(svg.dataset.duration);
    this.from = 0;
    this.to = this.duration;
    this.height = svg.viewBox.baseVal.height;
    this.timed = [...svg.querySelectorAll("rect[data-a]")];
    this.lanes = [...svg.querySelectorAll("rect.lane")];
    this.marks = [...svg.querySelectorAll(":scope > path[data-a]")];
    this.spanNames = [...svg.querySelectorAll("text.span-name")];
    this.markNames = [...svg.querySelectorAll("text.mark-name")];
    this.laneNames = [...svg.querySelectorAll("text.lane-name")];
    this.levels = [...svg.querySelectorAll("text.level")];
    this.levelLines = [...svg.querySelectorAll("path.level-line")];
    this.axis = svg.querySelector("g.axis");
    this.world = svg.querySelector("g.world");
    this.brush = svg.querySelector("rect.brush");
    this.onchange = () => {};
    this.listen();
  }

  get span() { return this.to - this.from; }
  get right() { return this.width - Timeline.RIGHT; }
  x(second) { return this.left + (second - this.from) / this.span * (this.right - this.left); }
  second(x) { return this.from + (x - this.left) / (this.right - this.left) * this.span; }
  inside(x) { return Math.min(Math.max(x, this.left), this.right); }

  show(from, to) {
    const span = Math.min(Math.max(to - from, Timeline.SHORTEST_S), this.duration);
    this.from = Math.min(Math.max(from, 0), this.duration - span);
    this.to = this.from + span;
    this.layout();
    this.onchange();
  }

  layout() {
    this.width = Math.max(this.svg.parentElement.clientWidth, 300);
    // on a phone no more than the longest name needs
    const names = this.laneNames.map(name => name.getComputedTextLength() + 10);
    this.left = this.width < 640 ? Math.max(66, ...names) : 92;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.lanes.forEach(lane => set(lane, { x: this.left, width: this.right - this.left }));
    this.laneNames.forEach(name => name.setAttribute("x", this.left - 8));
    this.levels.forEach(level => level.setAttribute("x", this.right + 4));
    this.levelLines.forEach(line => line.setAttribute("d", `M${this.left} 0H${this.right}`));
    this.timed.forEach(rect => this.place(rect));
    this.marks.forEach(mark => this.move(mark));
    this.spanNames.forEach(name => this.nameSpan(name));
    this.markNames.forEach(name => this.nameMark(name));
    this.drawWorld();
    this.drawAxis();
  }

  place(rect) {
    const begin = Number(rect.dataset.a), end = Number(rect.dataset.b);
    const seen = end >= this.from && begin <= this.to;
    rect.classList.toggle("out", !seen);
    if (!seen) return;
    const left = this.inside(this.x(begin));
    set(rect, { x: left, width: Math.max(this.inside(this.x(end)) - left, 1.5) });
  }

  move(mark) {
    const second = Number(mark.dataset.a);
    const seen = second >= this.from && second <= this.to;
    mark.classList.toggle("out", !seen);
    if (seen) mark.setAttribute("transform", `translate(${this.x(second).toFixed(2)} ${mark.dataset.y})`);
  }

  // Inside what can be seen of its span, as much of it as fits.
  nameSpan(name) {
    const left = this.inside(this.x(Number(name.dataset.a))), right = this.inside(this.x(Number(name.dataset.b)));
    name.textContent = fitting(name, right - left - 8);
    name.setAttribute("x", left + 6);
  }

  // Above its mark, moved aside where it would leave the sheet.
  nameMark(name) {
    const second = Number(name.dataset.a);
    const seen = second >= this.from && second <= this.to;
    name.classList.toggle("out", !seen);
    if (!seen) return;
    name.textContent = fitting(name, this.right - this.left - 4);
    const half = name.textContent.length * CHARACTER / 2;
    name.setAttribute("x", Math.max(this.left + 2 + half, Math.min(this.x(second), this.right - 2 - half)));
  }

  drawWorld() {
    if (!this.world) return;
    const corners = this.world.dataset.corners.trim().split(" ").map(corner => corner.split(":").map(Number));
    const line = corners.map(([second, y], number) => {
      const x = this.inside(this.x(second)).toFixed(2);
      return number ? `H${x}V${y}` : `M${x} ${y}`;
    }).join("");
    this.world.querySelector(".world-line").setAttribute("d", line);
    const area = `${line}V${this.world.dataset.bottom}H${this.inside(this.x(corners[0][0])).toFixed(2)}Z`;
    this.world.querySelector(".world-area").setAttribute("d", area);
  }

  drawAxis() {
    this.axis.replaceChildren();
    const rough = this.span / Math.max(2, (this.right - this.left) / 100);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(factor => factor * power).find(size => size >= rough);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    for (let number = Math.ceil(this.from / step - 1e-9); number * step <= this.to + 1e-9; number++) {
      const x = this.x(number * step);
      this.axis.append(made("path", { class: "grid", d: `M${x} 8V${this.height - 26}` }));
      const tick = made("text", { class: "tick", x, y: this.height - 12 });
      tick.textContent = `${(number * step).toFixed(digits)} s`;
      this.axis.append(tick);
    }
  }

  listen() {
    let start = null;
    const at = event => this.inside(event.clientX - this.svg.getBoundingClientRect().left);
    this.svg.addEventListener("pointerdown", event => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      start = at(event);
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointermove", event => {
      if (start !== null) set(this.brush, { x: Math.min(start, at(event)), width: Math.abs(at(event) - start) });
    });
    this.svg.addEventListener("pointerup", event => {
      const [first, last] = [start, at(event)].sort((one, other) => one - other);
      if (start !== null && last - first > 6) this.show(this.second(first), this.second(last));
      start = null;
      this.brush.setAttribute("width", 0);
    });
    this.svg.addEventListener("pointercancel", () => { start = null; this.brush.setAttribute("width", 0); });
    this.svg.addEventListener("dblclick", () => this.show(0, this.duration));
  }
}
Timeline.RIGHT = 18;
Timeline.SHORTEST_S = 0.001;
// the width of one at the font size of the labels: an estimate on the safe side
const CHARACTER = 6.3;

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}

function made(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(element, attributes);
  return element;
}

function fitting(name, room) {
  name.dataset.texts ??= name.textContent;
  return name.dataset.texts.split("|").find(text => text.length * CHARACTER < room) ?? "";
}
