/** For every preset: a retry of a handled event is a duplicate, and no event is one whose delivery an attacker changed before. */
import { isDeepStrictEqual } from 'node:util';
import { describe, expect, test } from 'vitest';
import type { SignedHead, VerifiedEvent } from '../../../../../src/core/event.ts';
import { cutBoundary, HeaderFields } from '../../../../../src/core/head.ts';
import { Refusal } from '../../../../../src/core/refusal.ts';
import type { ParsedHead } from '../../../../../src/core/request.ts';
import { ClaimWaiters, Settlements } from '../../../../../src/gateway/pipeline/claims.ts';
import { createDedupGate, type DedupOptions } from '../../../../../src/gateway/pipeline/gates/dedup.ts';
import { createMemorySeenIds } from '../../../../../src/state/memory.ts';
import { PRESETS } from '../../../../../src/verify/presets/catalogue.ts';
import { TIMESTAMP_FORMATS } from '../../../../../src/verify/schemes/coverage.ts';
import type { SchemeDescription } from '../../../../../src/verify/schemes/description.ts';
import type { Identified, Message } from '../../../../../src/verify/schemes/scheme.ts';
import { FakeClock, settle } from '../../../../support/fake-clock.ts';
import { type Arrived, readForm, readSigned, signArrived } from '../../../../support/field-cases.ts';
import { FIELD_PRESETS } from '../../../../support/field-schemes.ts';
import { NOW, type PresetCase, PUBLIC_URL, SECRET, toCase } from '../../../../support/preset-cases.ts';

/** Amazon SNS is in e2e/sns.test.ts; Apple's tokens need a chain of certificates, and sign the whole body. */
const TRIED = PRESETS.filter(({ name, signature }) => name !== 'apple-app-store' && signature !== undefined);
const OPTIONS: DedupOptions = {
  route: 'a',
  retention: 259_200_000,
  lease: 60_000,
  inProgress: 'reject',
  maxWait: 4_000,
  onStoreError: 'refuse',
  unsignedId: 'check',
  repeatsBytes: false,
  maxKinds: 8,
};

/** What apps of any sender read. */
const TELLING = ['X-GitHub-Event', 'X-Shopify-Topic', 'Ce-Type', 'X-Any-Event-Name'];

/** What a retry has that its first attempt has not, beside its time and its signature. */
const RETRIES: Readonly<Record<string, Partial<Arrived>>> = {
  mailgun: { body: Buffer.from('{"signature":{"token":"of-the-retry"},"event-data":{"id":"Ase7i2zsRYeDXztHGENqRA"}}') },
  'google-pubsub': { body: Buffer.from('{"message":{"messageId":"e1"},"deliveryAttempt":2,"note":"a=b 1700000000"}') },
};

/** `duplicate`, `forwarded`, or the code of the refusal. */
type Deliver = (arrived: Arrived) => Promise<string>;

function open(one: PresetCase): Deliver {
  const { scheme } = one;
  const clock = new FakeClock();
  const store = createMemorySeenIds(clock, { maxIds: 1_000 });
  const settlements = new Settlements(store, clock, { onOutcome: () => undefined, onLost: () => undefined });
  const waiters = new ClaimWaiters(1, () => undefined, String);
  const gate = createDedupGate(OPTIONS, {
    store,
    clock,
    settlements,
    waiters,
    onEvent: () => undefined,
    onDuration: () => undefined,
  });
  let count = 0;
  return async (arrived) => {
    const { method, url, body } = arrived;
    const signed = readSigned(scheme, arrived);
    if (signed instanceof Refusal) return signed.code;
    const headers = new HeaderFields(arrived.headers.flat());
    const isMultipart = cutBoundary(headers.get('content-type') ?? '') !== undefined;
    const message = { method, url, body, isMultipart };
    const identity = await identify(one, signed, message);
    if ('problem' in identity) return identity.problem;
    const raw = url.slice(PUBLIC_URL.length);
    const openHead = scheme.toOpenHead?.(raw, headers);
    const event: VerifiedEvent = {
      ...identity,
      keyName: 'k',
      body,
      kind: signed.kind,
      ...(openHead !== undefined && { openHead }),
    };
    const client = { viaTrustedProxy: false, viaIdentityProxy: false, scheme: 'https' };
    const head = { requestId: `r${count++}`, startedAt: clock.monotonic(), method, target: { raw }, headers, client };
    const claimed = await gate.claim(event, head as unknown as ParsedHead);
    if (claimed instanceof Refusal) return claimed.code;
    claimed.claim?.confirm();
    await settle();
    return 'forwarded';
  };
}

async function identify({ scheme, key }: PresetCase, signed: SignedHead, message: Message): Promise<Identified> {
  if (scheme.token === undefined)
    return scheme.verify(signed, message, [key]) === undefined ? { problem: 'mismatch' } : scheme.identify(signed, message);
  const verified = await scheme.token.verify(signed, message, () => [key], NOW);
  if (verified instanceof Refusal) return { problem: verified.code };
  return verified === 'mismatch' ? { problem: verified } : verified.identity;
}

