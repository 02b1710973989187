// The broker as a whole: how it is, now and over the last hour.

import { get, me } from "../api.js";
import { bytes, count, duration, short } from "../format.js";
import { html, useMemo } from "../lib.js";
import { samples } from "../live.js";
import { address } from "../router.js";
import { Chart, POWERS_OF_TWO, Tile } from "../charts.js";
import { Badge, Facts, Foreign, useAsked } from "../ui.js";

async function health(signal) {
  const from = (page) => fetch(new URL(page, document.baseURI.split("#")[0]), { signal, credentials: "omit", cache: "no-store" }).then((answer) => answer.json());
  const [alive, ready] = await Promise.all([from("health"), from("ready")]);
  return { ...alive, ready };
}

export function Overview() {
  const found = useAsked(health, [], { every: 10 });
  const cluster = useAsked((signal) => (me.value.is_cluster ? get("cluster", undefined, signal) : null), [], { every: 10 });
  const hour = samples.value;
  const now = hour.at(-1);
  const columns = useMemo(() => {
    const times = hour.map((one) => one.at);
    const of = (name, by = 1) => hour.map((one) => (one[name] === null ? null : one[name] * by));
    return {
      times,
      flow: [{ name: "in", values: of("published") }, { name: "out", values: of("delivered") }],
      bytes: [{ name: "in", values: of("published_bytes") }],
      lag: [{ name: "lag", values: of("lag") }, { name: "in flight", values: of("in_flight") }, { name: "dead letters", values: of("dead_letters") }],
      latency: [{ name: "loop", values: of("loop_seconds", 1000) }, { name: "sync", values: of("sync_seconds", 1000) }],
    };
  }, [hour]);
  const state = found.value;
  const isWell = state?.ready?.status === "ready";
  const low = now?.disk_size && now.disk_free / now.disk_size < 0.1;
  return html`
    <header class="head">
      <h1>Overview</h1>
      ${found.error
        ? html`<${Badge} kind="bad">no answer<//>`
        : state && html`<${Badge} kind=${isWell ? "good" : "bad"}>${isWell ? "ready" : (state.ready.reason ?? state.ready.status)}<//>`}
      ${state?.ready?.damaged_messages && html`<${Badge} kind="bad">${count(state.ready.damaged_messages)} damaged messages<//>`}
      <span class="grow"></span>
      ${state && html`<span class="faint">FlintMQ ${state.version}, up ${duration(state.uptime_seconds)}</span>`}
    </header>
    ${!now
      ? html`<p class="empty" role="status">Loading…</p>`
      : html`
        ${now.delivered === null &&
        html`<p class="follows">This node is a follower. Deliveries and messages in flight are known to the leader${cluster.value?.leader ? html`, <b><${Foreign} text=${cluster.value.leader} /></b>` : ""}.</p>`}
        <section class="tiles" aria-label="Now">
          <${Tile} name="In" value="${short(now.published)}/s" hint=${now.published_bytes === null ? "" : `${bytes(now.published_bytes)}/s`} />
          <${Tile} name="Out" value=${now.delivered === null ? "–" : `${short(now.delivered)}/s`} />
          <${Tile} name="Lag" value=${short(now.lag)} href=${address(["groups"], { sort: "-lag" })} hint="${count(now.in_flight)} in flight" />
          <${Tile} name="Dead letters" value=${short(now.dead_letters)} kind=${now.dead_letters ? "warn" : ""} href=${address(["dead-letters"])} />
          <${Tile} name="Topics" value=${count(now.topics)} href=${address(["topics"])} hint="${short(now.messages)} messages" />
          <${Tile} name="Groups" value=${count(now.groups)} href=${address(["groups"])} />
          <${Tile} name="Stored" value=${bytes(now.bytes)} />
          <${Tile} name="Connections" value=${count(now.connections)} href=${address(["connections"])} />
          ${now.disk_size && html`<${Tile} name="Disk free" value=${bytes(now.disk_free)} kind=${low ? "bad" : ""} hint="of ${bytes(now.disk_size)}" />`}
          ${now.memory && html`<${Tile} name="Memory" value=${bytes(now.memory)} />`}
          <${Tile} name="Event loop (p99)" value=${duration(now.loop_seconds)} hint="per turn" />
          <${Tile} name="Disk sync (p99)" value=${duration(now.sync_seconds)} hint=${now.sync_seconds === null ? "no syncs just now" : "per sync"} />
        </section>
        <section class="charts" aria-label="The last hour">
          <${Chart} title="Messages per second" times=${columns.times} series=${columns.flow} form=${short} />
          <${Chart} title="Bytes per second" times=${columns.times} series=${columns.bytes} form=${bytes} least=${1024} steps=${POWERS_OF_TWO} />
          <${Chart} title="Backlog" times=${columns.times} series=${columns.lag} form=${short} />
          <${Chart} title="Latency (p99)" least=${1} times=${columns.times} series=${columns.latency} form=${(ms) => duration(ms / 1000)} />
        </section>
        ${cluster.value &&
        html`<section class="card" aria-label="Cluster">
          <h2>Cluster <a href=${address(["cluster"])}>${cluster.value.cluster}</a></h2>
          <${Facts} of=${cluster.value.nodes.map((node) => [
            node.name,
            html`<${Badge} kind=${node.role === "down" ? "bad" : node.role === "leader" ? "good" : "plain"}>${node.role}<//> ${node.behind ? `${count(node.behind)} behind` : ""}`,
          ])} />
        </section>`}`}`;
}
