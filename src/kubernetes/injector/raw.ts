/** Looks into raw JSON of which nothing is known: whatever has another shape than it should counts as absent. */

/** A JSON object. */
export type Raw = Readonly<Record<string, unknown>>;

/** Whether it is one. */
export function isRaw(value: unknown): value is Raw {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The object at `key`; an empty one where there is none. */
export function objectAt(from: unknown, key: string): Raw {
  const value = isRaw(from) && Object.hasOwn(from, key) ? from[key] : undefined;
  return isRaw(value) ? value : {};
}

/** The list at `key`; an empty one where there is none. */
export function listAt(from: unknown, key: string): readonly unknown[] {
  const value = isRaw(from) && Object.hasOwn(from, key) ? from[key] : undefined;
  return Array.isArray(value) ? value : [];
}

/** The text at `key`. */
export function textAt(from: unknown, key: string): string | undefined {
  const value = isRaw(from) && Object.hasOwn(from, key) ? from[key] : undefined;
  return typeof value === 'string' ? value : undefined;
}

/** The whole number at `key`. */
export function numberAt(from: unknown, key: string): number | undefined {
  const value = isRaw(from) && Object.hasOwn(from, key) ? from[key] : undefined;
  return typeof value === 'number' && Number.isInteger(value) ? value : undefined;
}

/** Whether something stands at `key`; null is nothing. */
export function has(from: unknown, key: string): boolean {
  return isRaw(from) && Object.hasOwn(from, key) && from[key] !== null && from[key] !== undefined;
}
