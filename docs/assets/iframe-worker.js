// A page that is opened as a file may start no worker, which the search needs: the worker's script
// runs in a hidden frame instead, whose window takes and gives its messages.
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const scope = this.frame.contentWindow;
      const load = (source) =>
        new Promise((done, failed) => {
          const script = scope.document.createElement("script");
          Object.assign(script, { src: source, onload: done, onerror: failed });
          scope.document.body.append(script);
        });
      scope.importScripts = async (...sources) => {
        for (const source of sources) await load(source);
      };
      scope.postMessage = (data) => {
        const message = new MessageEvent("message", { data });
        this.dispatchEvent(message);
        this.onmessage?.(message);
      };
      this.ready = load(url);
    }
    async postMessage(data) {
      await this.ready;
      const scope = this.frame.contentWindow;
      scope.dispatchEvent(new scope.MessageEvent("message", { data: structuredClone(data) }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
