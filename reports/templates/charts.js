"use strict";
// Step rate and loss over time, by uPlot, below the time line and on its axis; the stretches of faults are shaded. Behind
// the loss is that of the run without faults at the same steps.
function charts(holder, timeline) {
  const told = JSON.parse(holder.dataset.series);
  const all = [
    ["step rate", told.rate, "steps/s", "--info", []],
    [told.lossName, told.loss, told.lossName, "--violet", told.expected],
  ];
  const drawn = all.filter(([, points]) => points.some(([, value]) => value !== null));
  const plots = drawn.map(([title, points, label, colour, behind]) => {
    const figure = document.createElement("figure");
    figure.className = "chart";
    const caption = document.createElement("figcaption");
    caption.textContent = title;
    figure.append(caption);
    holder.append(figure);
    return plot(figure, points, behind, label, colour, told.shades, timeline);
  });
  return {
    follow() {
      for (const one of plots) {
        if (one.width !== timeline.width) one.setSize({ width: timeline.width, height: CHART_HEIGHT });
        one.setScale("x", { min: timeline.from, max: timeline.to });
      }
    },
    // the colours of the page have changed
    recolour() { plots.forEach(one => one.redraw(false, true)); },
  };
}

const CHART_HEIGHT = 120;

function colourOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function plot(figure, points, behind, label, colour, shades, timeline) {
  const soft = () => colourOf("--soft"), line = { stroke: () => colourOf("--line"), width: 1 };
  const axis = { stroke: soft, grid: line, ticks: { ...line, size: 4 }, font: "11px system-ui, sans-serif" };
  // painted first
  const usual = { label: "without faults", stroke: soft, width: 4, alpha: 0.6, points: { show: false }, spanGaps: false };
  const options = {
    width: timeline.width,
    height: CHART_HEIGHT,
    padding: [8, Timeline.RIGHT, 0, 0],
    legend: { show: true, live: true },
    cursor: { sync: { key: figure.closest(".experiment").id }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
    scales: { x: { time: false }, y: { range: (_, least, most) => uPlot.rangeNum(Math.min(0, least), most || 1, 0.1, true) } },
    axes: [
      { ...axis, size: 24, values: (_, ticks) => ticks.map(tick => `${tick} s`) },
      { ...axis, size: () => timeline.left, space: 26 },
    ],
    series: [
      { label: "at", value: (_, second) => second === null ? "–" : `${second.toFixed(3)} s` },
      ...(behind.length ? [usual] : []),
      { label, stroke: () => colourOf(colour), width: 1.5, points: { show: true, size: 3 }, spanGaps: false },
    ],
    hooks: {
      drawClear: [one => shade(one, shades)],
      setSelect: [one => {
        if (one.select.width > 6) {
          const [from, to] = [one.select.left, one.select.left + one.select.width].map(x => one.posToVal(x, "x"));
          one.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          timeline.show(from, to);
        }
      }],
    },
  };
  const data = [points.map(([second]) => second), ...(behind.length ? [behind] : []), points.map(([, value]) => value)];
  const one = new uPlot(options, data, figure);
  one.setScale("x", { min: timeline.from, max: timeline.to });
  return one;
}

function shade(one, shades) {
  const { left, top, width, height } = one.bbox;
  one.ctx.save();
  one.ctx.beginPath();
  one.ctx.rect(left, top, width, height);
  one.ctx.clip();
  for (const [from, to] of shades) {
    const x = one.valToPos(from, "x", true), until = Math.max(one.valToPos(to, "x", true), x + devicePixelRatio);
    one.ctx.fillStyle = colourOf("--shade");
    one.ctx.fillRect(x, top, until - x, height);
    one.ctx.fillStyle = colourOf("--bad");
    one.ctx.fillRect(x, top, devicePixelRatio, height);
  }
  one.ctx.restore();
}
