// The last events of the broker's log.

import { get } from "../api.js";
import { time } from "../format.js";
import { html } from "../lib.js";
import { lastEvent } from "../live.js";
import { route, setQuery } from "../router.js";
import { Table } from "../table.js";
import { Asked, Badge, Foreign, useAsked } from "../ui.js";

const KIND = { info: "plain", warning: "warn", error: "bad", critical: "bad", debug: "plain" };
// Those that the text has not said already.
const facts = (row) => Object.entries(row.fields).filter(([, value]) => value.length < 4 || !row.message.includes(value)).map(([name, value]) => `${name}=${value}`).join("  ");

const COLUMNS = [
  { name: "time", title: "Time", value: (row) => row.time, cell: (row) => time(row.time) },
  { name: "level", title: "Level", value: (row) => row.level, cell: (row) => html`<${Badge} kind=${KIND[row.level]}>${row.level}<//>` },
  { name: "event", title: "Event", value: (row) => row.event, cell: (row) => html`<code><${Foreign} text=${row.event || row.logger} /></code>` },
  { name: "message", title: "What happened", value: (row) => row.message, cell: (row) => html`<${Foreign} text=${row.message} /> <span class="faint"><${Foreign} text=${facts(row)} /></span>` },
];

export function Events() {
  const found = useAsked((signal) => get("events", undefined, signal), [lastEvent.value]);
  const level = route.value.query.level ?? "all";
  return html`
    <header class="head"><h1>Events</h1></header>
    <${Asked} of=${found}>
      ${({ events }) => {
        const rows = events.toReversed().filter((one) => level === "all" || !["info", "debug"].includes(one.level));
        return html`<${Table} columns=${COLUMNS} rows=${rows.map((one) => ({ ...one, rowKey: one.number }))} search="Search events" searched=${(row) => `${row.event} ${row.message} ${row.logger} ${facts(row)}`} tall wrap empty="Nothing has been logged."
          tools=${html`<label>Show <select value=${level} onChange=${(event) => setQuery({ level: event.target.value === "all" ? "" : "bad" })}><option value="all" selected=${level === "all"}>all</option><option value="bad" selected=${level === "bad"}>warnings and errors</option></select></label>`} />`;
      }}
    <//>`;
}
