/** Reads untrusted JSON of unknown shape. A value of an unexpected type counts as absent. */

/** A JSON object. */
export type Raw = Readonly<Record<string, unknown>>;

/** Whether the value is a JSON object. */
export function isRaw(value: unknown): value is Raw {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The object at `key`, or an empty one. */
export function objectAt(from: unknown, key: string): Raw {
  const value = isRaw(from) && Object.hasOwn(from, key) ? from[key] : undefined;
  return isRaw(value) ? value : {};
}

/** The list at `key`, or an empty one. */
export function listAt(from: unknown, key: string): readonly unknown[] {
  const value = isRaw(from) && Object.hasOwn(from, key) ? from[key] : undefined;
  return Array.isArray(value) ? value : [];
}

/** The string at `key`. */
export function textAt(from: unknown, key: string): string | undefined {
  const value = isRaw(from) && Object.hasOwn(from, key) ? from[key] : undefined;
  return typeof value === 'string' ? value : undefined;
}

/** The integer at `key`. */
export function numberAt(from: unknown, key: string): number | undefined {
  const value = isRaw(from) && Object.hasOwn(from, key) ? from[key] : undefined;
  return typeof value === 'number' && Number.isInteger(value) ? value : undefined;
}

/** Whether there is a value at `key`; null counts as absent. */
export function has(from: unknown, key: string): boolean {
  return isRaw(from) && Object.hasOwn(from, key) && from[key] !== null && from[key] !== undefined;
}
