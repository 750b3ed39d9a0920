/** Signed headers, parameters and fields: every form is signed and verified, and no change of a signed value passes. */
import { createHash, createHmac, generateKeyPairSync } from 'node:crypto';
import { describe, expect, test, vi } from 'vitest';
import { toBytes } from '../../../../src/core/hmac.ts';
import { Refusal } from '../../../../src/core/refusal.ts';
import { ALGORITHMS } from '../../../../src/verify/schemes/algorithms.ts';
import type { SchemeDescription } from '../../../../src/verify/schemes/description.ts';
import { compilePieces, findAmbiguity } from '../../../../src/verify/schemes/layout.ts';
import { type Arrived, judgeArrived, readSigned, signArrived, toSignedMeaning } from '../../../support/field-cases.ts';
import { FIELD_PRESETS, FIELD_SCHEMES } from '../../../support/field-schemes.ts';
import { NOW, PUBLIC_URL, toCase } from '../../../support/preset-cases.ts';
import { fc } from '../../../support/property.ts';
import { toPem } from '../../../support/tokens.ts';

const ALL = [...FIELD_PRESETS, ...FIELD_SCHEMES];

/** Every request that differs in one byte: another one, one more, one less. */
function* changeEachByte(arrived: Arrived, others: readonly number[]): Generator<Arrived> {
  const { headers, url, body } = arrived;
  for (const [index, [name, value]] of headers.entries())
    for (const changed of changeText(Buffer.from(value, 'latin1'), others))
      yield { ...arrived, headers: headers.with(index, [name, changed.toString('latin1').trim()]) };
  const target = Buffer.from(url.slice(PUBLIC_URL.length + 1), 'latin1');
  for (const changed of changeText(target, others))
    if (isTarget(changed.toString('latin1'))) yield { ...arrived, url: `${PUBLIC_URL}/${changed.toString('latin1')}` };
  for (const changed of changeText(body, others)) yield { ...arrived, body: changed };
}

/** Other targets are rejected before any scheme reads them. */
function isTarget(text: string): boolean {
  return /^[\x21-\x7e]*$/.test(text) && !text.includes('#');
}

function toOtherSecrets({ signature }: SchemeDescription): { secret: string; signingSecret: string } {
  const isByKeyPair = signature?.forms.some(({ algorithm }) => ALGORITHMS[algorithm].isAsymmetric) === true;
  if (!isByKeyPair) return { secret: 'ab'.repeat(16), signingSecret: 'ab'.repeat(16) };
  const pair = generateKeyPairSync('rsa', { modulusLength: 2048 });
  return { secret: toPem(pair.publicKey), signingSecret: toPem(pair.privateKey) };
}

function* changeText(bytes: Buffer, others: readonly number[]): Generator<Buffer> {
  for (let at = 0; at <= bytes.length; at++) {
    const [before, after] = [bytes.subarray(0, at), bytes.subarray(at)];
    for (const other of others) {
      yield Buffer.concat([before, Buffer.from([other]), after]);
      if (after.length > 0 && after[0] !== other) yield Buffer.concat([before, Buffer.from([other]), after.subarray(1)]);
    }
    if (after.length > 0) yield Buffer.concat([before, after.subarray(1)]);
  }
}

describe.each(ALL)('$name', ({ description, delivery }) => {
  const one = toCase(description);

  test('has one interpretation, is signed and is accepted', () => {
    expect(findAmbiguity(description)).toBeUndefined();
    expect(judgeArrived(one, signArrived(one, delivery))).toBe('ok');
    expect(judgeArrived(toCase(description, toOtherSecrets(description)), signArrived(one, delivery))).toBe('mismatch');
  });

  test('accepts no change of one byte that changes what is signed', () => {
    const arrived = signArrived(one, delivery);
    const meaning = JSON.stringify(toSignedMeaning(description, arrived));
    const others = [...':.&=\\"%+;\n0a ', '\u00ff'].map((character) => character.charCodeAt(0));
    let refused = 0;
    for (const changed of changeEachByte(arrived, others)) {
      if (judgeArrived(one, changed) !== 'ok') refused++;
      else expect(JSON.stringify(toSignedMeaning(description, changed))).toBe(meaning);
    }
    expect(refused).toBeGreaterThan(200);
  });

  test('accepts no repeated part', () => {
    const arrived = signArrived(one, delivery);
    for (const [name, value] of arrived.headers)
      if (one.scheme.headerNames.includes(name.toLowerCase()))
        expect(judgeArrived(one, { ...arrived, headers: [...arrived.headers, [name, value]] })).toMatch(
          /repeated|more than|mismatch/,
        );
  });
});

