import { describe, expect, test } from 'vitest';
import { type JsonPattern, parseJsonPattern } from '../../../../src/core/json-path.ts';
import { acknowledge } from '../../../../src/core/refusal.ts';
import { BodyRecorders } from '../../../../src/gateway/pipeline/body-recorders.ts';
import type { RequestRecord } from '../../../../src/gateway/pipeline/record.ts';
import type { JournalBody } from '../../../../src/telemetry/journal/journal.ts';
import { PRESETS } from '../../../../src/verify/presets/catalogue.ts';
import { isToken, type SchemeDescription } from '../../../../src/verify/schemes/description.ts';
import { makeAdmitted } from '../../../support/admitted.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const OUTCOME = { kind: 'responded', status: 200, contentBytes: 0, upstreamMs: 1 } as const;
const SECRET = 'MfKQ9r8GKYqrTwjUPD8ILPZIo2/aLaSw';
const findScheme = (name: string): SchemeDescription => PRESETS.find((preset) => preset.name === name) as SchemeDescription;

function open() {
  const clock = new FakeClock();
  const outcomes: string[] = [];
  const secrets = [Buffer.from(SECRET)];
  const low = { isMemoryLow: false };
  const recorders = new BodyRecorders({
    clock,
    maxBytes: 1_000_000,
    onBody: (outcome) => outcomes.push(outcome),
    isMemoryLow: () => low.isMemoryLow,
    secrets: () => secrets,
  });
  const openRoute = (redact: readonly string[] = [], over: { maxBytes?: number; scheme?: string; route?: string } = {}) => {
    const { maxBytes = 200, scheme = 'standard-webhooks', route = 'billing' } = over;
    const patterns = redact.map((path) => parseJsonPattern(path) as JsonPattern);
    return recorders.open(route, { maxBytes, retention: 60_000, redact: patterns }, findScheme(scheme));
  };
  return { clock, outcomes, recorders, low, openRoute };
}

function toRecord(body: Buffer | string, over: Partial<RequestRecord> = {}): RequestRecord {
  const admitted = makeAdmitted({ body, claimed: {} });
  const event = admitted.claimed?.event;
  return { info: admitted.head, head: admitted.head, event, admitted, outcome: OUTCOME, ...over };
}

const record = (body: Buffer | string, redact: readonly string[] = [], over = {}): JournalBody =>
  open().openRoute(redact, over).record(toRecord(body));
const read = ({ content }: JournalBody): string => content.toString();

