/** Signs a fixture's request as its sender would, with the scheme and a key of the route, and tampers with it if requested. */

import type { KeyConfig, RouteConfig, WebhookConfig } from '../../config/schema/config.ts';
import { findNearest } from '../../config/schema/did-you-mean.ts';
import { readSecret, readUrlCredentials } from '../../config/sources/secrets.ts';
import type { EpochMilliseconds } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { pickMediaType } from '../../core/media-type.ts';
import { Secret } from '../../core/secret.ts';
import { findPreset } from '../../verify/presets/catalogue.ts';
import { isBodyPlace } from '../../verify/schemes/body-values.ts';
import { compileScheme } from '../../verify/schemes/compile.ts';
import { readsQuery } from '../../verify/schemes/coverage.ts';
import type { SchemeDescription } from '../../verify/schemes/description.ts';
import type { Scheme } from '../../verify/schemes/scheme.ts';
import { addCredentials } from '../../verify/schemes/url.ts';
import type { SignConfig } from './fixtures.ts';

/** Why a step cannot be run. */
export interface StepProblem {
  readonly problem: string;
  readonly hint?: string;
}

/** A request before signing. */
interface Unsigned {
  readonly method: string;
  readonly path: string;
  readonly host: string;
  readonly isTls: boolean;
  readonly body: Buffer;
}

/** The headers that signing adds, and the body to send. */
export interface Signed {
  readonly headers: readonly (readonly [string, string])[];
  readonly body: Buffer;
  /** The most common content type of this sender. */
  readonly contentType: string | undefined;
}

interface SignedOnce {
  readonly headers: RequestFields;
  readonly body: Buffer;
}

type SignOnce = (over: { id?: string; timestamp?: EpochMilliseconds; body?: Buffer }) => SignedOnce;

const LINE_END = Buffer.from('\n');
const SECOND_MS = 1_000;

/** Signs the request, or returns why it cannot. */
export async function signRequest(
  config: SignConfig,
  unsigned: Unsigned,
  context: {
    readonly route: RouteConfig;
    readonly now: EpochMilliseconds;
    /** Used if the fixture has none. */
    readonly id: string;
  },
): Promise<Signed | StepProblem> {
  const { webhook } = context.route;
  if (webhook === undefined)
    return { problem: `route ${context.route.name} has no webhook section, so its requests are not signed`, hint: 'remove sign' };
  const description = config.scheme === undefined ? webhook.description : findPreset(config.scheme);
  if (description?.signature === undefined) return { problem: `senders of ${webhook.scheme} do not sign`, hint: 'remove sign' };
  const problem = findSignatureMisfit(config, description) ?? findMisfit(config, description);
  if (problem !== undefined) return problem;
  const key = findKey(config, webhook, context.route);
  if ('problem' in key) return key;
  const secret = await toSecret(config, key);
  if (!(secret instanceof Secret)) return secret;
  const scheme = compileScheme(description);
  const request = {
    ...unsigned,
    id: config.id ?? context.id,
    timestamp: context.now + (config.timestampOffset ?? 0),
    url: await toSignedUrl(scheme, webhook, unsigned),
  };
  const signOnce: SignOnce = (over) => {
    const { headers, body } = scheme.signRequest({ ...request, ...over }, secret, key.secret.encoding);
    return { headers: headers.map(([name, value]) => [name, value]), body };
  };
  const contentType = pickMediaType(config.scheme === undefined ? webhook.contentTypes : description.contentTypes, unsigned.body);
  try {
    return { contentType, ...tamper(config.tamper, scheme, request, signOnce) };
  } catch (thrown) {
    if (!(thrown instanceof SidegateError)) throw thrown;
    const hint = thrown.message.includes('private') ? { hint: 'put the private key into sign: { secret: … }' } : undefined;
    return { problem: `key ${key.name} cannot sign: ${thrown.message}`, ...hint };
  }
}

/** Where the signature is, a fixture may not reach it. */
function findSignatureMisfit({ tamper: what }: SignConfig, { name, signature }: SchemeDescription): StepProblem | undefined {
  if (signature?.query !== undefined) return { problem: `${name} has its signature in the query, which a fixture cannot sign` };
  if (signature?.header !== '' || what === undefined) return undefined;
  return { problem: `${name} has its signature in the body`, hint: 'use a body with another signature, without sign' };
}

