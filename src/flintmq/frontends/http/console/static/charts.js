// Lines: the sparkline of a row, and the charts of the last hour.

import { count } from "./format.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import uPlot from "./vendor/uplot.js";

export function Spark({ values, title }) {
  if (!values.length) return html`<svg class="spark" viewBox="0 0 90 20" role="img" aria-label="no messages in the last five minutes"><line x1="0" y1="18.5" x2="90" y2="18.5" /></svg>`;
  const most = Math.max(...values, 1);
  const step = 90 / (values.length - 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(18.5 - (16 * value) / most).toFixed(1)}`);
  return html`<svg class="spark" viewBox="0 0 90 20" role="img" aria-label=${title ?? `at most ${count(most)} in ten seconds`}>
    <polygon points="0,18.5 ${points.join(" ")} 90,18.5" /><polyline points=${points.join(" ")} /></svg>`;
}

// A canvas does not know light-dark().
const LINES = ["#d9622b", "#3987c9", "#a767c4"];
const dark = matchMedia("(prefers-color-scheme: dark)");
const colours = () => (dark.matches ? { grid: "#33383f", text: "#9aa3ad" } : { grid: "#dcdfe3", text: "#5d6570" });
const HEIGHT = 150;
const SPAN = 300; // seconds that are shown at least
export const POWERS_OF_TWO = Array.from({ length: 50 }, (_, at) => 2 ** at);

const pad = (number) => String(number).padStart(2, "0");
function clock(seconds, withSeconds) {
  const at = new Date(seconds * 1000);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}${withSeconds ? `:${pad(at.getSeconds())}` : ""}`;
}

function optionsOf({ box, series, form, least, steps, told }) {
  const { grid, text } = colours();
  const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  return {
    width: box.clientWidth || 300,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { setScale: false } },
    padding: [8, 18, 0, 0],
    scales: {
      x: { time: true, range: (_, low, high) => [Math.min(low, high - SPAN), high] },
      y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : least] },
    },
    axes: [
      { ...axis, size: 26, space: 70, values: (_, ticks) => ticks.map((at) => clock(at, at % 60 !== 0)) },
      { ...axis, size: 64, space: 30, ...(steps ? { incrs: steps } : {}), values: (_, ticks) => ticks.map((value) => form(value)) },
    ],
    series: [{}, ...series.map((one, at) => ({ label: one.name, stroke: LINES[at], width: 1.5, fill: at === 0 && series.length === 1 ? `${LINES[0]}22` : undefined, points: { show: false }, spanGaps: true }))],
    hooks: { setCursor: [(made) => told(made.cursor.idx ?? null)] },
  };
}

// series: [{name, values}], times in seconds, form(value); least: the height of a chart of nothing.
// Under the pointer, the legend has the values of that time; else the newest.
export function Chart({ title, times, series, form = count, least = 10, steps }) {
  const box = useRef(null);
  const plot = useRef(null);
  const data = [times, ...series.map((one) => one.values)];
  const [shade, setShade] = useState(dark.matches);
  const [pointed, setPointed] = useState(null);
  useEffect(() => {
    const changed = () => setShade(dark.matches);
    dark.addEventListener("change", changed);
    return () => dark.removeEventListener("change", changed);
  }, []);
  useLayoutEffect(() => {
    const made = new uPlot(optionsOf({ box: box.current, series, form, least, steps, told: setPointed }), data, box.current);
    plot.current = made;
    const observer = new ResizeObserver(() => box.current && made.setSize({ width: box.current.clientWidth || 300, height: HEIGHT }));
    observer.observe(box.current);
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, [shade, series.length]);
  useLayoutEffect(() => plot.current?.setData(data), [times, ...series.map((one) => one.values)]);
  const at = pointed !== null && pointed < times.length ? pointed : times.length - 1;
  const newest = series.map((one) => `${one.name} ${form(one.values.at(-1) ?? null)}`).join(", ");
  return html`
    <figure class="card chart">
      <figcaption><h2>${title}</h2>
        ${pointed !== null && html`<span class="faint">${clock(times[at], true)}</span>`}
        <span class="legend">${series.map((one, place) => html`<span class="key k${place + 1}">${one.name} <b>${form(one.values[at] ?? null)}</b></span>`)}</span>
      </figcaption>
      <div ref=${box} role="img" aria-label="${title}: ${newest}"></div>
    </figure>`;
}

export const Tile = ({ name, value, href, kind = "", hint }) => {
  const inner = html`<span class="name">${name}</span><b>${value}</b>${hint && html`<small class="faint">${hint}</small>`}`;
  return href ? html`<a class="card tile ${kind}" href=${href}>${inner}</a>` : html`<div class="card tile ${kind}">${inner}</div>`;
};
