// The parts that views are made of.

import { bytes, count, time, visible } from "./format.js";
import { html, signal, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./lib.js";
import { route, setQuery } from "./router.js";
import uPlot from "./vendor/uplot.js";

// --- text of others: shown, never run, never turning the text around it

export const Foreign = ({ text, mono = false }) => html`<bdi class=${mono ? "foreign mono" : "foreign"}>${visible(text)}</bdi>`;

export const Badge = ({ kind = "plain", children }) => html`<span class="badge ${kind}">${children}</span>`;

export const When = ({ at }) =>
  at ? html`<time dateTime=${new Date(at * 1000).toISOString()}>${time(at)}</time>` : html`<span class="faint">–</span>`;

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

export const Facts = ({ of }) => html`
  <dl class="facts">
    ${of.filter(([, value]) => value !== undefined).map(
      ([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`,
    )}
  </dl>`;

// --- what is asked of the broker

// Asks now, and again every so many seconds while the page is seen. `again()` asks at once.
export function useAsked(ask, needs, { every } = {}) {
  const [state, setState] = useState({ value: null, error: null, isAsking: true });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const controller = new AbortController();
    let timer;
    const run = async () => {
      let seconds = typeof every === "number" ? every : null;
      try {
        const value = await ask(controller.signal);
        if (controller.signal.aborted) return;
        setState({ value, error: null, isAsking: false });
        if (typeof every === "function") seconds = every(value);
      } catch (error) {
        if (controller.signal.aborted) return;
        setState((before) => ({ value: before.value, error, isAsking: false }));
        if (typeof every === "function") seconds = 5;
      }
      if (seconds) timer = setTimeout(later, seconds * 1000);
    };
    const later = () => {
      if (document.visibilityState === "visible") run();
      else timer = setTimeout(later, 1000);
    };
    setState((before) => ({ ...before, isAsking: true }));
    run();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [...needs, turn]);
  return { ...state, again: () => setTurn((before) => before + 1) };
}

export const Fault = ({ error, again }) =>
  error &&
  html`<div class="fault" role="alert">
    <p><b>${error.kind ?? "Error"}</b>: <${Foreign} text=${error.message} /></p>
    ${again && html`<button onClick=${again}>Try again</button>`}
  </div>`;

export const Asked = ({ of, children }) => html`
  <${Fault} error=${of.error} again=${of.again} />
  ${of.value ? children(of.value) : of.isAsking && html`<p class="empty" role="status">Loading…</p>`}`;

// --- notices

const notices = signal([]);
let noticeNumber = 0;

export function tell(text, kind = "good") {
  const number = ++noticeNumber;
  notices.value = [...notices.value.slice(-3), { number, text, kind }];
  if (kind === "good") setTimeout(() => dismiss(number), 6000);
}

function dismiss(number) {
  notices.value = notices.value.filter((one) => one.number !== number);
}

export const Notices = () => html`
  <div class="notices" role="status" aria-live="polite">
    ${notices.value.map(
      (one) => html`<div key=${one.number} class="notice ${one.kind}">
        <${Foreign} text=${one.text} />
        <button class="plain" aria-label="Dismiss" onClick=${() => dismiss(one.number)}>×</button>
      </div>`,
    )}
  </div>`;

// --- actions

// A button that does something at the broker, and says what came of it.
export function Action({ does, children, kind = "", done, disabled, title }) {
  const [isBusy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    try {
      const result = await does();
      const text = typeof done === "function" ? done(result) : done;
      if (text) tell(text);
    } catch (error) {
      tell(error.message, "bad");
    } finally {
      setBusy(false);
    }
  };
  return html`<button type="button" class=${kind} disabled=${isBusy || disabled} title=${title} onClick=${run}>${children}</button>`;
}

// --- dialogs

export function Dialog({ title, onClose, children, wide = false }) {
  const element = useRef(null);
  useLayoutEffect(() => {
    const before = document.activeElement;
    element.current.showModal();
    return () => before?.focus?.();
  }, []);
  return html`
    <dialog ref=${element} class=${wide ? "wide" : ""} aria-label=${title}
      onCancel=${(event) => { event.preventDefault(); onClose(); }}
      onClick=${(event) => event.target === element.current && onClose()}>
      <div class="dialog">
        <header><h2>${title}</h2><button type="button" class="plain" aria-label="Close this dialog" onClick=${onClose}>×</button></header>
        ${children}
      </div>
    </dialog>`;
}

// A form in a dialog: `does` carries it out; what goes wrong is shown in place.
export function FormDialog({ title, onClose, does, label, kind = "primary", children, wide, disabled }) {
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const text = await does();
      if (text) tell(text);
      if (text !== false) onClose();
    } catch (fault) {
      setError(fault);
    } finally {
      setBusy(false);
    }
  };
  return html`
    <${Dialog} title=${title} onClose=${onClose} wide=${wide}>
      <form onSubmit=${submit}>
        ${children}
        <${Fault} error=${error} />
        <footer>
          <button type="button" onClick=${onClose}>Cancel</button>
          <button type="submit" class=${kind} disabled=${isBusy || disabled}>${label}</button>
        </footer>
      </form>
    <//>`;
}

