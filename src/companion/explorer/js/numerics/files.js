/** Files of tensors: read, checked, loaded once. */
/** The checksum of zip and PNG. */
export function crc32(bytes) {
  let crc = -1;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (crc ^ -1) >>> 0;
}

export function half(bits) {
  const sign = bits >> 15 ? -1 : 1,
    exponent = (bits >> 10) & 31,
    fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 25) * (1024 + fraction) : sign * 2 ** -24 * fraction;
}

const READERS = {
  F16: (buffer) => new Float32Array(new Uint16Array(buffer)).map(half),
  F32: (buffer) => new Float32Array(buffer),
  U8: (buffer) => new Uint8Array(buffer),
  I64: (buffer) => Int32Array.from(new BigInt64Array(buffer), Number),
};

/** A safetensors file: `{name: {shape, data}}`. Throws for anything else. */
export function readTensors(bytes) {
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  const { __metadata__, ...entries } = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  const tensors = {};
  for (const [
    name,
    {
      dtype,
      shape,
      data_offsets: [start, end],
    },
  ] of Object.entries(entries)) {
    tensors[name] = { shape, data: READERS[dtype](bytes.slice(8 + length + start, 8 + length + end).buffer) };
  }
  return tensors;
}

export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

export const MEND = "Reload the page; if that does not help, this copy of it is incomplete.";

export async function download(file) {
  if (new URL(file.url, location.href).protocol === "file:") {
    throw new Error(
      `${file.name} lies in a file of its own, which browsers do not load from a folder.` +
        " Read the book through a server: make serve.",
    );
  }
  let response;
  try {
    response = await fetch(file.url);
  } catch {
    throw new Error(`${file.name} could not be loaded: the server did not answer. ${MEND}`);
  }
  if (!response.ok) throw new Error(`${file.name} could not be loaded: the server answered ${response.status}. ${MEND}`);
  return new Uint8Array(await response.arrayBuffer());
}

export const loaded = new Map();

/** The tensors of `{name, base64 or url, crc32}`, loaded once. Throws, with a message for the reader, when they are damaged. */
export async function load(file) {
  if (!loaded.has(file.crc32)) {
    const bytes = file.base64 === undefined ? await download(file) : bytesOf(file.base64);
    if (crc32(bytes) !== file.crc32) throw new Error(`${file.name} is damaged: it is not what this page was built with. ${MEND}`);
    loaded.set(file.crc32, readTensors(bytes));
  }
  return loaded.get(file.crc32);
}
