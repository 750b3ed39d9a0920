/** Signs a fixture's request as its sender would, by the route's own scheme and key, and tampers with it where it says so. */

import { findPreset } from '../../auth/schemes/catalogue.ts';
import { compileScheme } from '../../auth/schemes/compile.ts';
import type { SchemeDescription } from '../../auth/schemes/description.ts';
import type { Scheme } from '../../auth/schemes/scheme.ts';
import type { KeyConfig, RouteConfig, WebhookConfig } from '../../config/schema/config.ts';
import { findNearest } from '../../config/schema/did-you-mean.ts';
import { readSecret } from '../../config/sources/secrets.ts';
import type { EpochMilliseconds } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { pickMediaType } from '../../core/media-type.ts';
import { Secret } from '../../core/secret.ts';
import type { SignConfig } from './fixtures.ts';

/** What is wrong with a step, so that it cannot be played. */
export interface StepProblem {
  readonly problem: string;
  readonly hint?: string;
}

/** What is to be signed. */
export interface Unsigned {
  readonly method: string;
  readonly path: string;
  readonly host: string;
  readonly isTls: boolean;
  readonly body: Buffer;
}

/** What signing adds, and the content as it is sent. */
export interface Signed {
  readonly headers: readonly (readonly [string, string])[];
  readonly body: Buffer;
  /** What this sender sends most. */
  readonly contentType: string | undefined;
}

/** Who signs, and when. */
export interface Signer {
  readonly route: RouteConfig;
  readonly now: EpochMilliseconds;
  /** Where the fixture gives none. */
  readonly id: string;
}

type SignOnce = (over: { id?: string; timestamp?: EpochMilliseconds; body?: Buffer }) => [string, string][];

const LINE_END = Buffer.from('\n');
const SECOND_MS = 1_000;

/** Signs it, or says why that cannot be. */
export async function signRequest(config: SignConfig, unsigned: Unsigned, signer: Signer): Promise<Signed | StepProblem> {
  const { webhook } = signer.route;
  if (webhook === undefined)
    return { problem: `route ${signer.route.name} takes no webhooks, so nothing is signed`, hint: 'leave sign out' };
  const description = config.scheme === undefined ? webhook.description : findPreset(config.scheme);
  if (description?.signature === undefined)
    return { problem: `senders of ${webhook.scheme} sign nothing`, hint: 'leave sign out' };
  const problem = findMisfit(config, description);
  if (problem !== undefined) return problem;
  const key = findKey(config, webhook, signer.route);
  if ('problem' in key) return key;
  const secret = await toSecret(config, key);
  if (!(secret instanceof Secret)) return secret;
  const scheme = compileScheme(description);
  const request = {
    ...unsigned,
    id: config.id ?? signer.id,
    timestamp: signer.now + (config.timestampOffset ?? 0),
    url: scheme.signsUrl ? toUrl(webhook, unsigned) : '',
  };
  const signOnce: SignOnce = (over) =>
    scheme.sign({ ...request, ...over }, secret, key.secret.encoding).map(([name, value]) => [name, value]);
  const contentType = pickMediaType(config.scheme === undefined ? webhook.contentTypes : description.contentTypes, unsigned.body);
  try {
    return { contentType, ...tamper(config.tamper, scheme, request, signOnce) };
  } catch (thrown) {
    if (!(thrown instanceof SidegateError)) throw thrown;
    const hint = thrown.message.includes('private') ? { hint: 'sign: { secret: … } takes the private half' } : undefined;
    return { problem: `key ${key.name} cannot sign: ${thrown.message}`, ...hint };
  }
}

