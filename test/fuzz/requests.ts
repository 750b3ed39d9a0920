/** Generates hostile requests: targets that a router may take for a protected path, with odd methods, hosts and headers. */
import { makeDelivery } from '../support/deliveries.ts';
import { toBasic } from '../support/users.ts';
import type { Random } from './random.ts';

/** What a request proves about its sender. */
export type Proof = 'none' | 'account' | 'delivery';

/** One request, as it goes on the wire. */
export interface FuzzRequest {
  readonly method: string;
  readonly target: string;
  readonly host: string;
  /** Further field lines. */
  readonly fields: readonly (readonly [string, string])[];
  readonly body: Buffer;
  readonly proof: Proof;
}

/** The user of the realm that guards `/account`, and of no other. */
export const ACCOUNT_USER = { name: 'bob', password: 'battery staple' } as const;

const PROTECTED = ['/admin', '/admin/', '/admin/users', '/admin/users/7', '/hooks/billing', '/account'];
const OPEN = [
  '/',
  '/x',
  '/x/y',
  '/static/app.css',
  '/adm',
  '/administrator',
  '/hooks',
  '/hooks/other',
  '/accounts',
  '/~user',
  '/caf%C3%A9',
];
const METHODS = [
  'GET',
  'GET',
  'GET',
  'POST',
  'POST',
  'PUT',
  'PATCH',
  'DELETE',
  'OPTIONS',
  'HEAD',
  'PROPFIND',
  'TRACE',
  'get',
  'QUERY',
];
const HOSTS = [
  'app.example',
  'APP.example',
  'app.example:80',
  'app.example.',
  'internal.example',
  'INTERNAL.example',
  'internal.example.',
];
const ODD_HOSTS = [
  'internal.example:443',
  'internal.example.:80',
  'internal%2eexample',
  'x@internal.example',
  '127.0.0.1',
  '[::1]',
  'internal',
];
/** Letters that fold to ASCII letters in Unicode, and full-width or decomposed ones. */
const LOOKALIKES: Readonly<Record<string, readonly string[]>> = {
  a: ['%EF%BD%81', '%EF%BC%A1', '%C3%A0', '%C2%AA'],
  i: ['%C4%B0', '%C4%B1', '%E2%85%B0'],
  k: ['%E2%84%AA'],
  s: ['%C5%BF', '%EF%BD%93'],
  n: ['%EF%BD%8E', '%E2%81%BF'],
};
const SLASHES = [
  '//',
  '/./',
  '/.//',
  '/x/../',
  '\\',
  '/\\',
  '%2f',
  '%2F',
  '%5c',
  '%252f',
  '/%2e/',
  '/;/',
  '/;a=b/',
  ';/',
  '/%20/',
  '/%09/',
  '/.;/',
];
const ENDINGS = [
  '/',
  '//',
  '/.',
  '/..',
  '/%2e',
  ';',
  ';a=b',
  ';.css',
  '.',
  '.json',
  '.html',
  '%20',
  '%09',
  '%00',
  '%0a',
  '%3b',
  '%3f',
  '%23',
  '#',
  '#x',
  '\\',
  '%2f',
  '%5c',
  '/;',
  '~',
  '+',
  '%c0%af',
  '%ff',
  '::$DATA',
];
const BEGINNINGS = [
  '/',
  '/.',
  '/x/..',
  '//x/..',
  '/%2e',
  '/;',
  '/%20',
  '\\',
  '/x/%2e%2e',
  '/..',
  '/x/..;',
  '//',
  'http://app.example',
  'http://internal.example',
  '*',
  '',
];
const QUERIES = ['', '', '', '?', '?a=b', '?_method=DELETE', '?/../admin', '?#', '??', '?%00', '?url=/admin'];
const FIELDS: readonly (readonly [string, string])[] = [
  ['X-HTTP-Method-Override', 'DELETE'],
  ['X_Method_Override', 'PUT'],
  ['X-Original-URL', '/admin'],
  ['X-Rewrite-URL', '/admin'],
  ['X-Original-URI', '/x'],
  ['X-Forwarded-Uri', '/admin'],
  ['X-Forwarded-Prefix', '/admin'],
  ['X-Forwarded-Host', 'internal.example'],
  ['X-Forwarded-User', 'alice'],
  ['Remote-User', 'alice'],
  ['Sidegate-User', 'alice'],
  ['Sidegate_User', 'alice'],
  ['Connection', 'close, Authorization'],
  ['Connection', 'X-Hop'],
  ['Authorization', 'Basic YWxpY2U6'],
  ['Authorization', 'Bearer x'],
  ['Authorization', 'Basic'],
  ['Content-Type', 'application/json'],
  ['Webhook-Id', 'msg_1'],
  ['Webhook-Signature', 'v1,AAAA'],
  ['Expect', '100-continue'],
  ['Upgrade', 'websocket'],
  ['Forwarded', 'host=internal.example'],
];