describe('stores', () => {
  test('a body as it is if nothing must be redacted', () => {
    const large = Buffer.from('x'.repeat(60_000) + '{"id":12345678901234567890}'.padEnd(5_536));
    const body = record(large.subarray(60_000, 60_027));
    expect(body).toMatchObject({ isTruncated: false, redactions: 0 });
    expect(read(body)).toBe('{"id":12345678901234567890}');
    expect(read(record('a=b&c=d'))).toBe('a=b&c=d');
    expect(read(record(''))).toBe('');
  });

  test('the beginning of a body that is too large, at the end of a character', () => {
    const body = record(`${'x'.repeat(198)}€uro`);
    expect([read(body), body.isTruncated]).toEqual(['x'.repeat(198), true]);
    expect(read(record(`${'x'.repeat(197)}€uro`))).toBe(`${'x'.repeat(197)}€`);
    expect(read(record(`${'x'.repeat(199)}\u{1f600}`))).toBe('x'.repeat(199));
    expect(read(record('x'.repeat(200)))).toHaveLength(200);
  });

  test('JSON without the values that must be redacted', () => {
    const body = record('{"card":{"number":"4242","id":1},"n":2}', ['$.card.number', '$.none']);
    expect([read(body), body.redactions]).toEqual(['{"card":{"number":"[redacted]","id":1},"n":2}', 1]);
    expect(read(record('', ['$.a']))).toBe('');
  });

  test('events of any scheme without its credentials in the content, which need not be listed', () => {
    const graph = JSON.stringify({
      value: [
        { id: '1', clientState: SECRET },
        { id: '2', clientState: SECRET },
      ],
      validationTokens: ['ey'],
    });
    expect(read(record(graph, [], { scheme: 'microsoft-graph' }))).toBe(
      '{"value":[{"id":"1","clientState":"[redacted]"},{"id":"2","clientState":"[redacted]"}],"validationTokens":"[redacted]"}',
    );
    const sns = '{"Message":"m","Signature":"s","UnsubscribeURL":"https://x"}';
    expect(read(record(sns, [], { scheme: 'aws-sns' }))).toBe(
      '{"Message":"m","Signature":"[redacted]","UnsubscribeURL":"[redacted]"}',
    );
    expect(read(record('{"token":"t","event":{}}', [], { scheme: 'slack' }))).toBe('{"token":"[redacted]","event":{}}');
    for (const { name, signature } of PRESETS)
      if (signature !== undefined && isToken(signature))
        for (const text of [`{"value":[{"clientState":"${SECRET}"}]}`, `{"a":"${SECRET}"}`, `a=${SECRET}`, SECRET])
          expect([name, read(record(text, [], { scheme: name })).includes(SECRET)]).toEqual([name, false]);
  });

  test('no signature or token by which a preset verifies the body: with it, the body could be sent again', () => {
    const credential = 'c0ffee'.repeat(8);
    const inBody = PRESETS.filter(({ signature, jwt }) =>
      [signature?.json, signature?.form, signature?.content, jwt?.content].some(Boolean),
    );
    expect(inBody.map(({ name }) => name)).toEqual(
      expect.arrayContaining(['adyen-payments', 'apple-app-store', 'braintree', 'mailgun', 'wix']),
    );
    for (const { name, signature, jwt } of inBody) {
      const path = signature?.json ?? signature?.content ?? jwt?.content;
      const body = path === undefined ? `${signature?.form}=${credential}` : toBody(path, credential);
      expect([name, read(record(body, [], { scheme: name })).includes(credential)]).toEqual([name, false]);
    }
    const adyen = PRESETS.find(({ name }) => name === 'adyen-payments')?.signature?.json ?? '';
    expect(read(record(toBody(adyen, credential), [], { scheme: 'adyen-payments' }))).toContain('[redacted]');
  });
});

