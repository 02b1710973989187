// Search on pages that are opened as files: browsers give them no Worker, so its script runs in
// a hidden frame of the page. zensical.toml names this file.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => {
        const copy = structuredClone(data);
        setTimeout(() => this.onmessage?.({ data: copy }));
      };
      const script = inside.document.createElement("script");
      script.src = new URL(url, location.href).href;
      this.ready = new Promise((done) => {
        script.onload = done;
        script.onerror = (event) => this.onerror?.(event);
      });
      inside.document.body.append(script);
    }

    postMessage(data) {
      const copy = structuredClone(data);
      this.ready.then(() => this.frame.contentWindow?.onmessage({ data: copy }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
