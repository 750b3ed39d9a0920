/** Builds the response header for the sender: the app's, without hop-by-hop fields and fields that could disable the sender. */

import { HOP_BY_HOP } from '../../core/field-policy.ts';
import { type RawHeaders, rememberByName, toFoldedName } from '../../core/headers.ts';

/** What to do with a field of the app. */
type ResponseFieldAction = 'pass' | 'drop' | 'length' | 'connection';

/** The response header for the sender. */
interface SenderHead {
  /** Raw pairs in the app's order. Do not change them: the next response may share them. */
  readonly fields: string[];
  /** Content-Length in bytes, if the app sends it; validated by the parser. */
  readonly contentLength: number | undefined;
}

/**
 * Fields by which a receiver asks its sender to stop: a bug or a header injection in the app must not silently end all
 * deliveries.
 */
const SENDER_CONTROL_FIELDS = new Set(['webhook-delivery', 'x-slack-no-retry']);

/**
 * Fields that are not allowed as trailers (RFC 9110 §6.5.1): framing, routing, authentication, control data, content description.
 */
const FORBIDDEN_TRAILERS = new Set([
  'content-length',
  'content-type',
  'content-encoding',
  'content-range',
  'host',
  'authorization',
  'www-authenticate',
  'set-cookie',
  'cache-control',
  'location',
  'retry-after',
  'age',
  'date',
  'expires',
  'vary',
  'warning',
]);

const NO_CONTENT = 204;
const FIRST_FINAL = 200;
/** Decides which fields are passed on. */
export class ResponseHeaderPolicy {
  readonly #allowed: ReadonlySet<string>;
  readonly #findAction: (name: string) => ResponseFieldAction;
  /** The latest result, as the same head follows the same head (ResponseHeads). */
  #latest: { readonly status: number; readonly headers: RawHeaders; readonly head: SenderHead } | undefined;

  /** `allowed`: lower-case names that are passed on although a sender may disable itself because of them. */
  constructor(allowed: ReadonlySet<string>) {
    this.#allowed = allowed;
    this.#findAction = rememberByName((name) => this.#decide(name.toLowerCase()));
  }

  /** Returns the header for the sender. The parser has ensured that no field can split the response. */
  toSenderHead(status: number, headers: RawHeaders): SenderHead {
    const latest = this.#latest;
    if (latest !== undefined && latest.headers === headers && latest.status === status) return latest.head;
    const head = this.#buildSenderHead(status, headers);
    this.#latest = { status, headers, head };
    return head;
  }

  #buildSenderHead(status: number, headers: RawHeaders): SenderHead {
    const fields: string[] = [];
    let contentLength: number | undefined;
    let named: ReadonlySet<string> | undefined;
    for (let i = 0; i < headers.length; i += 2) {
      const name = headers[i] as string;
      const value = headers[i + 1] as string;
      const action = this.#findAction(name);
      if (action === 'drop') continue;
      if (action === 'connection') {
        named = addOptions(named, value);
        continue;
      }
      if (action === 'length') {
        // RFC 9110 §8.6: not with 204 or 1xx. With a 101, another proxy might read the first frames as a response body.
        if (status === NO_CONTENT || status < FIRST_FINAL) continue;
        contentLength = Number(value);
      }
      fields.push(name, value);
    }
    return { fields: named === undefined ? fields : withoutNamed(fields, named), contentLength };
  }

  /** Returns the trailers that may be passed on. */
  toSenderTrailers(trailers: RawHeaders): [string, string][] {
    const passed: [string, string][] = [];
    for (let i = 0; i < trailers.length; i += 2) {
      const name = trailers[i] as string;
      if (this.#findAction(name) === 'pass' && !FORBIDDEN_TRAILERS.has(name.toLowerCase()))
        passed.push([name, trailers[i + 1] as string]);
    }
    return passed;
  }

  #decide(name: string): ResponseFieldAction {
    if (name === 'connection') return 'connection';
    if (name === 'content-length') return 'length';
    if (HOP_BY_HOP.has(name)) return 'drop';
    const folded = toFoldedName(name);
    return SENDER_CONTROL_FIELDS.has(folded) && !this.#allowed.has(folded) ? 'drop' : 'pass';
  }
}

/** Adds the options of a Connection line, except the two that most apps send and that name no field. */
function addOptions(named: ReadonlySet<string> | undefined, value: string): ReadonlySet<string> | undefined {
  if (value === 'keep-alive' || value === 'close') return named;
  const options = value.split(',').map((option) => option.trim().toLowerCase());
  return new Set([...(named ?? []), ...options]);
}

function withoutNamed(fields: readonly string[], named: ReadonlySet<string>): string[] {
  const kept: string[] = [];
  for (let i = 0; i < fields.length; i += 2) {
    const name = (fields[i] as string).toLowerCase();
    // Content-Length frames the response, so naming it in Connection must not remove it.
    if (name === 'content-length' || !named.has(name)) kept.push(fields[i] as string, fields[i + 1] as string);
  }
  return kept;
}
