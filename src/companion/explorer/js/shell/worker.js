/* The host in a Web Worker. */
import { reply } from "../network/service.js";

addEventListener("message", async ({ data }) => postMessage(await reply(data)));
