/** Attacks on the captures of rejected deliveries: floods, large requests, secrets in every place, callers without a right. */
import { createHmac, randomBytes } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { HeaderFields, parseTarget, type RequestTarget } from '../../src/core/head.ts';
import { refuse } from '../../src/core/refusal.ts';
import type { ParsedHead } from '../../src/core/request.ts';
import {
  Captures,
  MAX_CAPTURED_BODY_BYTES,
  MAX_CAPTURED_BYTES,
  MAX_CAPTURES,
  MAX_CAPTURES_PER_CLIENT,
} from '../../src/diagnostics/explain/captures.ts';
import { findPreset } from '../../src/verify/presets/catalogue.ts';
import type { SchemeDescription } from '../../src/verify/schemes/description.ts';
import { type Answer, send } from '../support/client.ts';
import { makeDelivery, SECRET } from '../support/deliveries.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute } from '../support/gate.ts';

const FORGED = `whsec_${Buffer.alloc(24, 9).toString('base64')}`;
const SENDER = '198.51.100.7';

describe('on a running gate', () => {
  const app = useApp();
  const clock = new FakeClock(Date.now());
  let gate: TestGate;
  afterEach(async () => {
    const stopped = gate.stop();
    await clock.advance(60_000);
    await stopped;
  });

  async function start(sections: Sections = {}, webhook: Sections = {}): Promise<void> {
    const routes = [toRoute(app.port, { webhook: { capture: 'failures', maxBody: '4Mi', ...webhook } })];
    const listen = { address: '127.0.0.1:0', trustedProxies: ['127.0.0.1/32'] };
    gate = await startGate({ routes, listen, explain: 'off', ...sections }, clock, {
      token: '0123456789abcdef',
      hub: 'hub-secret-12345',
    });
  }

  const ask = (path: string, headers = {}): Promise<Answer> => send(gate.adminPort, { method: 'GET', path, headers });
  const list = async (): Promise<{ requestId: string; body: string; bytes: number }[]> =>
    JSON.parse((await ask('/captures')).text).captures;
  /** All archives that an operator can get. */
  const readAll = async (): Promise<string> => {
    const texts = await Promise.all((await list()).map(async ({ requestId }) => (await ask(`/captures/${requestId}`)).text));
    return texts
      .map((text) => text + Buffer.from(JSON.parse(text).log.entries[0].request.postData?.text ?? '', 'base64'))
      .join('\n');
  };
  const attack = (from: string, body: Buffer | string = '{}', headers: Record<string, string> = {}): Promise<Answer> => {
    const delivery = makeDelivery({ secret: FORGED, body, timestamp: Math.floor(clock.now() / 1_000) });
    return send(gate.port, { ...delivery, headers: { ...delivery.headers, 'X-Forwarded-For': from, ...headers } });
  };

  test('keeps five captures of a client that floods, and those of the sender', async () => {
    await start();
    await attack(SENDER, '{"from":"sender"}');
    for (let i = 0; i < 100; i++) await attack('203.0.113.5', `{"i":${i}}`);
    await clock.advance(60_000);
    for (let i = 0; i < 30; i++) await attack('203.0.113.5', `{"i":${i}}`);
    expect(await list()).toHaveLength(1 + MAX_CAPTURES_PER_CLIENT);
    expect(await readAll()).toContain('{"from":"sender"}');
    expect(await gate.metric('sidegate_captures_total{outcome="dropped"}')).toBe(130 - 2 * MAX_CAPTURES_PER_CLIENT);
  });

  test('counts the addresses of one IPv6 network as one client', async () => {
    await start();
    for (let i = 0; i < 30; i++) await attack(`2001:db8::${i + 1}`);
    expect(await list()).toHaveLength(MAX_CAPTURES_PER_CLIENT);
  });

  test('truncates bodies of megabytes, and marks them for explain', async () => {
    await start();
    await attack(SENDER, JSON.stringify({ text: 'x'.repeat(3_000_000) }));
    const [capture] = await list();
    expect(capture).toMatchObject({ body: 'truncated' });
    expect(capture?.bytes).toBeLessThan(MAX_CAPTURED_BODY_BYTES * 1.4);
    expect(await readAll()).toContain('the signature cannot be checked');
  });

  test('captures the names of a hundred header fields, without the values of unknown ones', async () => {
    await start();
    const many = Object.fromEntries(Array.from({ length: 80 }, (_, i) => [`X-Field-${i}`, `value-${i}`]));
    await attack(SENDER, '{}', many);
    const text = await readAll();
    expect(text).toContain('X-Field-79');
    expect(text).not.toContain('value-79');
  });

  test('captures no credentials in headers or query, and nothing of a body that contains a configured secret', async () => {
    await start({}, { allowQuery: true });
    const secrets = {
      Authorization: 'Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==',
      'Proxy-Authorization': 'Bearer proxy-credential',
      Cookie: 'session=cookie-credential',
      'X-Api-Key': 'api-key-credential',
      'X-API-KEY2': 'other-key-credential',
      'X-Gitlab-Token': 'gitlab-credential',
      'X-Shopify-Access-Token': 'shopify-credential',
      'X-Secret': 'plain-credential',
      'X-Hub-Signature-256': SECRET.slice(6),
    };
    await attack(SENDER, JSON.stringify({ secret: SECRET }), secrets);
    const delivery = makeDelivery({ secret: FORGED, timestamp: Math.floor(clock.now() / 1_000) });
    const path = '/hooks/billing?token=query-credential&hub.verify_token=verify-credential&bare-credential';
    expect((await send(gate.port, { ...delivery, path, headers: { ...delivery.headers, ...secrets } })).status).toBe(401);
    const text = await readAll();
    expect(await list()).toMatchObject([{ body: 'complete' }, { body: 'withheld' }]);
    for (const value of [...Object.values(secrets), 'credential', 'QWxhZGRpbjpvcGVuIHNlc2FtZQ', SECRET, SENDER])
      expect(text).not.toContain(value);
    const { 'Webhook-Signature': signature = '' } = delivery.headers;
    expect(text).toContain(signature);
  });

  test('shows captures in no log line, metric or journal entry', async () => {
    await start();
    await attack(SENDER, '{"name":"Erika Mustermann"}', { 'User-Agent': 'agent-of-the-sender' });
    expect(await readAll()).toContain('Erika Mustermann');
    const elsewhere = gate.logText() + (await gate.metrics()) + (await ask('/journal')).text + (await ask('/captures')).text;
    expect(elsewhere).not.toContain('Mustermann');
    expect(elsewhere).not.toContain('agent-of-the-sender');
  });

  test('rejects callers without the token, who can neither read nor delete captures', async () => {
    await start({ admin: { address: '127.0.0.1:0', token: { secret: { file: 'token' } } } });
    await attack(SENDER);
    const paths = ['/captures', '/captures/x'] as const;
    for (const path of paths) expect((await ask(path)).status).toBe(401);
    expect((await ask('/captures', { Authorization: 'Bearer wrong-wrong-wrong' })).status).toBe(401);
    expect((await send(gate.adminPort, { method: 'DELETE', path: '/captures' })).status).toBe(401);
    const { text } = await ask('/captures', { Authorization: 'Bearer 0123456789abcdef' });
    expect(JSON.parse(text).captures).toHaveLength(1);
  });

  test('rejects web pages that use DNS rebinding, which can neither read nor delete captures', async () => {
    await start();
    await attack(SENDER);
    expect((await ask('/captures', { Host: 'rebound.example' })).status).toBe(403);
    expect(
      (await send(gate.adminPort, { method: 'DELETE', path: '/captures', headers: { Host: 'rebound.example' } })).status,
    ).toBe(403);
    expect((await ask(`/captures/${encodeURIComponent('../captures')}`)).status).toBe(404);
    expect(await list()).toHaveLength(1);
  });
});

