// Pipelines, as the broker knows them: each flow is a reader of its source, by the name
// pipeline.<pipeline>.<flow>, or pipeline.<pipeline>.<flow>.<source> if it has several.

import { count, duration, many, short } from "../format.js";
import { html } from "../lib.js";
import { address } from "../router.js";
import { useFigures } from "../figures.js";
import { Table } from "../table.js";
import { Asked, Badge, Empty, Foreign } from "../ui.js";

const PREFIX = "pipeline.";
const PINNED = ".pinned-start"; // where a query begins, until its first batch is done

function flowsOf(groups, topics) {
  const published = new Map(topics.map((one) => [one.name, one.published]));
  const messages = new Map(topics.map((one) => [one.name, one.messages]));
  const readers = groups.filter((one) => one.kind === "cursor");
  const known = new Set(readers.map((one) => one.rowKey));
  return readers
    .filter((one) => !one.name.endsWith(PINNED) || !known.has(one.rowKey.slice(0, -PINNED.length)))
    .map((one) => {
      const isPinned = one.name.endsWith(PINNED);
      const name = isPinned ? one.name.slice(0, -PINNED.length) : one.name;
      const [pipeline, ...rest] = name.startsWith(PREFIX) ? name.slice(PREFIX.length).split(".") : [null, name];
      const gain = (one.delivered ?? 0) - (published.get(one.topic) ?? 0);
      return {
        ...one,
        pipeline,
        flow: rest.join("."),
        share: messages.get(one.topic) ? Math.max(0, 1 - one.lag / messages.get(one.topic)) : 1,
        left: one.lag === 0 ? 0 : gain > 0 ? one.lag / gain : null,
        state: isPinned ? "first batch" : one.members === null ? "unknown" : one.members ? "running" : "stopped",
      };
    });
}

const STATES = {
  running: html`<${Badge} kind="good">running<//>`,
  stopped: html`<${Badge}>not running<//>`,
  "first batch": html`<${Badge} kind="warn">first batch<//>`,
  unknown: html`<span class="faint">–</span>`,
};

const COLUMNS = [
  { name: "flow", title: "Flow", value: (row) => row.flow, cell: (row) => html`<${Foreign} text=${row.flow} />` },
  { name: "pipeline", title: "Pipeline", value: (row) => row.pipeline, cell: (row) => html`<${Foreign} text=${row.pipeline} />` },
  { name: "topic", title: "Reads", value: (row) => row.topic, cell: (row) => html`<a href=${address(["topics", row.topic])}><${Foreign} text=${row.topic} /></a>` },
  { name: "state", title: "State", value: (row) => row.state, cell: (row) => STATES[row.state] },
  { name: "progress", title: "Progress", align: "right", wide: true, value: (row) => row.share, cell: (row) => html`<span class="share"><progress value=${row.share} max="1" aria-label="${Math.floor(row.share * 100)} % of what is stored is read"></progress>${Math.floor(row.share * 100)} %</span>` },
  { name: "lag", title: "Lag", align: "right", value: (row) => row.lag, cell: (row) => count(row.lag) },
  { name: "read", title: "Read/s", align: "right", value: (row) => row.delivered, cell: (row) => short(row.delivered) },
  { name: "left", title: "Caught up in", align: "right", hint: "if reading and publishing go on at this rate", value: (row) => row.left ?? Infinity, cell: (row) => (row.left === 0 ? "caught up" : row.left === null ? "–" : duration(Math.ceil(row.left))) },
];
const OTHERS = [{ ...COLUMNS[0], title: "Reader" }, ...COLUMNS.slice(2)];
const toGroup = (row) => address(["topics", row.topic, "groups", row.name]);

export function Pipelines() {
  const found = useFigures();
  return html`
    <header class="head"><h1>Pipelines</h1></header>
    <${Asked} of=${found}>
      ${({ groups, topics }) => {
        const flows = flowsOf(groups, topics);
        const own = flows.filter((one) => one.pipeline !== null);
        const others = flows.filter((one) => one.pipeline === null);
        const running = own.filter((one) => one.state === "running").length;
        return html`
          ${own.length
            ? html`<p class="faint">${many(own.length, "flow")}, ${count(running)} running. The position of a flow moves when a micro-batch is done.</p>
              <${Table} columns=${COLUMNS} rows=${own} search="Search flows" label="Flows" href=${toGroup} />`
            : html`<${Empty}>No pipeline has read from this broker yet. Start one with <code>flintmq pipeline run FILE</code>.<//>`}
          ${others.length > 0 &&
          html`<h2>Other named readers</h2>
            <p class="faint">Spark queries with the option <code>group</code>, and programs that read a topic under a name.</p>
            <${Table} columns=${OTHERS} rows=${others} id="r" label="Readers" href=${toGroup} />`}`;
      }}
    <//>`;
}
