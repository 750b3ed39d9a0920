/** Reads values from JSON content, keeping the digits of numbers that a double may not represent exactly. */
import { type JsonPath, readJsonPath } from '../../../core/json-path.ts';

/** A JSON number as written: beyond 2^53, or with many decimals, different numbers become equal as doubles. */
export class NumberText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** Numbers of up to 15 digits, and exponents of up to two, survive conversion to a double and back (IEEE 754 binary64). */
const MAY_NOT_FIT = /\d[\d.]{15}|\d[eE][+-]?\d{3}/;

/** The values at the paths, numbers as number or NumberText; all undefined if the content is not JSON in UTF-8. */
export function readValues(body: Buffer, paths: readonly JsonPath[]): readonly unknown[] {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(body);
    const found = readAll(JSON.parse(text), paths);
    // The reviver makes this several times as slow as a plain parse, as it is called for each value.
    const isExact = !found.some((value) => typeof value === 'number') || !MAY_NOT_FIT.test(text);
    return isExact ? found : readAll(JSON.parse(text, keepDigits), paths);
  } catch {
    return paths.map(() => undefined);
  }
}

function readAll(content: unknown, paths: readonly JsonPath[]): unknown[] {
  return paths.map((path) => readJsonPath(path, content));
}

function keepDigits(_name: string, value: unknown, context?: { readonly source?: string }): unknown {
  return typeof value === 'number' ? new NumberText(context?.source ?? String(value)) : value;
}
