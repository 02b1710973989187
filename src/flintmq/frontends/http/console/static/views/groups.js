// The groups of all topics.

import { count, duration, short } from "../format.js";
import { html } from "../lib.js";
import { address } from "../router.js";
import { useFigures } from "../figures.js";
import { Table } from "../table.js";
import { Asked, Badge, Foreign } from "../ui.js";

const stateOf = (row) =>
  row.isPaused ? "paused" : row.lag && row.members === 0 && row.kind === "queue" ? "no consumers" : "";

const COLUMNS = [
  { name: "name", title: "Group", value: (row) => row.name, cell: (row) => html`<${Foreign} text=${row.name} />` },
  { name: "topic", title: "Topic", value: (row) => row.topic, cell: (row) => html`<a href=${address(["topics", row.topic])}><${Foreign} text=${row.topic} /></a>` },
  { name: "kind", title: "Kind", wide: true, value: (row) => row.kind, cell: (row) => (row.kind === "queue" ? "queue" : "reader") },
  { name: "lag", title: "Lag", align: "right", value: (row) => row.lag, cell: (row) => count(row.lag) },
  { name: "flight", title: "In flight", align: "right", value: (row) => row.inFlight, cell: (row) => count(row.inFlight) },
  { name: "delayed", title: "Delayed", align: "right", wide: "widest", value: (row) => row.delayed, cell: (row) => count(row.delayed) },
  { name: "rate", title: "Out/s", align: "right", value: (row) => row.delivered, cell: (row) => short(row.delivered) },
  { name: "members", title: "Members", align: "right", value: (row) => row.members, cell: (row) => count(row.members) },
  { name: "oldest", title: "Oldest", align: "right", value: (row) => row.oldestAge, cell: (row) => (row.oldestAge ? duration(row.oldestAge) : "–") },
  { name: "dead", title: "Dead letters", align: "right", value: (row) => row.deadLetters, cell: (row) => (row.deadLetters ? html`<b class="warn">${count(row.deadLetters)}</b>` : "0") },
  { name: "state", title: "State", value: stateOf, cell: (row) => (row.isPaused ? html`<${Badge} kind="warn">paused<//>` : stateOf(row) && html`<${Badge} kind="bad">no consumers<//>`) },
];

export function Groups() {
  const found = useFigures();
  return html`
    <header class="head"><h1>Groups</h1></header>
    <${Asked} of=${found}>
      ${({ groups }) => html`
        <${Table} columns=${COLUMNS} rows=${groups} search="Search groups" searched=${(row) => `${row.name} ${row.topic}`} tall
          href=${(row) => address(["topics", row.topic, "groups", row.name])} empty="There are no groups yet. A group is created when a consumer first reads a topic under its name." />`}
    <//>`;
}