function findMisfit({ id, timestampOffset, tamper: what }: SignConfig, description: SchemeDescription): StepProblem | undefined {
  const { name, id: idSource, timestamp } = description;
  if ((id !== undefined || what === 'id') && (idSource === undefined || !('header' in idSource)))
    return idSource === undefined
      ? { problem: `${name} has no id` }
      : { problem: `${name} has its id in the content`, hint: `write it there, at ${'json' in idSource ? idSource.json : ''}` };
  if ((timestampOffset !== undefined || what === 'timestamp') && (timestamp === undefined || 'json' in timestamp.from))
    return timestamp === undefined
      ? { problem: `${name} signs no time` }
      : { problem: `${name} has its time in the content`, hint: 'write it there' };
  return undefined;
}

function findKey({ key: wanted }: SignConfig, { keys }: WebhookConfig, route: RouteConfig): KeyConfig | StepProblem {
  const names = keys.map(({ name }) => name);
  const found = wanted === undefined ? keys[0] : keys.find(({ name }) => name === wanted);
  if (found !== undefined) return found;
  const nearest = findNearest(wanted ?? '', names);
  const hint = nearest === undefined ? `it has: ${names.join(', ')}` : `did you mean ${nearest}?`;
  return { problem: `route ${route.name} has no key ${wanted}`, hint };
}

async function toSecret({ secret }: SignConfig, key: KeyConfig): Promise<Secret | StepProblem> {
  if (secret !== undefined) return new Secret(Buffer.from(secret));
  const read = await readSecret(key.secret);
  return 'secret' in read ? read.secret : { problem: read.problem, hint: read.hint };
}

/** As the sender calls the gate. */
function toUrl({ publicUrl }: WebhookConfig, { isTls, host, path }: Unsigned): string {
  return `${publicUrl ?? `${isTls ? 'https' : 'http'}://${host}`}${path}`;
}

/** What was signed, with one part of it changed behind the signature. */
function tamper(
  what: SignConfig['tamper'],
  { description }: Scheme,
  { id, timestamp, body }: { readonly id: string; readonly timestamp: EpochMilliseconds; readonly body: Buffer },
  signOnce: SignOnce,
): Pick<Signed, 'headers' | 'body'> {
  const genuine = signOnce({});
  const longer = Buffer.concat([body, LINE_END]);
  switch (what) {
    case undefined:
      return { headers: genuine, body };
    case 'body':
      return { headers: genuine, body: longer };
    case 'id':
      return { headers: replace(genuine, signOnce({ id: `${id}x` }), description.id), body };
    case 'timestamp':
      return { headers: swapTime(genuine, signOnce({ timestamp: timestamp + SECOND_MS }), description), body };
    case 'signature':
      return { headers: toForged(genuine, signOnce({ body: longer })), body };
  }
}

type Fields = [string, string][];

/** The field that `source` names is that of `other`. */
function replace(fields: Fields, other: Fields, source: object | undefined): Fields {
  const name = source !== undefined && 'header' in source ? source.header : undefined;
  return fields.map((field, index) => (field[0] === name ? (other[index] ?? field) : field));
}

/** A time of its own field, or the entry of it among the signatures. */
function swapTime(fields: Fields, later: Fields, { timestamp, signature }: SchemeDescription): Fields {
  const entry = timestamp !== undefined && 'entry' in timestamp.from ? timestamp.from.entry : undefined;
  if (entry === undefined) return replace(fields, later, timestamp?.from);
  const list = signature?.list ?? ',';
  const laterEntry = later.flatMap(([, value]) => value.split(list)).find((part) => part.startsWith(entry));
  return fields.map(([name, value]) => [
    name,
    name === signature?.header
      ? value
          .split(list)
          .map((part) => (part.startsWith(entry) ? (laterEntry ?? part) : part))
          .join(list)
      : value,
  ]);
}

/** Well-formed, but of other content; a token is the same for all content, so that one gets another end. */
function toForged(genuine: Fields, other: Fields): Fields {
  const isSame = genuine.every(([, value], index) => other[index]?.[1] === value);
  const last = genuine.length - 1;
  return isSame ? genuine.map(([name, value], index) => [name, index === last ? `${value}x` : value]) : other;
}