/** Makes one. */
export function makeRequest(random: Random): FuzzRequest {
  const proof = random.pick<Proof>(['none', 'none', 'none', 'account', 'delivery']);
  const fields: (readonly [string, string])[] = [];
  const hasOddFields = random.chance(0.3);
  if (hasOddFields) for (let i = random.below(3); i >= 0; i--) fields.push(random.pick(FIELDS));
  const delivery = proof === 'delivery' ? makeDelivery() : undefined;
  if (proof === 'account') fields.push(...Object.entries(toBasic(ACCOUNT_USER.name, ACCOUNT_USER.password)));
  if (delivery !== undefined) fields.push(...Object.entries(delivery.headers));
  return {
    method: delivery === undefined || random.chance(0.3) ? random.pick(METHODS) : 'POST',
    target: makeTarget(random),
    host: random.pick(random.chance(0.2) ? ODD_HOSTS : HOSTS),
    fields,
    body: delivery?.body ?? Buffer.from(random.chance(0.2) ? '{"a":1}' : ''),
    proof,
  };
}

/** Makes one target: a path of the app, spelled so that some router may still find its handler. */
export function makeTarget(random: Random): string {
  let path = random.pick(random.chance(0.85) ? PROTECTED : OPEN);
  for (let i = random.below(4); i > 0; i--) path = mutate(path, random);
  return `${path}${random.pick(QUERIES)}`;
}

type Mutation = (path: string, random: Random) => string;

const MUTATIONS: readonly Mutation[] = [
  (path, random) => replaceOne(path, /[A-Za-z]/g, random, escapeByte),
  (path, random) => replaceOne(path, /[A-Za-z]/g, random, escapeByte),
  (path, random) => path.replace(/[a-z]/g, (letter) => (random.chance(0.5) ? escapeByte(letter) : letter)),
  (path, random) => replaceOne(path, /[a-z]/g, random, (letter) => letter.toUpperCase()),
  (path, random) => path.replace(/[a-z]/g, (letter) => (random.chance(0.5) ? letter.toUpperCase() : letter)),
  (path, random) => replaceOne(path, /[aikns]/g, random, (letter) => random.pick(LOOKALIKES[letter] ?? [letter])),
  (path, random) => replaceOne(path, /\//g, random, () => random.pick(SLASHES)),
  (path, random) => replaceOne(path, /%/g, random, () => '%25'),
  (path, random) => replaceOne(path, /%[0-9a-f]{2}/gi, random, (found) => found.toLowerCase()),
  (path, random) => `${path}${random.pick(ENDINGS)}`,
  (path, random) => `${random.pick(BEGINNINGS)}${path}`,
  (path, random) => insert(path, random, random.pick(['.', ';x', '%00', '%20', '/', '\\', '%ad', '%c2%ad', '%e2%80%8b', '+'])),
  (path, random) => {
    const at = random.below(path.length + 1);
    return `${path.slice(0, at)}${path.slice(at + 1)}`;
  },
];

function mutate(path: string, random: Random): string {
  return random.pick(MUTATIONS)(path, random);
}

function insert(path: string, random: Random, text: string): string {
  const at = random.below(path.length + 1);
  return `${path.slice(0, at)}${text}${path.slice(at)}`;
}

function replaceOne(path: string, pattern: RegExp, random: Random, change: (found: string) => string): string {
  const found = [...path.matchAll(pattern)];
  if (found.length === 0) return path;
  const { 0: text, index } = random.pick(found);
  return `${path.slice(0, index)}${change(text)}${path.slice(index + text.length)}`;
}

function escapeByte(letter: string): string {
  return `%${letter.charCodeAt(0).toString(16).toUpperCase()}`;
}
