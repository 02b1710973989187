// Many dead letters back to their group: by ids, all, or all that pass a filter. A lot at a time, so
// that it can be watched and stopped.

import { get, post } from "../api.js";
import { count, many } from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { Dialog, Fault, FormDialog, Progress } from "../ui.js";
import { FilterInput } from "./filter.js";

const LOT = 200;

export function InLots({ title, where, ids, total, filter, onClose }) {
  const [done, setDone] = useState({ back: 0, seen: 0 });
  const [state, setState] = useState("working");
  const [error, setError] = useState(null);
  const stopped = useRef(false);
  useEffect(() => {
    (async () => {
      let [back, seen] = [0, 0];
      const send = async (lot) => {
        back += (await post(`${where}/redrive`, { ids: lot, ...(filter ? { filter } : {}) })).count;
        seen += lot.length;
        setDone({ back, seen });
      };
      try {
        if (ids) for (let at = 0; at < ids.length && !stopped.current; at += LOT) await send(ids.slice(at, at + LOT));
        else
          for (let last = null; !stopped.current; ) {
            const { dead_letters: found, after } = await get(where, { limit: LOT, value_bytes: 0, after: last });
            if (found.length) await send(found.map((one) => one.id));
            last = after;
            if (after === null || !found.length) break;
          }
        setState(stopped.current ? "stopped" : "done");
      } catch (fault) {
        setError(fault);
        setState("failed");
      }
    })();
    return () => {
      stopped.current = true;
    };
  }, []);
  const wanted = ids ? ids.length : total;
  const missed = ids && state === "done" ? ids.length - done.back : 0;
  return html`
    <${Dialog} title=${title} onClose=${onClose}>
      ${filter
        ? html`<${Progress} done=${done.seen} of=${wanted} what="Checked" /><p role="status">Put back: <b>${count(done.back)}</b></p>`
        : html`<${Progress} done=${done.back} of=${wanted} what="Put back" />`}
      <${Fault} error=${error} />
      ${missed > 0 && html`<p class="wrong" role="alert">${many(missed, "dead letter")} ${missed === 1 ? "was" : "were"} not there any more: someone else has redriven or discarded ${missed === 1 ? "it" : "them"}.</p>`}
      <footer>
        ${state === "working" ? html`<button onClick=${() => { stopped.current = true; }}>Stop</button>` : html`<button class="primary" onClick=${onClose}>Close</button>`}
      </footer>
    <//>`;
}

export function ByFilter({ where, letters, onClose, begin }) {
  const [text, setText] = useState("");
  const [error, setError] = useState(null);
  const samples = useMemo(() => letters.map((one) => one.message), [letters]);
  return html`
    <${FormDialog} title="Redrive by filter" label="Redrive" onClose=${onClose} disabled=${!text.trim()}
      does=${async () => {
        try {
          await post(`${where}/redrive`, { ids: [], filter: text.trim() }); // is it a filter?
        } catch (fault) {
          setError(fault);
          return false;
        }
        begin(text.trim());
        return "";
      }}>
      <p>Every dead letter of this group that matches goes back, including those not loaded here.</p>
      <${FilterInput} text=${text} setText=${(said) => { setText(said); setError(null); }} error=${error} samples=${samples} />
    <//>`;
}
