// The broker's samples as they come: one stream for the whole page.

import { get, mayAll, me, stream } from "./api.js";
import { batch, effect, signal } from "./lib.js";

export const samples = signal([]);
export const lastEvent = signal(0);
export const connection = signal("waiting"); // live, lost, failed

const HOUR = 3600;

effect(() => {
  if (!me.value || !mayAll.value) return undefined;
  const controller = new AbortController();
  follow(controller.signal);
  return () => controller.abort();
});

async function follow(aborted) {
  try {
    const found = await get("samples", undefined, aborted);
    batch(() => {
      samples.value = found.samples;
      lastEvent.value = found.last_event;
    });
  } catch { /* the stream says so */ }
  await stream("samples/stream", {
    signal: aborted,
    onState: (state) => {
      connection.value = state;
    },
    tell: ({ samples: [newest], last_event }) =>
      batch(() => {
        const kept = samples.value.filter((one) => one.at > newest.at - HOUR && one.at < newest.at);
        samples.value = [...kept, newest];
        lastEvent.value = last_event;
      }),
  });
}