describe('any request', () => {
  const token = fc.constantFrom(
    '{',
    '}',
    '"',
    ':',
    ',',
    '[',
    ']',
    '&',
    '=',
    '%',
    '%41',
    ';',
    '+',
    '|',
    '--',
    '\r\n',
    '\r\n\r\n',
    'sig',
    'signature',
    'id',
    '\\u0041',
    '\u00ff',
    '1',
    'true',
    'null',
  );
  const text = fc.array(token, { maxLength: 30 }).map((tokens) => tokens.join(''));

  test.each(ALL)('is read without an exception, and not accepted: $name', ({ description, delivery }) => {
    const one = toCase(description);
    const arrived = signArrived(one, delivery);
    const value = fc.oneof(text, fc.constantFrom(...arrived.headers.map(([, each]) => each), '0'.repeat(64)));
    const headers = fc.array(fc.tuple(fc.constantFrom(...arrived.headers.map(([name]) => name), 'X-Other'), value), {
      maxLength: 6,
    });
    const body = fc.oneof(text, fc.constantFrom(arrived.body.toString('latin1')));
    fc.assert(
      fc.property(headers, body, text, (fields, content, query) => {
        const changed = {
          method: 'POST',
          url: `${PUBLIC_URL}/hook?${query}`,
          headers: fields,
          body: Buffer.from(content, 'latin1'),
        };
        if (judgeArrived(one, changed) !== 'ok') return;
        expect(JSON.stringify(toSignedMeaning(description, changed))).toBe(JSON.stringify(toSignedMeaning(description, arrived)));
      }),
      { numRuns: 300 },
    );
  });
});

describe('a layout of fields', () => {
  const fields = ['$.a', '$.b', '$.c', '$.d'];
  const layout = fc.record({
    separator: fc.constantFrom('', ':', '::', '-', '\n', '\\'),
    pieces: fc.array(
      fc.record({
        json: fc.constantFrom(...fields),
        optional: fc.constantFrom(true as const, undefined),
        mayContainSeparator: fc.constantFrom(true as const, undefined, undefined),
        escape: fc.constantFrom('backslash' as const, undefined),
      }),
      { minLength: 1, maxLength: 3 },
    ),
    text: fc.option(fc.constantFrom(':', '-', 'a'), { nil: undefined }),
  });
  const texts = ['', 'a', ':', '-', '\\', '\n', 'a:', ':a', '::', ':::', '--', '\\:', ':\\', 'a-', '-a'];

  test('that is admitted gives two different lists of values two different signed strings', () => {
    let admitted = 0;
    fc.assert(
      fc.property(layout, ({ separator, pieces, text }) => {
        const own = pieces.map(({ optional, mayContainSeparator, escape: escaped }, index) => ({
          json: fields[index] ?? '',
          ...(optional && { optional }),
          ...(mayContainSeparator && { mayContainSeparator }),
          ...(escaped && { escape: escaped }),
        }));
        const description: SchemeDescription = {
          ...(FIELD_SCHEMES[0] as { description: SchemeDescription }).description,
          signed: text === undefined ? own : [...own.slice(0, 1), { text }, ...own.slice(1)],
          separator,
          unsignedBody: true,
        };
        const { timestamp: _, ...untimed } = description;
        if (findAmbiguity(untimed) !== undefined) return;
        admitted++;
        expectInjective(untimed, own.length);
      }),
      { numRuns: 120 },
    );
    expect(admitted).toBeGreaterThan(20);
  });

  /** All combinations of values that pass the rules. */
  function expectInjective(description: SchemeDescription, count: number): void {
    const one = toCase(description);
    const assemble = compilePieces(description);
    const seen = new Map<string, string>();
    for (const values of combine(count)) {
      const body = Buffer.from(JSON.stringify(Object.fromEntries(values.map((value, i) => [(fields[i] ?? '').slice(2), value]))));
      const head = readSigned(one.scheme, { headers: [['X-Signature', '0'.repeat(64)]], url: '', body });
      if (head instanceof Refusal) continue;
      const signed = toBytes(assemble(head, { method: 'POST', url: '', body })('') ?? []).toString('latin1');
      const other = seen.get(signed);
      const own = JSON.stringify(values);
      if (other !== undefined && other !== own) throw new Error(`${own} and ${other} are both signed as ${signed}`);
      seen.set(signed, own);
    }
  }

  function* combine(count: number): Generator<string[]> {
    if (count === 0) yield [];
    else for (const rest of combine(count - 1)) for (const text of texts) yield [...rest, text];
  }
});

