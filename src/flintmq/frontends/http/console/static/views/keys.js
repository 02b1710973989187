// API keys: made and removed here. A secret is shown once.

import { enter, get, me, post, remove } from "../api.js";
import { age, time } from "../format.js";
import { html, useState } from "../lib.js";
import { Table } from "../table.js";
import { Asked, Badge, Confirm, Dialog, Field, Foreign, FormDialog, tell, useAsked } from "../ui.js";

const PERMISSIONS = ["publish", "consume", "administer"];

export function Keys() {
  const found = useAsked((signal) => get("keys", undefined, signal), [], { every: 10 });
  const [open, setOpen] = useState(null);
  const [made, setMade] = useState(null);
  const [removing, setRemoving] = useState(null);
  const columns = [
    { name: "name", title: "Key", value: (row) => row.name, cell: (row) => html`<${Foreign} text=${row.name} />` },
    { name: "id", title: "Id", value: (row) => row.id, cell: (row) => html`<code>${row.id}</code>`, wide: true },
    { name: "grants", title: "Permissions", value: (row) => Object.keys(row.grants).join(" "), cell: (row) => Object.entries(row.grants).map(([pattern, may]) => html`<span key=${pattern} class="grant"><code><${Foreign} text=${pattern} /></code> ${may.join(", ")} </span>`) },
    { name: "made", title: "Created", value: (row) => row.made_at ?? 0, cell: (row) => age(row.made_at), wide: true },
    { name: "used", title: "Last used", value: (row) => row.last_used_at ?? 0, cell: (row) => age(row.last_used_at) },
    { name: "expires", title: "Expires", value: (row) => row.expires_at ?? Infinity, cell: (row) => (!row.expires_at ? "never" : row.expires_at * 1000 < Date.now() ? html`<${Badge} kind="bad">expired<//>` : time(row.expires_at, { millis: false })) },
    { name: "note", title: "Note", value: (row) => row.note, cell: (row) => html`<${Foreign} text=${row.note} />`, wide: true },
    { name: "remove", title: "", sticky: true, cell: (row) => html`<button class="small danger" aria-label="Remove key ${row.name}" onClick=${() => setRemoving(row)}>Remove</button>` },
  ];
  return html`
    <header class="head"><h1>Keys</h1>
      ${!me.value.asks_for_keys && html`<${Badge} kind="warn">authentication is off<//>`}
      <span class="grow"></span>
      ${me.value.can_change_keys && html`<button class="primary" onClick=${() => setOpen("create")}>Create key</button>`}
    </header>
    <${Asked} of=${found}>
      ${({ keys }) => html`<${Table} columns=${columns} rows=${keys.map((one) => ({ ...one, rowKey: one.id }))} search="Search keys" searched=${(row) => `${row.name} ${row.id} ${row.note}`}
        empty="There are no keys: anyone who can reach this broker may do anything. Creating the first key changes that." />`}
    <//>
    ${open && html`<${CreateKey} onClose=${() => setOpen(null)} isFirst=${!me.value.asks_for_keys} onMade=${(key) => { setMade(key); found.again(); }} />`}
    ${made && html`<${Made} made=${made} onClose=${() => setMade(null)} />`}
    ${removing &&
    html`<${Confirm} title="Remove key" name=${removing.name} label="Remove" onClose=${() => setRemoving(null)}
      does=${async () => {
        await remove(`keys/${removing.id}`);
        found.again();
        return `Key ${removing.name} was removed. Its clients are disconnected within a second.`;
      }}>
      <p>Clients that use this key are disconnected. ${removing.id === me.value.key ? html`<b>This is the key you are signed in with.</b>` : ""}</p>
    <//>`}`;
}

function CreateKey({ onClose, isFirst, onMade }) {
  const [name, setName] = useState("");
  const [grants, setGrants] = useState([isFirst ? { pattern: ">", may: PERMISSIONS } : { pattern: "", may: ["consume"] }]);
  const [days, setDays] = useState("");
  const [note, setNote] = useState("");
  const change = (at, changes) => setGrants(grants.map((one, place) => (place === at ? { ...one, ...changes } : one)));
  const isAll = grants.some((one) => one.pattern.trim() === ">" && one.may.includes("administer"));
  const create = async () => {
    const body = { name, note, grants: Object.fromEntries(grants.map((one) => [one.pattern.trim(), one.may])) };
    if (days) body.expires = Number(days) * 86400;
    const made = await post("keys", body);
    if (made.is_first) {
      // From now on a key is asked for: of this page, too.
      await enter(made.key).catch(() => {});
    }
    onMade(made);
    return "";
  };
  return html`
    <${FormDialog} title="Create key" label="Create" onClose=${onClose} does=${create} wide disabled=${!name || grants.some((one) => !one.pattern.trim() || !one.may.length)}>
      ${isFirst &&
      html`<p class="fault">This is the first key: from then on <b>every client of this broker needs one</b>${isAll ? ". This page is signed in with the new key" : ""}.
        ${!isAll && html`<b> This key may not administer everything (<code>></code>): with it alone, you could not manage this broker any more.</b>`}</p>`}
      <${Field} label="Name"><input value=${name} onInput=${(event) => setName(event.target.value)} autocomplete="off" spellcheck=${false} required autofocus /><//>
      ${grants.map(
        (grant, at) => html`
          <fieldset key=${at} class="grantbox"><legend>Grant ${at + 1}</legend>
            <${Field} label="Topics" hint="A name. * stands for one word, > for the rest; > alone for all topics"><input value=${grant.pattern} onInput=${(event) => change(at, { pattern: event.target.value })} autocomplete="off" spellcheck=${false} /><//>
            <div class="choices">${PERMISSIONS.map((one) => html`<label key=${one}><input type="checkbox" checked=${grant.may.includes(one)} onChange=${() => change(at, { may: grant.may.includes(one) ? grant.may.filter((other) => other !== one) : [...grant.may, one] })} /> ${one}</label>`)}</div>
            ${grants.length > 1 && html`<button type="button" onClick=${() => setGrants(grants.filter((_, place) => place !== at))}>Remove this grant</button>`}
          </fieldset>`,
      )}
      <p><button type="button" onClick=${() => setGrants([...grants, { pattern: "", may: ["consume"] }])}>Add a grant</button></p>
      <div class="two">
        <${Field} label="Expires after (days)" hint="Empty: never"><input type="number" min="0" step="any" value=${days} onInput=${(event) => setDays(event.target.value)} /><//>
        <${Field} label="Note"><input value=${note} onInput=${(event) => setNote(event.target.value)} /><//>
      </div>
    <//>`;
}

const Made = ({ made, onClose }) => html`
  <${Dialog} title="Key created" onClose=${onClose}>
    <p>Copy the key <b><${Foreign} text=${made.name} /></b> now. <b>It is not shown again.</b></p>
    <p><code class="secret" tabindex="0">${made.key}</code></p>
    <footer>
      ${navigator.clipboard && html`<button onClick=${() => navigator.clipboard.writeText(made.key).then(() => tell("Copied."), () => tell("The browser did not allow copying.", "bad"))}>Copy</button>`}
      <button class="primary" onClick=${onClose}>I have copied it</button>
    </footer>
  <//>`;
