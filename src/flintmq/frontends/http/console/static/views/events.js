// The last events of the broker's log.

import { get } from "../api.js";
import { time } from "../format.js";
import { html, useState } from "../lib.js";
import { lastEvent } from "../live.js";
import { Asked, Badge, Foreign, Table, useAsked } from "../ui.js";

const KIND = { info: "plain", warning: "warn", error: "bad", critical: "bad", debug: "plain" };
const facts = (row) => Object.entries(row.fields).map(([name, value]) => `${name}=${value}`).join("  ");

const COLUMNS = [
  { name: "time", title: "Time", value: (row) => row.time, cell: (row) => time(row.time) },
  { name: "level", title: "Level", value: (row) => row.level, cell: (row) => html`<${Badge} kind=${KIND[row.level]}>${row.level}<//>` },
  { name: "event", title: "Event", value: (row) => row.event, cell: (row) => html`<code><${Foreign} text=${row.event || row.logger} /></code>` },
  { name: "message", title: "What happened", sort: false, cell: (row) => html`<${Foreign} text=${row.message} /> <span class="faint"><${Foreign} text=${facts(row)} /></span>` },
];

export function Events() {
  const found = useAsked((signal) => get("events", undefined, signal), [lastEvent.value]);
  const [level, setLevel] = useState("all");
  return html`
    <header class="head"><h1>Events</h1></header>
    <${Asked} of=${found}>
      ${({ events }) => {
        const rows = events.toReversed().filter((one) => level === "all" || !["info", "debug"].includes(one.level));
        return html`<${Table} columns=${COLUMNS} rows=${rows.map((one) => ({ ...one, rowKey: one.number }))} search="Search events" searched=${(row) => `${row.event} ${row.message} ${row.logger} ${facts(row)}`} tall empty="Nothing was logged."
          tools=${html`<label>Show <select value=${level} onChange=${(event) => setLevel(event.target.value)}><option value="all">all</option><option value="bad">warnings and errors</option></select></label>`} />`;
      }}
    <//>`;
}