describe('a value in the body', () => {
  const adyen = toCase((FIELD_PRESETS[0] as (typeof FIELD_PRESETS)[number]).description);
  const mailgun = toCase((FIELD_PRESETS[1] as (typeof FIELD_PRESETS)[number]).description);
  const hmac = (key: string | Buffer, text: string, encoding: 'hex' | 'base64') =>
    createHmac('sha256', key).update(text).digest(encoding);
  const time = String(NOW / 1000);
  const signature = hmac(mailgun.secret, `${time}tok`, 'hex');
  const toMembers = (count: number): string => Array.from({ length: count }, (_, i) => `"${i}":0`).join();
  const judgeMailgun = (body: string | Buffer): string =>
    judgeArrived(mailgun, { method: 'POST', url: `${PUBLIC_URL}/hook`, headers: [], body: Buffer.from(body) });

  test.each([
    ['as it should be', `{"signature":{"timestamp":"${time}","token":"tok","signature":"${signature}"}}`, 'ok'],
    ['with a number for the time', `{"signature":{"timestamp":${time},"token":"tok","signature":"${signature}"}}`, 'ok'],
    ['in another order', `{"signature":{"signature":"${signature}","token":"tok","timestamp":"${time}"}}`, 'ok'],
    [
      'repeated',
      `{"signature":{"timestamp":"${time}","token":"x","token":"tok","signature":"${signature}"}}`,
      /"token" is repeated/,
    ],
    [
      'repeated with an escape',
      `{"signature":{"timestamp":"${time}","tok\\u0065n":"x","token":"tok","signature":"${signature}"}}`,
      /"token" is repeated/,
    ],
    [
      'repeated in another case',
      `{"signature":{"timestamp":"${time}","Token":"x","token":"tok","signature":"${signature}"}}`,
      /in another case/,
    ],
    [
      'repeated above',
      `{"Signature":{},"signature":{"timestamp":"${time}","token":"tok","signature":"${signature}"}}`,
      /in another case/,
    ],
    ...[
      'timesta\u006dp_',
      '_timestamp',
      'time-stamp',
      'to\u212aen',
      'to\\u212Aen',
      '\u017fignature',
      'token\\u0000x',
      'to_ken',
      'T-O-KEN',
    ].map((name): [string, string, RegExp] => [
      `beside ${JSON.stringify(name)}`,
      `{"signature":{"timestamp":"${time}","token":"tok","signature":"${signature}","${name}":"x"}}`,
      /in another case/,
    ]),
    [
      'beside a name that is too long to be folded',
      `{"signature":{"timestamp":"${time}","token":"tok","signature":"${signature}","to${'_'.repeat(252)}ken":"x"}}`,
      /an object has a name of more than 256 characters/,
    ],
    [
      'beside a long s above',
      `{"\u017fignature":{},"signature":{"timestamp":"${time}","token":"tok","signature":"${signature}"}}`,
      /in another case/,
    ],
    [
      'among too many members',
      `{"signature":{"timestamp":"${time}","token":"tok","signature":"${signature}",${toMembers(998)}}}`,
      /an object has more than 1000 members/,
    ],
    [
      'among many members',
      `{"signature":{"timestamp":"${time}","token":"tok","signature":"${signature}",${toMembers(997)}}}`,
      'ok',
    ],
    [
      'among too many values',
      `{"x":[${'0,'.repeat(25_000)}0],"signature":{"timestamp":"${time}","token":"tok","signature":"${signature}"}}`,
      /it has more than 25000 values/,
    ],
    [
      'not text',
      `{"signature":{"timestamp":"${time}","token":["tok"],"signature":"${signature}"}}`,
      /token in the body is not text/,
    ],
    ['missing', `{"signature":{"timestamp":"${time}","signature":"${signature}"}}`, /token in the body is missing/],
    ['null', `{"signature":{"timestamp":"${time}","token":null,"signature":"${signature}"}}`, /token in the body is missing/],
    ['split elsewhere', `{"signature":{"timestamp":"${time}t","token":"ok","signature":"${signature}"}}`, /timestamp is not/],
    [
      'split at a digit',
      `{"signature":{"timestamp":"${time.slice(0, -1)}","token":"${time.at(-1)}tok","signature":"${signature}"}}`,
      /10 digits/,
    ],
    ['inherited', `{"__proto__":{"signature":{"timestamp":"${time}","token":"tok","signature":"${signature}"}}}`, /signature/],
    [
      'after a byte order mark',
      `\ufeff{"signature":{"timestamp":"${time}","token":"tok","signature":"${signature}"}}`,
      /not valid JSON/,
    ],
    ['in no JSON', 'signature', /not valid JSON/],
    ['nowhere', '', /not valid JSON/],
    ['in deep JSON', '['.repeat(100_000), /levels/],
  ])('decides as the app reads it: %s', (_, body, expected) => {
    if (typeof expected === 'string') expect(judgeMailgun(body)).toBe(expected);
    else expect(judgeMailgun(body)).toMatch(expected);
  });

  test('is rejected in bytes that are not UTF-8', () => {
    const body = Buffer.from(`{"signature":{"timestamp":"${time}","token":"tok","signature":"${signature}","x":"?"}}`);
    body[body.indexOf(0x3f)] = 0xff;
    expect(judgeMailgun(body)).toMatch(/not UTF-8/);
  });

  test('of a list is rejected if the list has another item, which nobody signed', () => {
    const arrived = signArrived(adyen, {
      body: (FIELD_PRESETS[0] as (typeof FIELD_PRESETS)[number]).delivery.body ?? Buffer.alloc(0),
    });
    const content = JSON.parse(arrived.body.toString()) as { notificationItems: unknown[] };
    expect(judgeArrived(adyen, arrived)).toBe('ok');
    const twice = { ...content, notificationItems: [...content.notificationItems, content.notificationItems[0]] };
    expect(judgeArrived(adyen, { ...arrived, body: Buffer.from(JSON.stringify(twice)) })).toMatch(/more than one item/);
  });

  test('is not confused by a separator in it, unless it is the only one that may have it', () => {
    const item = (change: object): string =>
      JSON.stringify({
        notificationItems: [
          {
            NotificationRequestItem: {
              additionalData: { hmacSignature: hmac(Buffer.from(adyen.secret, 'hex'), 'a:b:c:d:e:1:EUR:X:true', 'base64') },
              amount: { currency: 'EUR', value: 1 },
              eventCode: 'X',
              success: 'true',
              ...change,
            },
          },
        ],
      });
    const judge = (change: object): string =>
      judgeArrived(adyen, { method: 'POST', url: `${PUBLIC_URL}/`, headers: [], body: Buffer.from(item(change)) });
    expect(judge({ pspReference: 'a', originalReference: 'b', merchantAccountCode: 'c', merchantReference: 'd:e' })).toBe('ok');
    expect(judge({ pspReference: 'a:b', originalReference: 'c', merchantAccountCode: 'd', merchantReference: 'e' })).toMatch(
      /separator/,
    );
    expect(judge({ pspReference: 'a', originalReference: 'b:c', merchantAccountCode: 'd', merchantReference: 'e' })).toMatch(
      /separator/,
    );
  });

  test('is the identity together with everything that is signed: another body with the same signature is the same event', () => {
    const identify = (body: string) => {
      const arrived = { headers: [], url: '', body: Buffer.from(body) };
      const head = readSigned(mailgun.scheme, arrived);
      if (head instanceof Refusal) throw new Error(head.detail);
      return mailgun.scheme.identify(head, { method: 'POST', url: '', body: arrived.body });
    };
    const part = `"signature":{"timestamp":"${time}","token":"tok","signature":"${signature}"}`;
    const first = identify(`{${part},"event-data":{"id":"a","event":"opened"}}`);
    const forged = identify(`{${part},"event-data":{"id":"b","event":"delivered"}}`);
    expect(first).toMatchObject({ id: 'a', timestamp: NOW });
    expect('digest' in first && 'digest' in forged && first.digest === forged.digest && first.digest !== undefined).toBe(true);
  });
});