function findMisfit({ id, timestampOffset, tamper: what }: SignConfig, description: SchemeDescription): StepProblem | undefined {
  const { name, id: idSource, timestamp } = description;
  if ((id !== undefined || what === 'id') && (idSource === undefined || 'json' in idSource))
    return idSource === undefined
      ? { problem: `${name} has no ID` }
      : { problem: `${name} has its ID in the body`, hint: `set it there, at ${idSource.json}` };
  if ((timestampOffset !== undefined || what === 'timestamp') && (timestamp === undefined || isBodyPlace(timestamp.from)))
    return timestamp === undefined
      ? { problem: `${name} signs no timestamp` }
      : { problem: `${name} has its timestamp in the body`, hint: 'set it there' };
  return undefined;
}

function findKey({ key: wanted }: SignConfig, { keys }: WebhookConfig, route: RouteConfig): KeyConfig | StepProblem {
  const names = keys.map(({ name }) => name);
  const found = wanted === undefined ? keys[0] : keys.find(({ name }) => name === wanted);
  if (found !== undefined) return found;
  const nearest = findNearest(wanted ?? '', names);
  const hint = nearest === undefined ? `its keys are ${names.join(', ')}` : `did you mean ${nearest}?`;
  return { problem: `route ${route.name} has no key ${wanted}`, hint };
}

async function toSecret({ secret }: SignConfig, key: KeyConfig): Promise<Secret | StepProblem> {
  if (secret !== undefined) return new Secret(Buffer.from(secret));
  const read = await readSecret(key.secret);
  return 'secret' in read ? read.secret : { problem: read.problem, hint: read.hint };
}

/** The URL that the sender calls; empty if nothing of it is signed. */
async function toSignedUrl(
  { signsUrl, description }: Scheme,
  { publicUrl, urlCredentials }: WebhookConfig,
  { isTls, host, path }: Unsigned,
): Promise<string> {
  if (!signsUrl && !readsQuery(description)) return '';
  const read = urlCredentials && (await readUrlCredentials(urlCredentials));
  const credentials = read !== undefined && 'secret' in read ? read.secret : undefined;
  return `${addCredentials(publicUrl ?? `${isTls ? 'https' : 'http'}://${host}`, credentials)}${path}`;
}

/** Signs the request, and changes one part of it afterwards. */
function tamper(
  what: SignConfig['tamper'],
  { description }: Scheme,
  { id, timestamp, body }: { readonly id: string; readonly timestamp: EpochMilliseconds; readonly body: Buffer },
  signOnce: SignOnce,
): Pick<Signed, 'headers' | 'body'> {
  const { headers: valid, body: sent } = signOnce({});
  const longer = Buffer.concat([body, LINE_END]);
  switch (what) {
    case undefined:
      return { headers: valid, body: sent };
    case 'body':
      return { headers: valid, body: longer };
    case 'id':
      return { headers: replace(valid, signOnce({ id: `${id}x` }).headers, description.id), body };
    case 'timestamp':
      return { headers: swapTimestamp(valid, signOnce({ timestamp: timestamp + SECOND_MS }).headers, description), body };
    case 'signature':
      return { headers: toForged(valid, signOnce({ body: longer }).headers), body };
  }
}

type RequestFields = [string, string][];

/** Takes the field that `source` names from `other`. */
function replace(fields: RequestFields, other: RequestFields, source: object | undefined): RequestFields {
  const name = source !== undefined && 'header' in source ? source.header : undefined;
  return fields.map((field, index) => (field[0] === name ? (other[index] ?? field) : field));
}

/** Takes the timestamp from `later`: its header, or its entry in the signature header. */
function swapTimestamp(fields: RequestFields, later: RequestFields, { timestamp, signature }: SchemeDescription): RequestFields {
  if (timestamp === undefined || signature === undefined || !('entry' in timestamp.from))
    return replace(fields, later, timestamp?.from);
  const { entry, first } = timestamp.from;
  const list = signature.list ?? ',';
  const isTime = (part: string, index: number): boolean => (first === true ? index === 0 : part.startsWith(entry));
  const laterEntry = later
    .find(([name]) => name === signature.header)?.[1]
    .split(list)
    .find(isTime);
  return fields.map(([name, value]) => {
    if (name !== signature.header) return [name, value];
    const parts = value.split(list).map((part, index) => (isTime(part, index) ? (laterEntry ?? part) : part));
    return [name, parts.join(list)];
  });
}

/** A well-formed signature of another body; a token does not depend on the body, so it gets a suffix. */
function toForged(valid: RequestFields, other: RequestFields): RequestFields {
  const isSame = valid.every(([, value], index) => other[index]?.[1] === value);
  const last = valid.length - 1;
  return isSame ? valid.map(([name, value], index) => [name, index === last ? `${value}x` : value]) : other;
}
