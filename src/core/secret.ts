/** Key material that cannot be logged, printed or serialized by accident. */
import { inspect } from 'node:util';

const MASK = '[secret]';

/** Bytes that only `expose()` returns. Any other output shows `[secret]`. */
export class Secret {
  readonly #bytes: Buffer;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  /** The bytes. The caller must not log, store or copy them more than necessary. */
  expose(): Buffer {
    return this.#bytes;
  }

  /** Length in bytes, the only property of a secret that may be shown. */
  get length(): number {
    return this.#bytes.length;
  }

  toString(): string {
    return MASK;
  }

  toJSON(): string {
    return MASK;
  }

  [inspect.custom](): string {
    return MASK;
  }
}