describe('a form', () => {
  const braintree = toCase((FIELD_PRESETS[3] as (typeof FIELD_PRESETS)[number]).description);
  const key = createHash('sha1').update(braintree.secret).digest();
  const payload = 'PG5vdGlmaWNhdGlvbj4=\n';
  const signature = createHmac('sha1', key).update(payload).digest('hex');
  const signed = `bt_payload=${encodeURIComponent(payload)}`;
  const judge = (body: string): string =>
    judgeArrived(braintree, { method: 'POST', url: `${PUBLIC_URL}/`, headers: [], body: Buffer.from(body) });
  const pair = (publicKey: string, hex: string): string => encodeURIComponent(`${publicKey}|${hex}`);

  test.each([
    ['one pair', `bt_signature=${pair('k', signature)}&${signed}`, 'ok'],
    ['the fields in another order', `${signed}&bt_signature=${pair('k', signature)}`, 'ok'],
    ['several pairs', `bt_signature=${pair('a', '0'.repeat(40))}%26${pair('b', signature)}&${signed}`, 'ok'],
    ['no pair', `bt_signature=${signature}&${signed}`, /no entry is/],
    ['a third part', `bt_signature=${pair('k', signature)}%7Cx&${signed}`, /no entry is/],
    ['the signature in the place of the key', `bt_signature=${encodeURIComponent(`${signature}|k`)}&${signed}`, /no entry is/],
    ['eleven pairs', `bt_signature=${Array(11).fill(pair('k', signature)).join('%26')}&${signed}`, /more than 10 signatures/],
    ['a repeated payload', `bt_signature=${pair('k', signature)}&${signed}&bt_payload=x`, /bt_payload is repeated/],
    ['a payload that PHP takes for the same', `bt_signature=${pair('k', signature)}&${signed}&bt.payload=x`, /is repeated/],
    ['a payload with an open bracket', `bt_signature=${pair('k', signature)}&${signed}&bt[payload=x`, /is repeated/],
    ['a list of payloads', `bt_signature=${pair('k', signature)}&${signed}&bt_payload[]=x`, /is repeated/],
    ['a payload in another case', `bt_signature=${pair('k', signature)}&${signed}&BT_PAYLOAD=x`, /is repeated/],
    ['another field', `bt_signature=${pair('k', signature)}&${signed}&kind=x`, /not signed/],
    ['a semicolon', `bt_signature=${pair('k', signature)};${signed}`, /semicolon/],
    ['an invalid escape', `bt_signature=${pair('k', signature)}&${signed}%`, /invalid escape/],
    ['bytes that are not UTF-8', `bt_signature=${pair('k', signature)}&${signed}%ff`, /not UTF-8/],
    ['a long name', `bt_signature=${pair('k', signature)}&${signed}&bt_payload[${'a'.repeat(256)}]=`, /more than 256 bytes/],
    ['1,001 fields', `${'a&'.repeat(1_001)}${signed}`, /more than 1000 fields/],
    ['nothing', '', /bt_signature/],
  ])('is read as every app reads it: %s', (_, body, expected) => {
    if (typeof expected === 'string') expect(judge(body)).toBe(expected);
    else expect(judge(body) === 'missing_signature' ? 'bt_signature' : judge(body)).toMatch(expected);
  });
});

