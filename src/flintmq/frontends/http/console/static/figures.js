// All topics and groups, as rows: asked for by every view that lists them.

import { get } from "./api.js";
import { useAsked } from "./ui.js";

const TOPIC = ["name", "messages", "bytes", "published", "delivered", "lag", "deadLetters", "groups", "partitions", "trail"];
const GROUP = ["topic", "name", "kind", "lag", "inFlight", "delayed", "members", "isPaused", "oldestAge", "delivered", "deadLetters"];

const named = (names) => (row) => Object.fromEntries(names.map((name, at) => [name, row[at]]));

const byKey = (one, other) => (one.rowKey < other.rowKey ? -1 : 1);

export async function figures(signal) {
  const found = await get("figures", undefined, signal);
  return {
    at: found.at,
    topics: found.topics.map(named(TOPIC)).map((row) => ({ ...row, rowKey: row.name })).sort(byKey),
    groups: found.groups.map(named(GROUP)).map((row) => ({ ...row, rowKey: `${row.topic}\n${row.name}` })).sort(byKey),
  };
}

// The more there is, the less often.
export const useFigures = () =>
  useAsked(figures, [], { every: (found) => 2 + ((found?.topics.length ?? 0) + (found?.groups.length ?? 0)) / 500 });
