// The settings in force: value, where it comes from, what it means.

import { get } from "../api.js";
import { html } from "../lib.js";
import { Asked, Badge, Foreign, Table, useAsked } from "../ui.js";

const shown = (value) => (value === null ? "none" : typeof value === "object" ? JSON.stringify(value) : String(value));

const COLUMNS = [
  { name: "name", title: "Setting", value: (row) => row.name, cell: (row) => html`<code>${row.name}</code>` },
  { name: "value", title: "Value", value: (row) => shown(row.value), cell: (row) => html`<${Foreign} text=${shown(row.value)} />` },
  { name: "source", title: "Source", value: (row) => row.source, cell: (row) => html`<span class=${row.source === "default" ? "faint" : ""}><${Foreign} text=${row.source} /></span>` },
  { name: "reload", title: "", sort: false, cell: (row) => (row.reload ? html`<${Badge}>reload<//>` : "") },
  { name: "group", title: "Part", value: (row) => row.group, wide: true },
  { name: "meaning", title: "Meaning", sort: false, cell: (row) => html`<span class="meaning">${row.meaning}</span>` },
];

export function Settings() {
  const found = useAsked((signal) => get("settings", undefined, signal), []);
  return html`
    <header class="head"><h1>Settings</h1></header>
    <p class="faint">Those marked "reload" can be changed while the broker runs: edit the file and send SIGHUP.</p>
    <${Asked} of=${found}>
      ${({ settings }) => html`<${Table} columns=${COLUMNS} rows=${settings.map((one) => ({ ...one, rowKey: one.name }))} search="Search settings" searched=${(row) => `${row.name} ${row.group} ${row.meaning} ${row.source}`} tall />`}
    <//>`;
}