describe('the memory', () => {
  const clock = new FakeClock(Date.now());
  let captures: Captures;
  let kept = 0;
  let next = 0;
  const onOutcome = (outcome: 'kept' | 'dropped'): void => {
    if (outcome === 'kept') kept++;
  };
  beforeEach(() => {
    kept = 0;
    captures = new Captures(clock, onOutcome);
    captures.take(new Map([['billing', findPreset('standard-webhooks') as SchemeDescription]]), () => []);
  });

  function offer(address: string, body: Buffer, raw: readonly string[] = [], target = '/hooks/billing'): string {
    const requestId = `request-${next++}`;
    const client = { address, peer: address, viaTrustedProxy: false, viaIdentityProxy: false, scheme: 'http' };
    const head = {
      requestId,
      method: 'POST',
      client,
      receivedAt: clock.now(),
      startedAt: 0,
      target: parseTarget(target) as RequestTarget,
      headers: new HeaderFields(['Host', 'gate', ...raw]),
      body: { content: body },
    } as unknown as ParsedHead;
    captures.offer('billing', head, refuse('signature_mismatch', 'bad_signature'));
    return requestId;
  }

  test('stays below a mebibyte and 20 captures, whatever 300 clients send', async () => {
    for (let i = 0; i < 300; i++) {
      offer(`203.0.113.${i % 250}`, randomBytes(i % 3 === 0 ? 200_000 : i), [
        'Webhook-Id',
        '\u0001\u00ff'.repeat(i % 2 ? 8_000 : 10),
      ]);
      expect(captures.allocated).toBeLessThanOrEqual(MAX_CAPTURED_BYTES);
      expect(captures.list().length).toBeLessThanOrEqual(MAX_CAPTURES);
      await clock.advance(1_000);
    }
    expect(kept).toBeGreaterThan(100);
    expect(captures.list().length).toBeGreaterThan(5);
  });

  test('is not filled by one client, however many captures it causes over time', async () => {
    const sent = offer(SENDER, Buffer.from('{}'));
    for (let i = 0; i < 19; i++) offer(`203.0.113.${i}`, Buffer.from('{}'));
    for (let i = 0; i < 50; i++) {
      await clock.advance(6_000);
      offer('203.0.113.3', randomBytes(65_536));
    }
    expect(captures.find(sent)).toBeDefined();
    expect(captures.list()).toHaveLength(MAX_CAPTURES);
  });

  test('is free again after a day', async () => {
    const sent = offer(SENDER, Buffer.from('{}'));
    await clock.advance(86_400_000);
    captures.forgetOld();
    expect(captures.find(sent)).toBeDefined();
    await clock.advance(1);
    captures.forgetOld();
    expect(captures.allocated).toBe(0);
    expect(captures.find(sent)).toBeUndefined();
    expect(captures.list()).toEqual([]);
  });

  test('omits a delivery that is too large for its share, instead of truncating it into another', () => {
    const id = offer(SENDER, randomBytes(65_536), ['Webhook-Id', '\u0001'.repeat(60_000)]);
    expect(captures.find(id)).toBeUndefined();
    expect(captures.allocated).toBe(0);
  });

  test('captures the query of a sender that signs the URL without values that look like credentials', () => {
    captures.take(new Map([['billing', findPreset('twilio') as SchemeDescription]]), () => [Buffer.from('path-secret')]);
    const query =
      'bodySHA256=00&n=1&access_%74oken=hidden1&X-Api-Key=hidden2&hidden3&%zz=hidden4&password=hidden5&a=1;token=hidden6';
    const har = captures.find(offer(SENDER, Buffer.from('{}'), [], `/hooks/billing?${query}`)) ?? '';
    expect(har).toContain(
      '/hooks/billing?bodySHA256=00&n=1&access_%74oken=redacted&X-Api-Key=redacted&redacted&%zz=hidden4&password=redacted&a=redacted',
    );
    expect(har.replace('%zz=hidden4', '')).not.toContain('hidden');
    expect(captures.find(offer(SENDER, Buffer.from('{}'), [], '/hooks/path%2dsecret'))).not.toContain('path%2d');
  });

  test('captures no configured secret that JSON or a form escapes, in the body, a header or the target', () => {
    const secret = 'Key/with+signs=';
    captures.take(new Map([['billing', findPreset('standard-webhooks') as SchemeDescription]]), () => [Buffer.from(secret)]);
    const form = encodeURIComponent(secret);
    for (const [i, body] of [JSON.stringify({ secret }).replaceAll('/', '\\/'), `token=${form}`].entries()) {
      const id = offer(`203.0.113.${i}`, Buffer.from(body));
      expect(captures.list()[0]).toMatchObject({ requestId: id, body: 'withheld' });
      expect(captures.find(id)).not.toContain('postData');
    }
    const har = captures.find(offer(SENDER, Buffer.from('{}'), ['Webhook-Id', form, secret, ''], `/hooks/${form}?a=%ff`)) ?? '';
    expect(har).toContain('"[redacted]"');
    expect(har).not.toContain('Key');
  });

  test('captures a signature in Authorization only in the form of the scheme', () => {
    const signature = {
      header: 'Authorization',
      encoding: 'hex',
      forms: [{ prefix: 'HMAC ', algorithm: 'hmac-sha256' }],
    } as const;
    const description = { ...(findPreset('github') as SchemeDescription), name: 'custom', signature };
    captures.take(new Map([['billing', description]]), () => []);
    const mac = `HMAC ${createHmac('sha256', 'k').update('x').digest('hex')}`;
    expect(captures.find(offer(SENDER, Buffer.from('{}'), ['Authorization', mac]))).toContain(mac);
    expect(captures.find(offer(SENDER, Buffer.from('{}'), ['Authorization', 'Bearer abcdef']))).not.toContain('abcdef');
  });
});