// Something that cannot be taken back: asks, for the name if there is one.
export function Confirm({ title, name, does, label, onClose, children }) {
  const [typed, setTyped] = useState("");
  return html`
    <${FormDialog} title=${title} onClose=${onClose} does=${does} label=${label} kind="danger" disabled=${name !== undefined && typed !== name}>
      ${children}
      ${name !== undefined &&
      html`<${Field} label=${html`Type <b><${Foreign} text=${name} /></b> to confirm`}>
        <input value=${typed} onInput=${(event) => setTyped(event.target.value)} autocomplete="off" spellcheck=${false} autofocus />
      <//>`}
    <//>`;
}

let fieldNumber = 0;

export function Field({ label, hint, error, children }) {
  const id = useMemo(() => `field-${++fieldNumber}`, []);
  if (children?.props) {
    children.props.id = id;
    if (hint || error) children.props["aria-describedby"] = `${id}-hint`;
    if (error) children.props["aria-invalid"] = "true";
  }
  return html`
    <div class="field">
      <label for=${id}>${label}</label>
      ${children}
      ${(hint || error) && html`<small id="${id}-hint" class=${error ? "wrong" : "faint"}>${error ?? hint}</small>`}
    </div>`;
}

// --- tables

const ROW = 36;
const BEYOND = 12;

