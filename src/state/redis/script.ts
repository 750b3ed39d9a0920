/** Scripts that run in Redis. */
import { createHash } from 'node:crypto';
import { toErrorText } from '../../core/errors.ts';

/** Sends a script by its digest, or as a whole. */
type Execute<T> = (command: 'evalsha' | 'eval', script: string) => Promise<T>;

/** A script, which Redis keeps under its digest. */
export class Script {
  readonly #text: string;
  readonly #digest: string;

  constructor(text: string) {
    this.#text = text;
    this.#digest = createHash('sha1').update(text).digest('hex');
  }

  /** Calls the script by its digest. Sends the text if Redis does not have it: it was restarted or failed over, or its scripts were flushed. */
  call<T>(execute: Execute<T>): Promise<T> {
    return execute('evalsha', this.#digest).catch((error: unknown) => {
      if (!toErrorText(error).startsWith('NOSCRIPT')) throw error;
      return execute('eval', this.#text);
    });
  }
}
