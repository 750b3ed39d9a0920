/** The published and independent values of test/vectors/handshakes.json, asked as the gates ask them. */
import { expect, test } from 'vitest';
import { HeaderFields } from '../../../../src/core/head.ts';
import type { HandshakeReply } from '../../../../src/core/refusal.ts';
import { Secret } from '../../../../src/core/secret.ts';
import { compileHandshake, HANDSHAKE_NAMES, HANDSHAKES } from '../../../../src/verify/handshakes/catalogue.ts';
import { MAX_OPEN_BODY_BYTES } from '../../../../src/verify/handshakes/handshake.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { HandshakeName } from '../../../../src/verify/schemes/description.ts';
import { type Handshake, readHandshakes } from '../../../support/oracles/vectors.ts';
import { CONTENT_SIGNED, toBraintreeKey, toKeys } from './harness.ts';

function answer({ preset, secret, signed }: Handshake): HandshakeReply | undefined {
  const type = preset as HandshakeName;
  const { token } = HANDSHAKES[type];
  const {
    open,
    openBody,
    signed: respond,
  } = compileHandshake({
    type,
    hasToken: token === 'needed',
    parameter: 'token',
    allowedOrigins: [],
    allowedRate: undefined,
    allowQuery: false,
    publicKey: 'integration_public_key',
    scheme: compileScheme(CONTENT_SIGNED),
  });
  const keys = type === 'braintree' ? [toBraintreeKey(secret.text)] : toKeys([secret.text]);
  const { search } = new URL(signed.url);
  // The published request of Microsoft Graph is one to a URL without a token.
  const query = type === 'microsoft-graph' ? `${search.slice(1)}&token=${encodeURIComponent(secret.text)}` : search.slice(1);
  const headers = new HeaderFields(Object.entries(signed.headers).flat());
  const request = { method: signed.method, headers, query: query === '' ? undefined : query };
  const secrets = { keys, token: token === 'needed' ? new Secret(Buffer.from(secret.text)) : undefined };
  const message = { ...request, body: signed.body, offer: () => undefined };
  const isShort = signed.method === 'POST' && signed.body.length <= MAX_OPEN_BODY_BYTES;
  const found =
    open?.(request, secrets) ??
    (isShort ? openBody?.(message, secrets) : undefined) ??
    respond?.({ headers, body: signed.body, key: keys[0] });
  return found?.reply;
}

const handshakes = readHandshakes();

test.each(handshakes.map((each) => ({ ...each, title: `${each.preset}, ${each.source}` })))('answers $title', (handshake) => {
  const { status, text, json, headers = {} } = handshake.answer;
  const reply = answer(handshake);
  expect(reply?.status).toBe(status);
  if (json === undefined) expect(reply?.body).toBe(text);
  else expect(JSON.parse(reply?.body ?? '')).toEqual(json);
  expect(Object.fromEntries(reply?.headers ?? [])).toMatchObject({ ...headers, 'X-Content-Type-Options': 'nosniff' });
});

test('has a value for each handshake with a response of its own', () => {
  const known = new Set(handshakes.map(({ preset }) => preset));
  // CloudEvents answers by headers alone, and WooCommerce by the status alone, which test/e2e checks.
  expect(HANDSHAKE_NAMES.filter((name) => !known.has(name))).toEqual(['cloudevents', 'woocommerce']);
});
