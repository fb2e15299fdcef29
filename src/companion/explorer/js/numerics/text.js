/** States, numbers and pixels as text. */

/** The state that a link carries, as text by name; empty when it is a link to a heading. */
export function stateOf(hash) {
  return hash.includes("=") ? Object.fromEntries(new URLSearchParams(hash.slice(1))) : {};
}

export function addressOf(state) {
  return `#${String(new URLSearchParams(state)).replace(/%2C/g, ",")}`;
}

/** A row of numbers or pixels given as text, or nothing if it is not one of `count` finite numbers. */
export function numbersOf(text, count) {
  const numbers = String(text ?? "")
    .split(",")
    .map((part) => (part.trim() ? Number(part) : NaN));
  return numbers.length === count && numbers.every(Number.isFinite) ? numbers : undefined;
}

/** Whether a text is a row of `count` numbers in a range. */
export const within = (text, count, low, high) => Boolean(numbersOf(text, count)?.every((x) => x >= low && x <= high));

/** What is wrong with a part of a link. */
export const refuse = (name, given, expected) => `This link says ${name}=${given.slice(0, 40)}; expected ${expected}.`;

/** What a button does that goes through numbered steps, of which one is shown. */
export const stepText = (step, count) => `${step < count ? "Next" : "Again"} (${step}\u00a0of\u00a0${count})`;

/** A number in four digits or fewer. */
export function show(value) {
  if (value === 0 || !Number.isFinite(value)) return String(value).replace("-", "−");
  const size = Math.abs(value);
  return (size >= 1e-3 && size < 1e5 ? String(+value.toPrecision(3)) : value.toExponential(1)).replace(/-/g, "−");
}

export const pair = ([i, j]) => `(${show(+i.toFixed(2))}, ${show(+j.toFixed(2))})`;

export const clamp = (x, low, high) => Math.max(low, Math.min(high, x));