describe('a multipart form', () => {
  const dropbox = toCase((FIELD_PRESETS[2] as (typeof FIELD_PRESETS)[number]).description);
  const time = String(NOW / 1000);
  const hash = createHmac('sha256', dropbox.secret).update(`${time}a`).digest('hex');
  const value = JSON.stringify({ event: { event_time: time, event_type: 'a', event_hash: hash } });
  const judge = (body: string): string =>
    judgeArrived(dropbox, { method: 'POST', url: `${PUBLIC_URL}/`, headers: [], body: Buffer.from(body) });
  const part = (head: string, content: string): string => `--b\r\n${head}\r\n\r\n${content}\r\n`;
  const field = (name: string, content: string): string => part(`Content-Disposition: form-data; name="${name}"`, content);

  test.each([
    ['one field', `${field('json', value)}--b--\r\n`, 'ok'],
    ['no line end at the end', `${field('json', value)}--b--`, 'ok'],
    [
      'a type for the field',
      `${part('Content-Disposition: form-data; name="json"\r\nContent-Type: application/json', value)}--b--`,
      'ok',
    ],
    ['URL-encoded', new URLSearchParams({ json: value }).toString(), 'ok'],
    ['URL-encoded, with NUL in a name', `${new URLSearchParams({ json: value })}&json%00x=%7B%7D`, /contains NUL/],
    ['another field', `${field('x', '')}${field('json', value)}--b--`, 'ok'],
    ['a file', `${field('json', value)}${part('Content-Disposition: form-data; name="f"; filename="a"', '\u00ff')}--b--`, 'ok'],
    ['the field twice', `${field('json', value)}${field('json', '{}')}--b--`, /is repeated/],
    [
      'the field as a file',
      `${field('json', value)}${part('Content-Disposition: form-data; name="json"; filename="a"', '{}')}--b--`,
      /is repeated/,
    ],
    ['only a file', `${part('Content-Disposition: form-data; name="json"; filename="a"', value)}--b--`, /is repeated, or/],
    ['a preamble', `x\r\n${field('json', value)}--b--`, /missing|ambiguous/],
    ['text after the end', `${field('json', value)}--b--\r\nx`, /after the last boundary/],
    ['no end', field('json', value), /boundary|no name/],
    [
      'two dispositions',
      `${part('Content-Disposition: form-data; name="x"\r\nContent-Disposition: form-data; name="json"', value)}--b--`,
      /no name/,
    ],
    ['an extended name', `${part("Content-Disposition: form-data; name*=utf-8''json", value)}--b--`, /no name/],
    ['an escaped name', `${part('Content-Disposition: form-data; name="js\\on"', value)}--b--`, /no name/],
    [
      'base64',
      `${part('Content-Disposition: form-data; name="json"\r\nContent-Transfer-Encoding: base64', value)}--b--`,
      /no name/,
    ],
    ['a folded line', `${part('Content-Disposition: form-data;\r\n name="json"', value)}--b--`, /no name/],
    ['bare line feeds', `--b\r\nContent-Disposition: form-data; name="json"\n\n${value}\r\n--b--`, /no name/],
    ['a line that begins like the boundary', `${field('json', `${value}\r\n--bc`)}--b--`, /begins like the boundary/],
    ['a part after a bare line feed', `${field('x', `\n${field('json', '{}')}`)}${field('json', value)}--b--`, /LF alone/],
    ['a part after a bare return', `${field('x', `\r${field('json', '{}')}`)}${field('json', value)}--b--`, /LF alone/],
    [
      'UTF-8',
      `${part('Content-Disposition: form-data; name="json"\r\nContent-Type: application/json; charset=utf-8', value)}--b--`,
      'ok',
    ],
    [
      'another charset',
      `${part('Content-Disposition: form-data; name="json"\r\nContent-Type: text/plain; charset=utf-7', value)}--b--`,
      /no name/,
    ],
    [
      'two types',
      `${part('Content-Type: text/plain\r\nContent-Disposition: form-data; name="json"\r\nContent-Type: text/plain', value)}--b--`,
      /no name/,
    ],
    [
      'a file in another charset',
      `${field('json', value)}${part('Content-Disposition: form-data; name="f"; filename="a"\r\nContent-Type: text/csv; charset=latin1', '\u00ff')}--b--`,
      'ok',
    ],
  ])('is read as every app reads it: %s', (_, body, expected) => {
    const verdict = judge(body);
    if (typeof expected === 'string') expect(verdict).toBe(expected);
    else expect(verdict === 'missing_signature' ? 'missing' : verdict).toMatch(expected);
  });
});

