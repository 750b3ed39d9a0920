/** Secrets that senders change before they use them, by the rules of their libraries. */
import { createHmac } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { HeaderFields } from '../../../../src/core/head.ts';
import { Refusal } from '../../../../src/core/refusal.ts';
import { Secret } from '../../../../src/core/secret.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import { transformSecret } from '../../../../src/verify/schemes/key-description.ts';
import { toPreset } from '../../../support/preset-cases.ts';

const BODY = Buffer.from('{"id":"evt_1"}');

/** Whether the preset verifies what the sender signs with `key`, if the config has `secret`. */
function verifies(
  preset: string,
  secret: string,
  key: Buffer | string,
  toHeader: (mac: Buffer) => Record<string, string>,
): boolean {
  const scheme = compileScheme(toPreset(preset));
  const parsed = scheme.parseKey('k', new Secret(Buffer.from(secret)), undefined);
  if ('problem' in parsed) throw new Error(parsed.problem);
  const fields = toHeader(createHmac('sha256', key).update(BODY).digest());
  const head = scheme.readHead(new HeaderFields(Object.entries(fields).flat()), { allowDotInId: false });
  if (head instanceof Refusal) throw new Error(head.detail);
  return scheme.verify(head, { method: 'POST', url: '', body: BODY }, [parsed.key]) !== undefined;
}

describe('EasyPost signs with the NFKD of the secret', () => {
  const header = (mac: Buffer) => ({ 'X-Hmac-Signature': `hmac-sha256-hex=${mac.toString('hex')}` });

  test.each(['s\u00e9cret', 's\u0065\u0301cret', '\uff33ecret\u2460', 'secret, sixteen+'])('%s', (secret) => {
    expect(verifies('easypost', secret, secret.normalize('NFKD'), header)).toBe(true);
  });

  test('and with nothing else', () => {
    expect(verifies('easypost', 's\u00e9cret', 'secret', header)).toBe(false);
  });
});

describe('WooCommerce signs with the secret without HTML entities', () => {
  const header = (mac: Buffer) => ({ 'X-WC-Webhook-Signature': mac.toString('base64') });

  test.each([
    ['a&amp;b &lt;c&gt; &quot;d&quot; &#039;e&#039;', 'a&b <c> "d" \'e\''],
    ['&#x26;&#X27;&#34;&#0060;', '&\'"<'],
    ['&amp;lt; &nbsp; &AMP; &', '&lt; &nbsp; &AMP; &'],
    ['no entity, sixteen', 'no entity, sixteen'],
  ])('%s', (secret, key) => {
    expect(verifies('woocommerce', secret, key, header)).toBe(true);
  });
});

test('bytes that are not UTF-8 stay as they are', () => {
  const bytes = Buffer.from([0xff, 0x26, 0x61]);
  expect(transformSecret(bytes, 'nfkd')).toEqual(bytes);
  expect(transformSecret(bytes, undefined)).toBe(bytes);
});
