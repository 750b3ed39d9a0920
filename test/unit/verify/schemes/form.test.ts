import { createHmac } from 'node:crypto';
import { describe, expect, test, vi } from 'vitest';
import { Secret } from '../../../../src/core/secret.ts';
import { findPreset } from '../../../../src/verify/presets/catalogue.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { SchemeDescription } from '../../../../src/verify/schemes/description.ts';
import { decodeFormText, MAX_PARAMETERS, parseStrictForm, toFormText } from '../../../../src/verify/schemes/strict-form.ts';
import { fc } from '../../../support/property.ts';

const SECRET = '12345678901234567890123456789012';
const URL = 'https://hooks.example.com/sms';
const scheme = compileScheme(findPreset('twilio') as SchemeDescription);

function toForm(parameters: number): Buffer {
  return Buffer.from(Array.from({ length: parameters }, (_, i) => `n${String(i).padStart(7, '0')}=v`).join('&'));
}

function verify(body: Buffer, signed: string, url = URL): string | undefined {
  const parsed = scheme.parseKey('k', new Secret(Buffer.from(SECRET)), undefined);
  if ('problem' in parsed) throw new Error(parsed.problem);
  const bytes = createHmac('sha1', SECRET).update(signed).digest();
  const head = {
    id: undefined,
    timestampText: undefined,
    timestamp: undefined,
    signatures: [{ algorithm: 'hmac-sha1' as const, bytes }],
  };
  return scheme.verify(head, { method: 'POST', url, body }, [parsed.key])?.name;
}

/** As Twilio's libraries write it. */
function toSigned(body: Buffer): string {
  return URL + body.toString().replaceAll(/[=&]/g, '');
}

describe('the parameters of a form', () => {
  test('are verified up to 1,000, and rejected beyond', () => {
    const most = toForm(MAX_PARAMETERS);
    const more = toForm(MAX_PARAMETERS + 1);
    expect([MAX_PARAMETERS, verify(most, toSigned(most)), verify(more, toSigned(more))]).toEqual([1_000, 'k', undefined]);
  });

  test('are not even decoded if there are more', () => {
    const body = toForm(150_000);
    const read = vi.spyOn(body, 'toString');
    expect([toFormText(body), read.mock.calls.length]).toEqual([undefined, 0]);
    expect(toFormText(Buffer.from('&'.repeat(MAX_PARAMETERS)))).toBeUndefined();
  });

  test('are parsed once, whether the first URL matches, the second or none', () => {
    for (const [signed, verdict] of [
      [`${URL}A1`, 'k'],
      ['https://hooks.example.com:443/smsA1', 'k'],
      [`${URL}A2`, undefined],
    ] as const) {
      const body = Buffer.from('A=1');
      const read = vi.spyOn(body, 'toString');
      expect([verify(body, signed), read.mock.calls.length]).toEqual([verdict, 1]);
    }
  });

  test('are not parsed if the URL contains the digest of the body', () => {
    const body = Buffer.from('{}');
    const read = vi.spyOn(body, 'toString');
    const url = `${URL}?bodySHA256=44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a`;
    expect([verify(body, url, url), read.mock.calls.length]).toEqual(['k', 0]);
  });

  test('are not signed if no gate would accept them, with a clear error', () => {
    const request = { id: '', timestamp: 0, url: URL, body: toForm(MAX_PARAMETERS + 1) };
    for (const body of [request.body, Buffer.from('{}')])
      expect(() => scheme.sign({ ...request, body }, new Secret(Buffer.from(SECRET)), undefined)).toThrow(
        'the body is not a form of at most 1000 parameters',
      );
  });

  test('are not those of another body: with a text of theirs, an attacker could write the signed text as JSON', () => {
    const signed = `${URL}Bodyz","Body":"pay me","x":"1"}{"a":"To1`;
    const body = '{"a":"=To1&Bodyz","Body":"pay me","x":"1"}';
    expect(
      verify(Buffer.from(new URLSearchParams({ Body: 'z","Body":"pay me","x":"1"}{"a":"', To: '1' }).toString()), signed),
    ).toBe('k');
    for (const start of ['', ' ', '\n', '\ufeff'])
      expect(verify(Buffer.from(start + body), signed.replace('{"a"', `${start}{"a"`))).toBeUndefined();
    expect(
      ['<a>=', '[1]', '"a"=', '--b=', '\0=', 'a={', ' a', ''].map((text) => toFormText(Buffer.from(text)) !== undefined),
    ).toEqual([...Array.from({ length: 5 }, () => false), ...Array.from({ length: 3 }, () => true)]);
  });
});

describe('an ID in a form whose names and values are signed without separators', () => {
  const withId = compileScheme({ ...(findPreset('twilio') as SchemeDescription), id: { form: 'Id' } });
  const identify = (text: string): object =>
    withId.identify(
      { id: undefined, timestampText: undefined, timestamp: undefined, signatures: [] },
      { method: 'POST', url: URL, body: Buffer.from(text) },
    );

  test('does not identify the event alone, because its bytes can move', () => {
    const [genuine, moved] = [identify('Id=1&To=2'), identify('Id=1To2')];
    expect(toFormText(Buffer.from('Id=1&To=2'))).toEqual(toFormText(Buffer.from('Id=1To2')));
    expect(genuine).toMatchObject({ id: '1', digest: expect.stringMatching(/./) });
    expect(moved).toEqual({ ...genuine, id: '1To2', openContent: Buffer.from('Id=1To2') });
  });
});

describe('a name or value', () => {
  test('is decoded as by the URL Standard, byte by byte', () => {
    const piece = fc.constantFrom('%', '%4', '%41', '%zz', '%2B', '%2b', '%fF', '+', 'a', '\u00ff', '0', 'G', '%0g');
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
        const text = pieces.join('');
        const expected = text
          .replaceAll('+', ' ')
          .replace(/%([0-9a-f]{2})/gi, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 16)));
        expect(decodeFormText(text)).toBe(expected);
      }),
    );
  });

  test.each(['+', '%41', '%2b', '%zz'])('is decoded without a call for each of its characters: %s', (piece) => {
    const spies = [vi.spyOn(String, 'fromCharCode'), vi.spyOn(Number, 'parseInt'), vi.spyOn(String.prototype, 'replaceAll')];
    try {
      const body = Buffer.from(`a=${piece.repeat(1_000)}`);
      toFormText(body);
      parseStrictForm(body);
      expect(spies.map((spy) => spy.mock.calls.length)).toEqual([0, 0, 0]);
    } finally {
      for (const spy of spies) spy.mockRestore();
    }
  });
});
