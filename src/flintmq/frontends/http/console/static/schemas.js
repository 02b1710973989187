// The Avro schemas of a topic: its own, and the versions that were added, by their ids.

import { get, may, path } from "./api.js";
import { useEffect, useState } from "./lib.js";

const NONE = { own: null, byId: new Map() };

// What they are may be seen by who administers the topic.
export function useSchemas(name, own) {
  const [schemas, setSchemas] = useState({ ...NONE, own });
  useEffect(() => {
    const controller = new AbortController();
    setSchemas({ ...NONE, own });
    if (may("administer", name))
      get(`${path("topics", name)}/schemas`, undefined, controller.signal)
        .then(({ schemas: found }) => {
          const byId = new Map(found.filter((one) => one.format === "avro").map((one) => [one.id, one.text]));
          if (byId.size) setSchemas({ own, byId });
        })
        .catch(() => {}); // then those messages are shown as bytes
    return () => controller.abort();
  }, [name, own]);
  return schemas;
}
