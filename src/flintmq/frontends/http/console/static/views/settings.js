// The settings in force: value, where it comes from, what it means.

import { get } from "../api.js";
import { visible } from "../format.js";
import { html } from "../lib.js";
import { Table } from "../table.js";
import { Asked, Badge, Foreign, useAsked } from "../ui.js";

const shown = (value) => (value === null ? "none" : typeof value === "object" ? JSON.stringify(value) : String(value));

const COLUMNS = [
  { name: "name", title: "Setting", value: (row) => row.name, cell: (row) => html`<code>${row.name}</code> ${row.reload && html`<${Badge}>reload<//>`}` },
  { name: "value", title: "Value", value: (row) => shown(row.value), cell: (row) => html`<span title=${visible(shown(row.value))}><${Foreign} text=${shown(row.value)} /></span>` },
  { name: "source", title: "Source", value: (row) => row.source, cell: (row) => html`<span class=${row.source === "default" ? "faint" : ""}><${Foreign} text=${row.source} /></span>` },
  { name: "group", title: "Section", value: (row) => row.group, wide: "widest" },
  { name: "meaning", title: "Meaning", value: (row) => row.meaning, cell: (row) => html`<span class="meaning">${row.meaning}</span>` },
];

export function Settings() {
  const found = useAsked((signal) => get("settings", undefined, signal), []);
  return html`
    <header class="head"><h1>Settings</h1></header>
    <p class="faint">Settings marked "reload" can be changed without a restart: edit the configuration file and send SIGHUP.</p>
    <${Asked} of=${found}>
      ${({ settings }) => html`<${Table} columns=${COLUMNS} rows=${settings.map((one) => ({ ...one, rowKey: one.name }))} search="Search settings" searched=${(row) => `${row.name} ${row.group} ${row.meaning} ${row.source} ${row.reload ? "reload" : ""}`} tall wrap />`}
    <//>`;
}
