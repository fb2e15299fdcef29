/** Networks in a Web Worker, asked from the page. */

export class NetworkClient {
  /** `source`: the text of the worker's script, `script("worker")` of the package. */
  constructor(source) {
    this.asked = new Map(); // by ticket: what to do with the reply
    this.waiting = new Map(); // by network: the last run that was asked for while one is in progress
    this.tickets = 0;
    this.url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    try {
      this.worker = new Worker(this.url);
    } catch {
      this.fail();
      return;
    }
    this.worker.onmessage = ({ data: { ticket, result, error } }) => {
      const asked = this.asked.get(ticket);
      if (!asked) return; // it has failed meanwhile
      this.asked.delete(ticket);
      if (error === undefined) asked.resolve(result);
      else asked.reject(new Error(error));
    };
    this.worker.onerror = (event) => {
      event.preventDefault();
      this.fail();
    };
  }

  /** There is no worker, and all that is asked fails, from now on too. */
  fail() {
    this.failure = new Error("The networks cannot run in this browser; try another one.");
    for (const { reject } of this.asked.values()) reject(this.failure);
    this.asked.clear();
  }

  ask(message, transfer = []) {
    if (this.failure) return Promise.reject(this.failure);
    const ticket = this.tickets++;
    return new Promise((resolve, reject) => {
      this.asked.set(ticket, { resolve, reject });
      this.worker.postMessage({ ticket, ...message }, transfer);
    });
  }

  /** Load a network's weights, once. `entry`: one of `networks` of the payload. */
  load({ id, file, architecture }) {
    const url = file.url && new URL(file.url, document.baseURI).href; // a worker has another base
    return this.ask({ task: "load", id, file: { ...file, url }, architecture });
  }

  /** The `{pixels, image}` of a picture such as a canvas's ImageData, whose memory the worker takes over. */
  look({ width, height, data }, input) {
    return this.ask({ task: "look", picture: { width, height, data }, input }, [data.buffer]);
  }

  /** The `{logits, maps}` of a network for an image. While it runs, only the last of several requests is kept: the others give
   *  nothing. */
  async run(id, image, alpha) {
    if (this.waiting.has(id)) {
      this.waiting.get(id)?.resolve();
      return new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject, image, alpha }));
    }
    this.waiting.set(id, undefined);
    try {
      return await this.ask({ task: "run", id, image, alpha });
    } finally {
      const next = this.waiting.get(id);
      this.waiting.delete(id);
      if (next) this.run(id, next.image, next.alpha).then(next.resolve, next.reject);
    }
  }

  close() {
    this.worker?.terminate();
    URL.revokeObjectURL(this.url);
  }
}
