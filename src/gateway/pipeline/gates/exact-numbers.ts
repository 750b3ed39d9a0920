/** Reads places of JSON content, with numbers by their own digits where a double may not hold them all. */
import { type JsonPath, readJsonPath } from '../../../core/json-path.ts';

/** A number of a JSON text as it stands there: beyond 2^53, and far behind the point, a double would make neighbours equal. */
export class NumberText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** Fifteen digits and any exponent of two come back from a double as they were (IEEE 754 binary64). */
const MAY_NOT_FIT = /\d[\d.]{15}|\d[eE][+-]?\d{3}/;

/** What stands at the paths, numbers as numbers or NumberText; undefined for all of them where the content is no JSON in UTF-8. */
export function readPlaces(body: Buffer, paths: readonly JsonPath[]): readonly unknown[] {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(body);
    const found = readAll(JSON.parse(text), paths);
    // Several times the work of a plain parse, as each value is asked about.
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
