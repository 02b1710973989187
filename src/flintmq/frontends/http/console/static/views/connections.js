// Clients of the native protocol: who they are, what went over each connection.

import { get, remove } from "../api.js";
import { age, bytes } from "../format.js";
import { html, useState } from "../lib.js";
import { Table } from "../table.js";
import { Asked, Confirm, Foreign, useAsked } from "../ui.js";

async function all(signal) {
  const found = [];
  let after;
  do {
    const page = await get("connections", { limit: 1000, after }, signal);
    found.push(...page.connections);
    after = page.after;
  } while (after !== null);
  return found;
}

export function Connections() {
  const found = useAsked(all, [], { every: 5 });
  const [closing, setClosing] = useState(null);
  const columns = [
    { name: "id", title: "Id", value: (row) => Number(row.id), cell: (row) => row.id },
    { name: "peer", title: "Address", value: (row) => row.peer, cell: (row) => html`<${Foreign} text=${row.peer} />` },
    { name: "client", title: "Client", value: (row) => row.client, cell: (row) => html`<${Foreign} text=${row.client} />` },
    { name: "key", title: "Key", value: (row) => row.key, cell: (row) => (row.key ? html`<${Foreign} text=${row.key} />` : "–") },
    { name: "since", title: "Connected", value: (row) => row.since, cell: (row) => age(row.since) },
    { name: "streams", title: "Streams", align: "right", value: (row) => row.streams },
    { name: "in", title: "Received", align: "right", value: (row) => row.bytes_received, cell: (row) => bytes(row.bytes_received) },
    { name: "out", title: "Sent", align: "right", value: (row) => row.bytes_sent, cell: (row) => bytes(row.bytes_sent) },
    { name: "close", title: "", sticky: true, cell: (row) => html`<button class="small" aria-label="Close connection ${row.id}" onClick=${() => setClosing(row)}>Close</button>` },
  ];
  return html`
    <header class="head"><h1>Connections</h1></header>
    <${Asked} of=${found}>
      ${(rows) => html`<${Table} columns=${columns} rows=${rows.map((one) => ({ ...one, rowKey: one.id }))} search="Search connections" searched=${(row) => `${row.peer} ${row.client} ${row.key}`} tall empty="No client is connected." />`}
    <//>
    ${closing &&
    html`<${Confirm} title="Close connection" label="Close" onClose=${() => setClosing(null)}
      does=${async () => {
        await remove(`connections/${closing.id}`);
        found.again();
        return `Connection ${closing.id} was closed.`;
      }}>
      <p>The client at <${Foreign} text=${closing.peer} /> will be disconnected. It may reconnect; the messages it holds stay leased to it until their leases expire.</p>
    <//>`}`;
}
