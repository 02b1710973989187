// Dead letters: what groups gave up on, by reason and time.

import { get, may, path, post } from "../api.js";
import { count, cut, localTime, many, time, visible } from "../format.js";
import { html, useState } from "../lib.js";
import { preview } from "../decode.js";
import { address, route, setQuery } from "../router.js";
import { useFigures } from "../figures.js";
import { Table } from "../table.js";
import { Asked, Confirm, Empty, Foreign, useAsked } from "../ui.js";
import { Letter } from "./letter.js";
import { ByFilter, InLots } from "./redrive.js";

const LOT = 200;
const LOADED_MAX = 1000;

const COLUMNS = [
  { name: "name", title: "Group", value: (row) => row.name, cell: (row) => html`<${Foreign} text=${row.name} />` },
  { name: "topic", title: "Topic", value: (row) => row.topic, cell: (row) => html`<a href=${address(["topics", row.topic])}><${Foreign} text=${row.topic} /></a>` },
  { name: "dead", title: "Dead letters", align: "right", value: (row) => row.deadLetters, cell: (row) => html`<b>${count(row.deadLetters)}</b>` },
  { name: "lag", title: "Lag", align: "right", value: (row) => row.lag, cell: (row) => count(row.lag) },
];

// All groups that have some.
export function DeadLetters() {
  const found = useFigures();
  return html`
    <header class="head"><h1>Dead letters</h1></header>
    <${Asked} of=${found}>
      ${({ groups, topics }) => {
        const rows = groups.filter((one) => one.deadLetters && may("consume", one.topic));
        const own = new Set(rows.map((one) => `dead.${one.topic}.${one.name}`));
        const shared = topics.filter((one) => one.deadLetters && !own.has(one.name) && !rows.some((row) => row.topic === one.name));
        return html`
          <${Table} columns=${COLUMNS} rows=${rows} search="Search groups" searched=${(row) => `${row.name} ${row.topic}`} tall
            href=${(row) => address(["topics", row.topic, "groups", row.name, "dead-letters"])} empty="No dead letters. Nothing was given up." />
          ${shared.length > 0 &&
          html`<p class="faint">Dead-letter topics that several groups share (the page of each group shows which are its own):
            ${shared.map((one) => html` <a key=${one.name} href=${address(["topics", one.name])}><${Foreign} text=${one.name} /></a> (${count(one.deadLetters)})`)}</p>`}`;
      }}
    <//>`;
}

// Those of one group.
export function Letters({ topic, group, total, again }) {
  const where = `${path("topics", topic, "groups", group)}/dead-letters`;
  const { reason = "", letter: openId = "", since = "" } = route.value.query;
  const [limit, setLimit] = useState(LOT);
  const [chosen, setChosen] = useState(new Set());
  const [open, setOpen] = useState(null);
  const found = useAsked((signal) => loaded(where, limit, since, signal), [where, limit, since]);
  const reload = () => {
    setChosen(new Set());
    found.again();
    again();
  };
  const done = () => {
    setOpen(null);
    reload();
  };
  const mayChange = may("administer", topic);
  return html`
    <${Asked} of=${found}>
      ${({ letters, hasMore }) => {
        const shown = letters.filter((one) => !reason || one.reason === reason).toReversed();
        const current = shown.find((one) => one.id === openId);
        const ids = [...chosen];
        const toggle = (id) => {
          const next = new Set(chosen);
          if (!next.delete(id)) next.add(id);
          setChosen(next);
        };
        return html`
          <${Narrowing} letters=${letters} hasMore=${hasMore} reason=${reason} since=${since} reload=${reload} />
          ${mayChange && html`<${Verbs} chosen=${ids.length} any=${letters.length > 0} setOpen=${setOpen} />`}
          ${!shown.length && html`<${Empty}>${reason || since ? "No dead letters match." : "This group has no dead letters."}<//>`}
          ${shown.length > 0 &&
          html`<div class="split ${current ? "open" : ""}">
            <div class="letters">
              <${LetterList} shown=${shown} openId=${openId} mayChange=${mayChange} chosen=${chosen} toggle=${toggle} setChosen=${setChosen} />
              ${hasMore && (limit < LOADED_MAX ? html`<button onClick=${() => setLimit(limit + LOT)}>Load more</button>` : html`<p class="faint">${many(limit, "dead letter")} are shown, from the oldest. Choose a later time to see others.</p>`)}
            </div>
            ${current && html`<${Letter} key=${current.id} letter=${current} where=${where} mayChange=${mayChange} reload=${() => { setQuery({ letter: "" }); reload(); }} />`}
          </div>`}
          ${open === "redrive" && html`<${InLots} title="Redrive" where=${where} ids=${ids} onClose=${done} />`}
          ${open === "all" && html`<${Confirm} title="Redrive all" label="Redrive all" onClose=${() => setOpen(null)} does=${() => { setTimeout(() => setOpen("all-now")); return ""; }}>
            <p>All ${count(total)} dead letters of this group go back to it, including those not loaded here.</p><//>`}
          ${open === "all-now" && html`<${InLots} title="Redrive all" where=${where} total=${total} onClose=${done} />`}
          ${open === "filter" && html`<${ByFilter} where=${where} letters=${letters} onClose=${() => setOpen(null)} begin=${(filter) => setTimeout(() => setOpen({ filter }))} />`}
          ${open?.filter && html`<${InLots} title="Redrive by filter" where=${where} total=${total} filter=${open.filter} onClose=${done} />`}
          ${open === "discard" &&
          html`<${Confirm} title="Discard dead letters" label="Discard" onClose=${() => setOpen(null)}
            does=${async () => {
              const { count: gone } = await post(`${where}/discard`, { ids });
              setTimeout(reload);
              return gone === ids.length ? `${many(gone, "dead letter")} discarded.` : `${many(gone, "dead letter")} discarded; someone else had already redriven or discarded the rest.`;
            }}>
            <p>${many(ids.length, "dead letter")} will be deleted for good.</p>
          <//>`}
          ${open === "discard-all" &&
          html`<${Confirm} title="Discard all dead letters" label="Discard all" name=${group} onClose=${() => setOpen(null)}
            does=${async () => {
              const { count: gone } = await post(`${where}/discard`, { all: true });
              setTimeout(reload);
              return `${many(gone, "dead letter")} discarded.`;
            }}>
            <p>All ${count(total)} dead letters of this group will be deleted for good, including those not loaded here.</p>
          <//>`}`;
      }}
    <//>`;
}