test('several signatures by several algorithms cost one computation for each algorithm', () => {
  const forms = [
    { prefix: 'a=', algorithm: 'hmac-sha256' },
    { prefix: 'b=', algorithm: 'hmac-sha512' },
  ] as const;
  const description: SchemeDescription = {
    name: 'custom',
    signature: { header: 'X-Signature', encoding: 'hex', list: ',', forms },
    signed: ['body'],
    separator: '',
    secret: { encoding: 'utf8' },
    tolerance: { past: 1, future: 1 },
    contentTypes: ['application/json'],
  };
  const one = toCase(description);
  const body = Buffer.from('{}');
  const valid = createHmac('sha256', one.secret).update(body).digest('hex');
  const value = [...Array.from({ length: 8 }, () => `a=${'0'.repeat(64)}`), `b=${'0'.repeat(128)}`, `a=${valid}`].join(',');
  const spies = forms.map(({ algorithm }) => vi.spyOn(ALGORITHMS[algorithm], 'checker'));
  try {
    expect(judgeArrived(one, { method: 'POST', url: `${PUBLIC_URL}/`, headers: [['X-Signature', value]], body })).toBe('ok');
    expect(spies.map((spy) => spy.mock.calls.length)).toEqual([1, 1]);
  } finally {
    vi.restoreAllMocks();
  }
});
