// Tables. Rows are drawn where they are seen: ten thousand cost no more than fifty. Sorting and the
// search are in the address.

import { count } from "./format.js";
import { html, useEffect, useMemo, useRef, useState } from "./lib.js";
import { route, setQuery } from "./router.js";
import { Empty } from "./ui.js";

const ROW = 36;
const BEYOND = 12;
const FEW = 6; // so many rows need no search

function words(text) {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}

function found(rows, text, searched) {
  const wanted = words(text);
  if (!wanted.length) return rows;
  return rows.filter((row) => {
    const whole = searched(row).toLowerCase();
    return wanted.every((word) => whole.includes(word));
  });
}

function ordered(rows, column, isDown) {
  if (!column) return rows;
  const sign = isDown ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [one, other] = [column.value(a), column.value(b)];
    return sign * (typeof one === "string" ? one.localeCompare(other ?? "") : (one ?? -1) - (other ?? -1));
  });
}

// columns: {name, title, value(row), cell(row), align, sticky, sort: false; wide: not on narrow screens,
// or on the widest only}
// wrap: rows as high as their text, all of them drawn.
export function Table({ columns, rows, id, search, searched, href, empty = "Nothing here.", tall = false, wrap = false, tools, label }) {
  const query = route.value.query;
  const prefix = id ? `${id}.` : "";
  const sorted = query[`${prefix}sort`] ?? "";
  const text = query[`${prefix}q`] ?? "";
  const by = columns.find((one) => one.value && one.name === sorted.replace(/^-/, ""));
  const textOf = searched ?? ((row) => columns.filter((one) => one.value).map((one) => one.value(row) ?? "").join(" "));
  const shown = useMemo(
    () => ordered(found(rows, text, textOf), by, sorted.startsWith("-")),
    [rows, text, sorted],
  );

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
  const first = wrap ? 0 : Math.min(seen.first, Math.max(0, shown.length - 1));
  const drawn = wrap ? shown : shown.slice(first, seen.last);
  const sort = (column) => {
    const down = column.align === "right" ? `-${column.name}` : column.name;
    const up = column.align === "right" ? column.name : `-${column.name}`;
    setQuery({ [`${prefix}sort`]: sorted === down ? up : sorted === up ? "" : down });
  };
  const direction = (column) =>
    by !== column ? undefined : sorted.startsWith("-") ? "descending" : "ascending";
  const classes = (column) =>
    [column.align, column.wide && (column.wide === "widest" ? "widestonly" : "wideonly"), column.sticky && "sticky"].filter(Boolean).join(" ");
  const hasSearch = search || rows.length > FEW || text;
  const asked = search ?? `Search ${(label ?? "this table").toLowerCase()}`;

  return html`
    <div class="tablebox">
      ${(hasSearch || tools) &&
      html`<div class="tools">
        ${hasSearch &&
        html`<input type="search" class="search" data-search placeholder=${asked} aria-label=${asked} value=${text}
          onInput=${(event) => setQuery({ [`${prefix}q`]: event.target.value })} />
        <span class="faint" role="status">${shown.length === rows.length ? count(rows.length) : `${count(shown.length)} of ${count(rows.length)}`}</span>`}
        ${tools && html`<span class="grow"></span>${tools}`}
      </div>`}
      <div class="scroll ${tall ? "tall" : ""} ${wrap ? "wrap" : ""}" ref=${box} onScroll=${look} tabindex="0" role="region" aria-label=${label ?? search?.replace("Search ", "") ?? "Table"}>
        <table aria-rowcount=${shown.length + 1}>
          <thead>
            <tr>
              ${columns.map(
                (column) => html`
                  <th key=${column.name} scope="col" class=${classes(column)} aria-sort=${direction(column)}>
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
                    const linked = place === 0 && href ? html`<a data-row href=${href(row)}>${cell}</a>` : cell;
                    return html`<td class=${classes(column)}>${linked}</td>`;
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
