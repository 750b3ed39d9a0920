/** Writes the header the sender gets: the app's, without what is of its hop only or could switch the sender off. */
import { type RawHeaders, toFoldedName } from '../../core/headers.ts';
import { HOP_BY_HOP } from './managed-names.ts';

/** What becomes of an app's field. */
type FieldAction = 'pass' | 'drop' | 'length' | 'connection';

/** The header as the sender gets it. */
export interface SenderHead {
  /** Raw pairs in the app's order. */
  readonly fields: string[];
  /** The content's length in bytes where the app says it; the parser has proven it sound. */
  readonly contentLength: number | undefined;
}

/** By which a receiver tells its sender to stop: an app's bug or a header injection must not end all deliveries silently. */
const SENDER_CONTROL_FIELDS = new Set(['webhook-delivery', 'x-slack-no-retry']);

/** Never a trailer (RFC 9110 §6.5.1): framing, routing, authentication, control data, content description. */
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
/** Names seen before with their action: bounded, as an app may make names up. */
const MAX_CACHED_NAMES = 1_000;

/** Decides about names, remembering what it decided. */
export class ResponseHeaderPolicy {
  readonly #allowed: ReadonlySet<string>;
  readonly #actions = new Map<string, FieldAction>();

  /** `allowed`: lower-cased names that pass although a sender may switch itself off by them. */
  constructor(allowed: ReadonlySet<string>) {
    this.#allowed = allowed;
  }

  /** The head for the sender; the parser has proven that no field can split the answer. */
  toSenderHead(status: number, headers: RawHeaders): SenderHead {
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
        // RFC 9110 §8.6: not with 204 or 1xx. With a 101, another proxy might take the first frames for a response's content.
        if (status === NO_CONTENT || status < FIRST_FINAL) continue;
        contentLength = Number(value);
      }
      fields.push(name, value);
    }
    return { fields: named === undefined ? fields : withoutNamed(fields, named), contentLength };
  }

  /** The trailers that may be passed on. */
  toSenderTrailers(trailers: RawHeaders): [string, string][] {
    const passed: [string, string][] = [];
    for (let i = 0; i < trailers.length; i += 2) {
      const name = trailers[i] as string;
      if (this.#findAction(name) === 'pass' && !FORBIDDEN_TRAILERS.has(name.toLowerCase()))
        passed.push([name, trailers[i + 1] as string]);
    }
    return passed;
  }

  #findAction(name: string): FieldAction {
    const known = this.#actions.get(name);
    if (known !== undefined) return known;
    const action = this.#decide(name.toLowerCase());
    if (this.#actions.size < MAX_CACHED_NAMES) this.#actions.set(name, action);
    return action;
  }

  #decide(name: string): FieldAction {
    if (name === 'connection') return 'connection';
    if (name === 'content-length') return 'length';
    if (HOP_BY_HOP.has(name)) return 'drop';
    const folded = toFoldedName(name);
    return SENDER_CONTROL_FIELDS.has(folded) && !this.#allowed.has(folded) ? 'drop' : 'pass';
  }
}

/** The options of one Connection line, beside those that most apps send and that name no field of theirs. */
function addOptions(named: ReadonlySet<string> | undefined, value: string): ReadonlySet<string> | undefined {
  if (value === 'keep-alive' || value === 'close') return named;
  const options = value.split(',').map((option) => option.trim().toLowerCase());
  return new Set([...(named ?? []), ...options]);
}

function withoutNamed(fields: readonly string[], named: ReadonlySet<string>): string[] {
  const kept: string[] = [];
  for (let i = 0; i < fields.length; i += 2) {
    const name = (fields[i] as string).toLowerCase();
    // Content-Length frames the answer: naming it must not remove it.
    if (name === 'content-length' || !named.has(name)) kept.push(fields[i] as string, fields[i + 1] as string);
  }
  return kept;
}
