import { describe, expect, test } from 'vitest';
import { type JsonPattern, parseJsonPattern } from '../../../../src/core/json-path.ts';
import { acknowledge } from '../../../../src/core/refusal.ts';
import { parseStrictJson } from '../../../../src/core/strict-json.ts';
import { BodyRecorders, redactJson } from '../../../../src/gateway/pipeline/body-recorders.ts';
import type { RequestRecord } from '../../../../src/gateway/pipeline/record.ts';
import type { JournalBody } from '../../../../src/telemetry/journal/journal.ts';
import { PRESETS } from '../../../../src/verify/presets/catalogue.ts';
import { isToken, type SchemeDescription } from '../../../../src/verify/schemes/description.ts';
import { makeAdmitted } from '../../../support/admitted.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { fc } from '../../../support/property.ts';

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

describe('redactJson', () => {
  const REDACTED = '[redacted]';
  const parse = (text: string): JsonPattern => {
    const pattern = parseJsonPattern(text);
    if ('problem' in pattern) throw new Error(pattern.problem);
    return pattern;
  };
  const redact = (json: string, ...paths: string[]): [text: string | undefined, count: number | undefined] => {
    const redacted = redactJson(Buffer.from(json), paths.map(parse), 1_000_000);
    return [redacted?.text.toString(), redacted?.count];
  };

  describe('replaces', () => {
    test.each<[json: string, path: string, expected: string]>([
      ['{"card":{"number":"4242"},"n":1}', '$.card.number', '{"card":{"number":"[redacted]"},"n":1}'],
      ['{"c":[{"e":1,"x":2},{"e":{"a":[]}},{}]}', '$.c[*].e', '{"c":[{"e":"[redacted]","x":2},{"e":"[redacted]"},{}]}'],
      ['{"c":{"a":{"e":1},"b":{"e":2}}}', '$.c.*.e', '{"c":{"a":{"e":"[redacted]"},"b":{"e":"[redacted]"}}}'],
      ['{"c":{"a":{"e":1},"b":[{"e":2}]}}', '$.c[*][0].e', '{"c":{"a":{"e":1},"b":[{"e":"[redacted]"}]}}'],
      ['[[1,2],[3]]', '$[*][0]', '[["[redacted]",2],["[redacted]"]]'],
      ['{"a":null,"b":false}', '$.a', '{"a":"[redacted]","b":false}'],
      ['{"c\\u0061rd" : {"n\\u0075mber":\t1 } }', '$.card.number', '{"c\\u0061rd" : {"n\\u0075mber":\t"[redacted]" } }'],
      ['{"__proto__":{"a":1}}', '$.__proto__.a', '{"__proto__":{"a":"[redacted]"}}'],
      ['{"c":{"0":{"e":1},"2":{"e":2}}}', '$.c[0].e', '{"c":{"0":{"e":"[redacted]"},"2":{"e":2}}}'],
      ['{"c":[{"e":1},{"e":2}]}', '$.c.1.e', '{"c":[{"e":1},{"e":"[redacted]"}]}'],
      ['{"c":{"00":1,"0":2}}', '$.c[0]', '{"c":{"00":1,"0":"[redacted]"}}'],
      ['{"":{"":1}}', '$[""][""]', '{"":{"":"[redacted]"}}'],
      ['{"a.b":{"]":1}}', '$["a.b"]["]"]', '{"a.b":{"]":"[redacted]"}}'],
      ['{"a":"},\\"b\\":\\"","b":"x"}', '$.b', '{"a":"},\\"b\\":\\"","b":"[redacted]"}'],
    ])('in %s what %s selects', (json, path, expected) => {
      expect(redact(json, path)[0]).toBe(expected);
    });

    test('a text in place of an object or array, which may contain the value as JSON', () => {
      expect(redact('{"Message":"{\\"email\\":\\"a@b\\"}","n":1}', '$.Message.email')).toEqual([
        '{"Message":"[redacted]","n":1}',
        1,
      ]);
      expect(redact('"a@b"', '$.email')).toEqual(['"[redacted]"', 1]);
      expect(redact('{"c":["cus_1",{"e":1}]}', '$.c[*].e')).toEqual(['{"c":["[redacted]",{"e":"[redacted]"}]}', 2]);
    });

    test('what several paths select, once', () => {
      expect(redact('{"a":{"b":{"c":1}},"d":2}', '$.a.b.c', '$.a.b', '$.a', '$.*', '$.d')).toEqual([
        '{"a":"[redacted]","d":"[redacted]"}',
        2,
      ]);
    });

    test('nothing that no path selects, and keeps all digits and whitespace', () => {
      const json = ' { "id" : 12345678901234567890.10 , "e" : [ 1e400 , -0 ] }\n';
      expect(redact(json, '$.none', '$.id[0]', '$.e.x', '$.e[9]', '$.E')).toEqual([json, 0]);
      expect(redact(json, '$.e[0]')[0]).toBe(' { "id" : 12345678901234567890.10 , "e" : [ "[redacted]" , -0 ] }\n');
    });
  });

  test('gives up if the result would be larger than allowed: a replacement can be longer than its value', () => {
    const json = Buffer.from(`[${'1,'.repeat(5_000)}1]`);
    expect(redactJson(json, [parse('$[*]')], 60_000)).toBeUndefined();
    expect(redactJson(json, [parse('$[*]')], 70_000)?.count).toBe(5_001);
    expect(redactJson(json, [], json.length - 1)).toBeUndefined();
  });

  test('allocates exactly the memory of the result', () => {
    const { text } = redactJson(Buffer.from('{"a":1}'), [parse('$.a')], 100) ?? { text: Buffer.alloc(0) };
    expect(text.buffer.byteLength).toBe(text.length);
  });

  test('stays fast for wide and deep JSON, and many paths', () => {
    const deep = `${'{"a":['.repeat(15)}{"a":1}${']}'.repeat(15)}`;
    const json = Buffer.from(`[${Array<string>(500).fill(deep).join(',')}]`);
    const paths = Array.from({ length: 32 }, (_, i) => parse(`$${'[*]'.repeat(1 + (i % 30))}.b${i}`));
    const started = performance.now();
    expect(redactJson(json, paths, 1_000_000)?.count).toBe(0);
    expect(performance.now() - started).toBeLessThan(2_000);
  });

  /** The selected values by another way: the parsed value, changed in place. */
  function redactValue(value: unknown, steps: JsonPattern['steps']): unknown {
    const [step, ...rest] = steps;
    if (step === undefined || typeof value === 'string') return REDACTED;
    if (Array.isArray(value))
      return value.map((each, index) =>
        step === null || `${step}` === `${index}` ? redactValue(each, rest) : (each as unknown),
      );
    if (typeof value !== 'object' || value === null) return value;
    const entries = Object.entries(value).map(([name, each]) => [
      name,
      step === null || `${step}` === name ? redactValue(each, rest) : (each as unknown),
    ]);
    return Object.fromEntries(entries);
  }

  test('gives the same as changing the parsed value, for any JSON, any path and any spelling of names', () => {
    // Without a backslash: after an object with that name, V8 reads the name `"` as a backslash, so the comparison would fail.
    const name = fc.constantFrom('a', 'b', '', 'ü', '__proto__', '"', '\n', ']', '0');
    const { value } = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 4 },
        fc.constantFrom<unknown>(1, null, true, 'text', 1e21, '{"a":1}'),
        fc.array(tie('value'), { maxLength: 3 }),
        fc.dictionary(name, tie('value'), { maxKeys: 3 }),
      ),
    }));
    const steps = fc.array(fc.oneof(name, fc.nat({ max: 2 }), fc.constant(null)), { minLength: 1, maxLength: 4 });
    const respell = (json: string): string => json.replaceAll('a', '\\u0061').replaceAll('f\\u0061lse', 'false');
    fc.assert(
      fc.property(value, steps, fc.boolean(), fc.constantFrom(undefined, 1), (json, path, escapes, indent) => {
        const plain = JSON.stringify(json, undefined, indent);
        const text = Buffer.from(escapes ? respell(plain) : plain);
        const bounds = { maxDepth: 20, maxValues: 1_000 };
        expect(parseStrictJson(text, bounds).kind).toBe('value');
        const redacted = redactJson(text, [{ text: '', steps: path }], 100_000);
        expect(JSON.parse(redacted?.text.toString() ?? '')).toEqual(redactValue(JSON.parse(plain), path));
        expect(parseStrictJson(redacted?.text ?? text, bounds).kind).toBe('value');
      }),
      { numRuns: 2_000 },
    );
  });
});