// Rows are drawn where they are seen: ten thousand cost no more than fifty. Sorting and the search
// are in the address. columns: {name, title, value(row), cell(row), align, wide, sort: false}
export function Table({ columns, rows, id, search, searched, href, empty = "Nothing here.", tall = false, tools, label }) {
  const query = route.value.query;
  const prefix = id ? `${id}.` : "";
  const sorted = query[`${prefix}sort`] ?? "";
  const text = query[`${prefix}q`] ?? "";
  const by = columns.find((one) => one.name === sorted.replace(/^-/, ""));
  const shown = useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    let found = rows;
    if (words.length && searched)
      found = rows.filter((row) => {
        const whole = searched(row).toLowerCase();
        return words.every((word) => whole.includes(word));
      });
    if (by) {
      const sign = sorted.startsWith("-") ? -1 : 1;
      const key = by.value;
      found = [...found].sort((a, b) => {
        const [one, other] = [key(a), key(b)];
        return sign * (typeof one === "string" ? one.localeCompare(other) : (one ?? -1) - (other ?? -1));
      });
    }
    return found;
  }, [rows, text, sorted]);

  const box = useRef(null);
  const [seen, setSeen] = useState({ first: 0, last: 60 });
  const look = () => {
    if (!box.current) return; // it is gone already
    const { scrollTop, clientHeight } = box.current;
    const first = Math.max(0, Math.floor(scrollTop / ROW) - BEYOND);
    const last = Math.ceil((scrollTop + clientHeight) / ROW) + BEYOND;
    setSeen((before) => (before.first === first && before.last === last ? before : { first, last }));
  };
  useEffect(() => {
    if (!box.current) return undefined;
    look();
    const observer = new ResizeObserver(look);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (box.current) box.current.scrollTop = 0;
    look();
  }, [text, sorted]);
  const first = Math.min(seen.first, Math.max(0, shown.length - 1));
  const drawn = shown.slice(first, seen.last);
  const sort = (column) => {
    const down = column.align === "right" ? `-${column.name}` : column.name;
    const up = column.align === "right" ? column.name : `-${column.name}`;
    setQuery({ [`${prefix}sort`]: sorted === down ? up : sorted === up ? "" : down });
  };
  const direction = (column) =>
    by !== column ? undefined : sorted.startsWith("-") ? "descending" : "ascending";

  return html`
    <div class="tablebox">
      ${(search || tools) &&
      html`<div class="tools">
        ${search &&
        html`<input type="search" class="search" data-search placeholder=${search} aria-label=${search} value=${text}
          onInput=${(event) => setQuery({ [`${prefix}q`]: event.target.value })} />`}
        ${search && html`<span class="faint" role="status">${shown.length === rows.length ? count(rows.length) : `${count(shown.length)} of ${count(rows.length)}`}</span>`}
        ${tools && html`<span class="grow"></span>${tools}`}
      </div>`}
      <div class="scroll ${tall ? "tall" : ""}" ref=${box} onScroll=${look} tabindex="0" role="region" aria-label=${label ?? search?.replace("Search ", "") ?? "Table"}>
        <table aria-rowcount=${shown.length + 1}>
          <thead>
            <tr>
              ${columns.map(
                (column) => html`
                  <th key=${column.name} scope="col" class="${column.align ?? ""} ${column.wide ? "wideonly" : ""}" aria-sort=${direction(column)}>
                    ${column.value && column.sort !== false
                      ? html`<button class="plain" title=${column.hint} onClick=${() => sort(column)}>${column.title}<span class="arrow" aria-hidden="true">${
                          direction(column) === "descending" ? "↓" : direction(column) ? "↑" : ""
                        }</span></button>`
                      : html`<span title=${column.hint}>${column.title}</span>`}
                  </th>`,
              )}
            </tr>
          </thead>
          <tbody>
            ${first > 0 && html`<tr class="spacer" aria-hidden="true"><td colspan=${columns.length} style=${{ height: `${first * ROW}px` }}></td></tr>`}
            ${drawn.map(
              (row, at) => html`
                <tr key=${row.rowKey ?? first + at} aria-rowindex=${first + at + 2}>
                  ${columns.map((column, place) => {
                    const cell = column.cell ? column.cell(row) : column.value(row);
                    const linked = place === 0 && href ? html`<a href=${href(row)}>${cell}</a>` : cell;
                    return html`<td class="${column.align ?? ""} ${column.wide ? "wideonly" : ""}">${linked}</td>`;
                  })}
                </tr>`,
            )}
            ${first + drawn.length < shown.length &&
            html`<tr class="spacer" aria-hidden="true"><td colspan=${columns.length} style=${{ height: `${(shown.length - first - drawn.length) * ROW}px` }}></td></tr>`}
          </tbody>
        </table>
        ${!shown.length && html`<${Empty}>${rows.length ? "Nothing matches the search." : empty}<//>`}
      </div>
    </div>`;
}

// --- pictures

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
const colours = () => (dark.matches ? { grid: "#33383f", text: "#9aa3ad" } : { grid: "#dcdfe3", text: "#5d6570" });
const dark = matchMedia("(prefers-color-scheme: dark)");

// series: [{name, values}], times in seconds, form(value)
export function Chart({ title, times, series, form = count }) {
  const box = useRef(null);
  const plot = useRef(null);
  const data = [times, ...series.map((one) => one.values)];
  const [shade, setShade] = useState(dark.matches);
  useEffect(() => {
    const changed = () => setShade(dark.matches);
    dark.addEventListener("change", changed);
    return () => dark.removeEventListener("change", changed);
  }, []);
  useLayoutEffect(() => {
    const { grid, text } = colours();
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const made = new uPlot(
      {
        width: box.current.clientWidth || 300,
        height: 140,
        legend: { show: false },
        cursor: { y: false, points: { size: 6 }, drag: { setScale: false } },
        padding: [8, 6, 0, 0],
        scales: { x: { time: true }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
        axes: [
          { ...axis, size: 26, space: 70, values: (_, ticks) => ticks.map((at) => { const when = new Date(at * 1000); return `${String(when.getHours()).padStart(2, "0")}:${String(when.getMinutes()).padStart(2, "0")}`; }) },
          { ...axis, size: 58, space: 30, values: (_, ticks) => ticks.map((value) => form(value)) },
        ],
        series: [{}, ...series.map((one, at) => ({ label: one.name, stroke: LINES[at], width: 1.5, fill: at === 0 && series.length === 1 ? `${LINES[0]}22` : undefined, points: { show: false }, spanGaps: true }))],
      },
      data,
      box.current,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => box.current && made.setSize({ width: box.current.clientWidth || 300, height: 140 }));
    observer.observe(box.current);
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, [shade, series.length]);
  useLayoutEffect(() => plot.current?.setData(data), [times, ...series.map((one) => one.values)]);
  const newest = series.map((one) => `${one.name} ${form(one.values.at(-1) ?? 0)}`).join(", ");
  return html`
    <figure class="card chart">
      <figcaption><h2>${title}</h2>
        <span class="legend">${series.map((one, at) => html`<span class="key k${at + 1}">${one.name} <b>${form(one.values.at(-1) ?? null)}</b></span>`)}</span>
      </figcaption>
      <div ref=${box} role="img" aria-label="${title}: ${newest}"></div>
    </figure>`;
}

export const Tile = ({ name, value, href, kind = "", hint }) => {
  const inner = html`<span class="name">${name}</span><b>${value}</b>${hint && html`<small class="faint">${hint}</small>`}`;
  return href ? html`<a class="card tile ${kind}" href=${href}>${inner}</a>` : html`<div class="card tile ${kind}">${inner}</div>`;
};

export const Progress = ({ done, of, what }) => html`
  <div class="progress" role="status">
    <progress value=${of ? done : undefined} max=${of || 1} aria-label=${what}></progress>
    <span>${what}: ${count(done)}${of ? ` of ${count(of)}` : ""}</span>
  </div>`;

export { bytes };
