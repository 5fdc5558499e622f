/* Search without a server: browsers start no Worker for a page on the disk, so a hidden frame takes its place.
   After iframe-worker by Martin Donath (MIT), which the theme would fetch from another host. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      window.addEventListener("message", (event) => {
        if (event.source === inside) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      });
      inside.document.open();
      // Defined by the frame's own script, so that it is the source of what it posts.
      inside.document.write('<html><body><script>postMessage = (m) => parent.postMessage(m, "*")</script></body></html>');
      inside.document.close();
      inside.importScripts = async (...scripts) => {
        for (const script of scripts) await load(script);
      };
      const load = (script) =>
        new Promise((done, failed) => {
          const element = inside.document.createElement("script");
          element.src = script;
          element.onload = done;
          element.onerror = failed;
          inside.document.body.appendChild(element);
        });
      this.ready = load(url);
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