describe('stores nothing of', () => {
  test.each<[string, Buffer | string, readonly string[], string]>([
    ['a large body of which a part must be redacted', `{"a":"${'x'.repeat(200)}"}`, ['$.b'], 'too_large'],
    ['a body that redaction makes too large', `[${'1,'.repeat(40)}1]`, ['$[*]'], 'too_large'],
    ['a form of which a part must be redacted', 'card=4242', ['$.card'], 'not_json'],
    ['JSON with a repeated name', '{"card":1,"card":"4242"}', ['$.card'], 'not_json'],
    ['JSON with a repeated name in another spelling', '{"card":1,"c\\u0061rd":"4242"}', ['$.card'], 'not_json'],
    ['JSON with text after it', '{"a":1} {"card":"4242"}', ['$.card'], 'not_json'],
    ['JSON with a byte order mark', '\ufeff{"card":"4242"}', ['$.card'], 'not_json'],
    ['JSON in UTF-16', Buffer.from('{"card":"4242"}', 'utf16le'), ['$.card'], 'not_json'],
    ['truncated JSON', '{"card":"4242"', ['$.card'], 'not_json'],
    ['deep JSON', `${'['.repeat(65)}${']'.repeat(65)}`, ['$.card'], 'not_json'],
    ['binary content', Buffer.from([0x1f, 0x8b, 0xff]), [], 'not_text'],
    ['text in another encoding', Buffer.from('Müller', 'latin1'), [], 'not_text'],
    ['a body with a signing secret', `{"a":"${SECRET}"}`, [], 'has_secret'],
    ['redacted JSON with a signing secret elsewhere', `{"a":1,"b":"${SECRET.replace('/', '\\/')}"}`, ['$.a'], 'has_secret'],
    ['a beginning that ends within a signing secret', `${'x'.repeat(190)}${SECRET}`, [], 'has_secret'],
    ['a beginning within a secret that is escaped twice', `${'x'.repeat(190)}${escapeAll(escapeAll(SECRET))}`, [], 'has_secret'],
    ['a beginning within a secret that is escaped thrice', escapeAll(escapeAll(escapeAll(SECRET))), [], 'has_secret'],
    ['a beginning that ends within an escaped secret', `${'x'.repeat(190)}${escapeAll(SECRET)}`, [], 'has_secret'],
  ])('%s', (_, body, redact, absence) => {
    const { openRoute, outcomes, recorders } = open();
    expect(openRoute(redact).record(toRecord(body))).toMatchObject({ content: absence });
    expect([outcomes, recorders.bytes]).toEqual([['not_stored'], 0]);
  });

  test('anything while the gate is near its memory limit, and stores again afterwards', () => {
    const { low, outcomes, openRoute } = open();
    const recorder = openRoute(['$.a']);
    low.isMemoryLow = true;
    expect(recorder.record(toRecord('{"a":1}')).content).toBe('memory_low');
    low.isMemoryLow = false;
    expect(read(recorder.record(toRecord('{"a":1}')))).toBe('{"a":"[redacted]"}');
    expect(outcomes).toEqual(['not_stored', 'stored']);
  });

  test('more than 10,000 values, which take many times the memory of their text', () => {
    expect(read(record(`[${'1,'.repeat(10_001)}1]`, ['$.a'], { maxBytes: 65_536 }))).toBe('not_json');
  });

  test('a request that was not verified, or not forwarded', () => {
    const { openRoute, outcomes } = open();
    const recorder = openRoute();
    const { head } = makeAdmitted();
    const event = { id: 'a', timestamp: 7, keyName: 'k', body: Buffer.from('{}') };
    const refusal = acknowledge({ state: 'handled', isSameEvent: true, reason: 'duplicate' });
    const admitted = makeAdmitted();
    const absences = [
      { info: head },
      { info: head, head, refusal },
      { info: head, head, event, refusal },
      // Not by its signature: in observe mode, or on an open route.
      { info: head, head, admitted, outcome: OUTCOME },
      // It waited for the app in vain.
      toRecord('{}', { outcome: undefined, refusal }),
    ] satisfies RequestRecord[];
    expect(absences.map((each) => read(recorder.record(each)))).toEqual([
      'not_verified',
      'not_verified',
      'not_forwarded',
      'not_verified',
      'not_forwarded',
    ]);
    expect(outcomes).toEqual([]);
  });
});

describe('a reload', () => {
  test('keeps the bodies of routes with the same settings, and removes those of all others', () => {
    const { openRoute, recorders } = open();
    const kept = openRoute(['$.a'], { route: 'kept' }).record(toRecord('{}'));
    const changed = openRoute(['$.a'], { route: 'changed' }).record(toRecord('{}'));
    const gone = openRoute([], { route: 'gone' }).record(toRecord('{}'));
    openRoute(['$.a'], { route: 'kept' });
    openRoute(['$.a', '$.b'], { route: 'changed' });
    recorders.keep(new Set(['kept', 'changed']));
    expect([kept, changed, gone].map(read)).toEqual(['{}', 'expired', 'expired']);
  });

  test('makes requests that began before it store nothing by the old settings', () => {
    const { openRoute, recorders } = open();
    const [old, removed] = [openRoute(), openRoute([], { route: 'other' })];
    openRoute(['$.a']);
    recorders.keep(new Set(['billing']));
    expect([old, removed].map((each) => read(each.record(toRecord('{"a":1}'))))).toEqual(['expired', 'expired']);
    expect(recorders.bytes).toBe(0);
  });
});

function escapeAll(text: string): string {
  return [...text].map((each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');
}

/** A body with the credential at the path. */
function toBody(path: string, credential: string): string {
  const { steps } = path === '$' ? { steps: [] } : (parseJsonPattern(path) as JsonPattern);
  if (steps.length === 0) return credential;
  return JSON.stringify(
    steps.reduceRight<unknown>((value, step) => (typeof step === 'string' ? { [step]: value } : [value]), credential),
  );
}