/** Writes a value at a path; `[*]` stands for one item. */
function write(content: object, path: string, value: unknown): void {
  const steps = [...path.matchAll(/\.([^.[\]]+)|\[(\d+|\*)\]/g)].map(([, name, at]) => name ?? (at === '*' ? 0 : Number(at)));
  let found = content as Record<string | number, unknown>;
  for (const [at, step] of steps.slice(0, -1).entries()) {
    found[step] ??= typeof steps[at + 1] === 'number' ? [] : {};
    found = found[step] as Record<string | number, unknown>;
  }
  found[steps.at(-1) ?? ''] ??= value;
}

/** An event as the sender would send it. */
function toEvent({ description, signingSecret }: PresetCase, at: number): Partial<Arrived> {
  const { name, id, signature, signed, timestamp, contentShape } = description;
  const known = FIELD_PRESETS.find((one) => one.name === name)?.delivery;
  if (known !== undefined) return known;
  if (signed.includes('form')) return { body: Buffer.from('CallSid=CA1&From=%2B49') };
  const paths = [id, timestamp?.from].flatMap((place) => (place !== undefined && 'json' in place ? [place.json] : []));
  const content =
    [...paths, signature?.content ?? ''].some((path) => path.startsWith('$[')) || contentShape === 'json-array' ? [] : {};
  if (signature?.content !== undefined) write(content, signature.content, signingSecret);
  if (id !== undefined && 'json' in id) write(content, id.json, 'e1');
  if (timestamp !== undefined && 'json' in timestamp.from) {
    const { format, isNumber } = TIMESTAMP_FORMATS[timestamp.unit];
    write(content, timestamp.from.json, isNumber ? Number(format(at)) : format(at));
  }
  if (name === 'google-pubsub') write(content, '$.deliveryAttempt', 1);
  if (!Array.isArray(content)) write(content, '$.note', 'a=b 1700000000');
  return { body: Buffer.from(JSON.stringify(content)) };
}

/** As the sender signs it, with what names the event and its media type. */
function deliverAt(one: PresetCase, at: number, given?: Partial<Arrived>): Arrived {
  const { description } = one;
  const event = given ?? toEvent(one, at);
  const { id, contentTypes, signature, kind = [], comparedHeaders = [] } = description;
  const known = new Set(event.headers?.map(([name]) => name));
  const telling = [...new Set([...kind, ...comparedHeaders, ...TELLING])].filter((name) => !known.has(name));
  const own: (readonly [string, string])[] = [['Host', 'hooks.example'], ...telling.map((name) => [name, 'order.paid'] as const)];
  if (id !== undefined && 'header' in id && !description.signed.includes('id')) own.push([id.header, 'evt_1']);
  const headers = [...(event.headers ?? []), ...own];
  const unsigned = { method: 'POST', url: `${PUBLIC_URL}/hook`, headers, body: event.body ?? Buffer.alloc(0) };
  const signed = signature?.content === undefined ? signArrived(one, { ...event, headers, at }) : unsigned;
  const names = new Set(signed.headers.map(([name]) => name.toLowerCase()));
  // What proves a token: the scheme signs nothing.
  const token: [string, string][] =
    signature !== undefined && signature.header !== '' && !names.has(signature.header.toLowerCase())
      ? [[signature.header, `${signature.forms[0]?.prefix ?? ''}${one.signingSecret}`]]
      : [];
  const isMultipart = signed.body.toString('latin1').startsWith('--');
  const type = contentTypes.find((each) => each.startsWith('multipart/') === isMultipart) ?? '';
  const unique = new Map([...signed.headers, ...token].map(([name, value]) => [name.toLowerCase(), [name, value] as const]));
  return { ...signed, headers: [...unique.values(), ['Content-Type', type]] };
}

/** What an app reads: every value of the body but the signature, with its place. */
function toMeaning(
  { signature, perAttempt = [], comparedHeaders = [], kind = [] }: SchemeDescription,
  { method, url, body, headers }: Arrived,
): unknown {
  const text = body.toString('latin1');
  const isForm = /^[\w-]+=/.test(text) || text.startsWith('--');
  const content: unknown = isForm ? Object.fromEntries(readForm(body)) : readJson(text);
  const inJson = [...perAttempt, { json: signature?.json ?? '$.unused' }].flatMap((place) =>
    'json' in place ? [place.json] : [],
  );
  for (const path of inJson) if (typeof content === 'object' && content !== null) erase(content, path);
  if (signature?.form !== undefined && typeof content === 'object' && content !== null) {
    const fields = content as Record<string, unknown>;
    const inner = signature.path === undefined ? undefined : readJson(String(fields[signature.form]));
    if (signature.path === undefined) delete fields[signature.form];
    else if (typeof inner === 'object' && inner !== null) {
      erase(inner, signature.path);
      fields[signature.form] = inner;
    }
  }
  const read = ['Host', 'Content-Type', ...comparedHeaders, ...kind, ...TELLING].map((name) => name.toLowerCase());
  const fields = headers.map(([name, value]) => [name.toLowerCase(), value] as const);
  const named =
    fields
      .find(([name]) => name === 'connection')?.[1]
      .toLowerCase()
      .split(', ') ?? [];
  return [method, url, content, fields.filter(([name]) => read.includes(name) && !named.includes(name))];
}

function readJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function erase(content: object, path: string): void {
  const steps = [...path.matchAll(/\.([^.[\]]+)|\[(\d+)\]/g)].map(([, name, at]) => name ?? Number(at));
  let found: unknown = content;
  for (const step of steps.slice(0, -1)) found = (found as Record<string | number, unknown> | undefined)?.[step];
  if (typeof found === 'object' && found !== null) delete (found as Record<string | number, unknown>)[steps.at(-1) ?? ''];
}

/** Each is another message for some parser. */
const TYPES = [
  'APPLICATION/JSON',
  'application/json; x=1',
  'application/json;',
  'multipart/form-data; a="boundary=B"; boundary=B',
];

/** Changes of a delivery by somebody without the key. */
function* forge(genuine: Arrived, { comparedHeaders = [], kind = [] }: SchemeDescription): Generator<Arrived> {
  const { body, url, headers } = genuine;
  for (let at = 0; at <= body.length; at++) {
    const [before, after] = [body.subarray(0, at), body.subarray(at)];
    for (const text of ['x', '1', '"zz":1,', '&zz=1', '='])
      yield { ...genuine, body: Buffer.concat([before, Buffer.from(text), after]) };
    if (after.length > 0) yield { ...genuine, body: Buffer.concat([before, Buffer.from('7'), after.subarray(1)]) };
    if (after.length > 0) yield { ...genuine, body: Buffer.concat([before, after.subarray(1)]) };
  }
  const set = (name: string, toValue: (value: string) => string): Arrived => ({
    ...genuine,
    headers: headers.map(([other, value]) => [other, other === name ? toValue(value) : value]),
  });
  for (const name of [...comparedHeaders, ...kind, ...TELLING]) {
    yield { ...genuine, headers: [...headers, [name, 'forged']] };
    yield { ...genuine, headers: [...headers, ['Connection', `close, ${name}`]] };
    yield { ...genuine, headers: headers.filter(([other]) => other !== name) };
    yield { ...genuine, headers: headers.map(([other, value]) => [other === name ? name.replaceAll('-', '_') : other, value]) };
    for (const toValue of [(value: string) => value.toUpperCase(), (value: string) => `${value}.`]) yield set(name, toValue);
  }
  for (const host of ['other.example', 'HOOKS.example', 'hooks.example:8443', 'hooks.example.']) yield set('Host', () => host);
  for (const type of TYPES) yield set('Content-Type', () => type);
  yield set('Content-Type', (value) => `${value}; x=1`);
  yield { ...genuine, method: 'PUT' };
  yield { ...genuine, url: `${url}${url.includes('?') ? '&' : '?'}zz=1` };
  yield set('Content-Type', () => 'text/plain');
}

describe.each(TRIED)('$name', (description) => {
  const secrets = { secret: SECRET, signingSecret: SECRET };
  const isToken = description.signed.length === 0;
  const isUnknown = description.id === undefined && isToken;
  const one = isToken && description.jwt === undefined ? toCase(description, secrets) : toCase(description);

  test('gets no 2xx for a genuine event after a changed delivery of it', async () => {
    const genuine = deliverAt(one, NOW);
    expect(await open(one)(genuine)).toBe('forwarded');
    const meaning = toMeaning(description, genuine);
    let accepted = 0;
    for (const forged of forge(genuine, description)) {
      const deliver = open(one);
      if (isDeepStrictEqual(toMeaning(description, forged), meaning) || (await deliver(forged)) !== 'forwarded') continue;
      accepted++;
      const answer = await deliver(genuine);
      expect([answer, forged.body.toString('latin1'), forged.url]).not.toContain('duplicate');
    }
    // Another method at least, unless all is signed.
    if (!description.signed.includes('method')) expect(accepted).toBeGreaterThan(0);
  });

  test('gets 2xx for a retry of an event that was handled', async () => {
    const deliver = open(one);
    expect(await deliver(deliverAt(one, NOW - 30_000))).toBe('forwarded');
    expect(await deliver(deliverAt(one, NOW - 30_000))).toBe(isUnknown ? 'forwarded' : 'duplicate');
    // Without an ID, a new time is a new event; so is a new token.
    const hasId = description.id !== undefined && description.name !== 'wix';
    const isNew = !hasId && (isToken || description.timestamp !== undefined || description.jwt !== undefined);
    expect(await deliver(deliverAt(one, NOW, RETRIES[description.name]))).toMatch(isNew ? /forwarded|duplicate/ : /duplicate/);
  });
});
