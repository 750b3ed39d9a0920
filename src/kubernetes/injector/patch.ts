/** Builds a JSON Patch (RFC 6902). It contains only changes, so that unknown fields of the pod are preserved. */
import { has } from './raw.ts';

/** One operation (RFC 6902 §4); only these kinds are used. */
export type PatchOperation =
  | { readonly op: 'add' | 'replace'; readonly path: string; readonly value: unknown }
  | { readonly op: 'remove'; readonly path: string };

/** The path of a value. */
export type PatchPath = readonly (string | number)[];

/** A JSON Pointer (RFC 6901 §3): `~` and `/` in names are escaped. */
export function toPointer(path: PatchPath): string {
  return path.map((step) => `/${String(step).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
}

/** Collects operations. Indices in paths refer to the state after the preceding operations. */
export class Patch {
  readonly #operations: PatchOperation[] = [];

  get operations(): readonly PatchOperation[] {
    return this.#operations;
  }

  /** Sets the member `key` of `parent`, which is at `path`. */
  set(path: PatchPath, parent: unknown, key: string, value: unknown): void {
    this.#operations.push({ op: has(parent, key) ? 'replace' : 'add', path: toPointer([...path, key]), value });
  }

  /** Removes the value at `path`. */
  remove(path: PatchPath): void {
    this.#operations.push({ op: 'remove', path: toPointer(path) });
  }

  /** Appends to the list at `path`, or creates it. */
  append(path: PatchPath, isThere: boolean, items: readonly unknown[]): void {
    if (items.length === 0) return;
    if (isThere) for (const value of items) this.#operations.push({ op: 'add', path: toPointer([...path, '-']), value });
    else this.#operations.push({ op: 'add', path: toPointer(path), value: items });
  }

  /** Inserts an item at the start of the list at `path`, or creates the list. */
  prepend(path: PatchPath, isThere: boolean, value: unknown): void {
    if (isThere) this.#operations.push({ op: 'add', path: toPointer([...path, 0]), value });
    else this.#operations.push({ op: 'add', path: toPointer(path), value: [value] });
  }
}