function Narrowing({ letters, hasMore, reason, since, reload }) {
  const reasons = countedBy(letters);
  return html`
    <div class="tools narrowing">
      <label>Reason <select value=${reason} onChange=${(event) => setQuery({ reason: event.target.value })}>
        <option value="" selected=${!reason}>any (${count(letters.length)}${hasMore ? "+" : ""})</option>
        ${reasons.map(([text, number]) => html`<option key=${text} value=${text} selected=${text === reason}>${visible(cut(text, 60)) || "no reason given"} (${count(number)})</option>`)}
      </select></label>
      <label class="since">Died after <input type="datetime-local" step="1" value=${since ? localTime(Number(since)) : ""}
        onChange=${(event) => setQuery({ since: event.target.value ? String(new Date(event.target.value).getTime() / 1000) : "" })} /></label>
      <button class="reload" onClick=${reload}>Reload</button>
    </div>`;
}

const Verbs = ({ chosen, any, setOpen }) => html`
  <div class="tools" role="group" aria-label="Actions">
    <button class="primary" disabled=${!chosen} onClick=${() => setOpen("redrive")}>Redrive selected${chosen ? ` (${count(chosen)})` : ""}</button>
    <button class="danger" disabled=${!chosen} onClick=${() => setOpen("discard")}>Discard selected${chosen ? ` (${count(chosen)})` : ""}</button>
    <span class="grow"></span>
    <button disabled=${!any} onClick=${() => setOpen("filter")}>Redrive by filter…</button>
    <button disabled=${!any} onClick=${() => setOpen("all")}>Redrive all…</button>
    <button class="danger" disabled=${!any} onClick=${() => setOpen("discard-all")}>Discard all…</button>
  </div>`;

function LetterList({ shown, openId, mayChange, chosen, toggle, setChosen }) {
  const isAll = shown.every((one) => chosen.has(one.id));
  return html`
    ${mayChange && html`<label class="all"><input type="checkbox" checked=${isAll} onChange=${() => setChosen(isAll ? new Set() : new Set(shown.map((one) => one.id)))} /> Select all ${count(shown.length)} shown</label>`}
    <ul aria-label="Dead letters">
      ${shown.map(
        (one) => html`
          <li key=${one.id} class=${one.id === openId ? "current" : ""}>
            ${mayChange && html`<input type="checkbox" aria-label="Select dead letter ${one.id}" checked=${chosen.has(one.id)} onChange=${() => toggle(one.id)} />`}
            <button class="row" data-row aria-pressed=${one.id === openId} onClick=${() => setQuery({ letter: one.id === openId ? "" : one.id })}>
              <span class="why"><${Foreign} text=${cut(one.reason || "no reason given", 120)} /></span>
              <span class="preview mono"><bdi>${preview(one.message)}</bdi></span>
              <time>${time(one.time, { millis: false })}</time>
            </button>
          </li>`,
      )}
    </ul>`;
}

async function loaded(where, limit, since, signal) {
  const letters = [];
  let after;
  while (letters.length < limit) {
    const found = await get(where, { limit: Math.min(LOT, limit - letters.length), after, time: since, value_bytes: 2048 }, signal);
    letters.push(...found.dead_letters);
    after = found.after;
    if (after === null) break;
  }
  return { letters: since ? letters.filter((one) => one.time >= Number(since)) : letters, hasMore: after !== null && after !== undefined };
}

function countedBy(letters) {
  const found = new Map();
  for (const { reason } of letters) found.set(reason, (found.get(reason) ?? 0) + 1);
  return [...found].sort((a, b) => b[1] - a[1]);
}
