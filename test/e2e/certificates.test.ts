/** Senders whose deliveries name a certificate, before a real gate, with a real https server in the place of the sender's. */
import { execFileSync } from 'node:child_process';
import { createPrivateKey, generateKeyPairSync, type KeyObject, randomUUID, sign } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { beforeEach, describe, expect, test } from 'vitest';
import { makeAuthority, readPair } from '../support/certificates.ts';
import { type Answer, send } from '../support/client.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { useApp, useFolder, useServer } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute } from '../support/gate.ts';
import { RSA_PAIR, toPem } from '../support/tokens.ts';

const HOST = 'api.paypal.com';
const CERTIFICATE = `https://${HOST}/v1/notifications/certs/CERT-360caa42-fca2a594-1`;
const WEBHOOK_ID = '1JE4291016473214C';
const NAME = 'messageverificationcerts.paypal.com';

const app = useApp();
const folder = useFolder();
const authority = makeAuthority(folder, 'public');
const ca = readFileSync(authority.ca);

function makeCertificate(base: string, name: string, bits = 2048): { readonly key: KeyObject; readonly pem: Buffer } {
  const [keyFile, file] = [join(folder, `${base}.key`), join(folder, `${base}.crt`)];
  const request = ['req', '-x509', '-newkey', `rsa:${bits}`, '-nodes', '-days', '2', '-subj', `/C=US/CN=${name}`];
  execFileSync('openssl', [...request, '-keyout', keyFile, '-out', file], { stdio: 'ignore' });
  return { key: createPrivateKey(readFileSync(keyFile)), pem: readFileSync(file) };
}

const own = makeCertificate('own', NAME);
const served: Record<string, Buffer> = {
  'CERT-360caa42-fca2a594-1': own.pem,
  'CERT-other': makeCertificate('other', `${NAME}.evil.example`).pem,
  'CERT-weak': makeCertificate('weak', NAME, 1024).pem,
  'CERT-junk': Buffer.from('not a certificate'),
};
let requests: string[] = [];
let answerWith = 200;
const server = createServer(readPair(authority.issue('paypal', `DNS:${HOST}`)), (request, response) => {
  requests.push(request.url ?? '');
  const pem = served[request.url?.split('/').at(-1) ?? ''];
  response.writeHead(pem === undefined ? 404 : answerWith, answerWith === 302 ? { Location: `${CERTIFICATE}-2` } : {});
  response.end(pem);
});
const sender = useServer(server);
beforeEach(() => {
  requests = [];
  answerWith = 200;
});

function start(webhook: Sections = {}, clock?: FakeClock): Promise<TestGate> {
  const section = { scheme: 'paypal', keys: [], receiverId: WEBHOOK_ID, allowWeakDigest: true, ...webhook };
  const connectOverride = { ca, reach: () => ({ host: '127.0.0.1', port: sender.port }) };
  return startGate({ routes: [toRoute(app.port, { webhook: section })] }, clock, {}, {}, connectOverride);
}

interface Delivery {
  readonly id: string;
  readonly time: string;
  readonly body: Buffer;
  readonly url: string;
  readonly webhookId: string;
  readonly key: KeyObject;
  /** The address of the client. */
  readonly from: string;
}

function deliver(gate: TestGate, given: Partial<Delivery> = {}, replaced?: Buffer): Promise<Answer> {
  const { id, time, body, url, webhookId, key, from }: Delivery = {
    id: randomUUID(),
    time: `${new Date().toISOString().slice(0, 19)}Z`,
    body: Buffer.from('{"id":"WH-1"}'),
    url: CERTIFICATE,
    webhookId: WEBHOOK_ID,
    key: own.key,
    from: '127.0.0.1',
    ...given,
  };
  const signature = sign('sha256', Buffer.from(`${id}|${time}|${webhookId}|${crc32(body)}`), key).toString('base64');
  const headers = {
    'Content-Type': 'application/json',
    'PAYPAL-AUTH-ALGO': 'SHA256withRSA',
    'PAYPAL-CERT-URL': url,
    'PAYPAL-TRANSMISSION-ID': id,
    'PAYPAL-TRANSMISSION-SIG': signature,
    'PAYPAL-TRANSMISSION-TIME': time,
  };
  return send(gate.port, { path: '/hooks/billing', headers, body: replaced ?? body, from });
}

/** Appends four bytes to a text that give it the wanted CRC-32, as anyone can compute them. */
function withChecksum(start: Buffer, wanted: number): Buffer {
  // CRC-32 is linear: solve for 32 unknown bits by the effect of each.
  const toSum = (tail: number): number => {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(tail >>> 0);
    return crc32(Buffer.concat([start, bytes]));
  };
  const base = toSum(0);
  const rows = Array.from({ length: 32 }, (_, bit) => ({ effect: (toSum(1 << bit) ^ base) >>> 0, bits: (1 << bit) >>> 0 }));
  let missing = (wanted ^ base) >>> 0;
  let tail = 0;
  for (let bit = 31; bit >= 0; bit--) {
    const mask = (1 << bit) >>> 0;
    const pivot = rows.find(({ effect }) => effect >>> bit === 1);
    if (pivot === undefined) continue;
    rows.splice(rows.indexOf(pivot), 1);
    for (const row of rows)
      if ((row.effect & mask) !== 0) {
        row.effect = (row.effect ^ pivot.effect) >>> 0;
        row.bits = (row.bits ^ pivot.bits) >>> 0;
      }
    if ((missing & mask) !== 0) {
      missing = (missing ^ pivot.effect) >>> 0;
      tail = (tail ^ pivot.bits) >>> 0;
    }
  }
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(tail);
  return Buffer.concat([start, bytes]);
}

describe('a delivery with the URL of its certificate', () => {
  test('reaches the app once, under the name of the host, and the certificate is fetched once for all', async () => {
    const gate = await start();
    const id = randomUUID();
    expect(await Promise.all([deliver(gate, { id }), deliver(gate), deliver(gate)])).toMatchObject([
      { status: 200 },
      { status: 200 },
      { status: 200 },
    ]);
    expect((await deliver(gate, { id })).code).toBe('duplicate');
    expect(requests).toEqual([new URL(CERTIFICATE).pathname]);
    expect(app.received.at(-1)?.headers['sidegate-key']).toBe(HOST);
    expect(await gate.metric(`sidegate_key_matches_total{route="billing",key="${HOST}"}`)).toBe(4);
    await gate.stop();
  });

  test.each<[string, Partial<Delivery>, string]>([
    ['with another key', { key: RSA_PAIR.privateKey }, 'signature_mismatch'],
    ['for another webhook', { webhookId: '9ZZ4291016473214C' }, 'signature_mismatch'],
    ['of last week', { time: '2020-01-01T00:00:00Z' }, 'timestamp_outside_tolerance'],
    [
      'with another name in its certificate',
      { url: CERTIFICATE.replace('CERT-360caa42-fca2a594-1', 'CERT-other') },
      'secret_unavailable',
    ],
    [
      'with a weak key in its certificate',
      { url: CERTIFICATE.replace('CERT-360caa42-fca2a594-1', 'CERT-weak') },
      'secret_unavailable',
    ],
    [
      'with something else than a certificate',
      { url: CERTIFICATE.replace('CERT-360caa42-fca2a594-1', 'CERT-junk') },
      'secret_unavailable',
    ],
    [
      'with a certificate that does not exist',
      { url: CERTIFICATE.replace('CERT-360caa42-fca2a594-1', 'CERT-none') },
      'secret_unavailable',
    ],
  ])('is rejected %s', async (_title, given, code) => {
    const gate = await start();
    expect((await deliver(gate, given)).code).toBe(code);
    expect(app.received).toHaveLength(0);
    await gate.stop();
  });

  test.each([
    ['http', CERTIFICATE.replace('https', 'http')],
    ['another host', CERTIFICATE.replace(HOST, 'api.paypal.com.evil.example')],
    ['a host of the sandbox', CERTIFICATE.replace(HOST, 'api.sandbox.paypal.com')],
    ['a user', CERTIFICATE.replace(HOST, `${HOST}@evil.example`)],
    ['a password', CERTIFICATE.replace(HOST, `a:b@${HOST}`)],
    ['a port', CERTIFICATE.replace(HOST, `${HOST}:8443`)],
    ['the usual port', CERTIFICATE.replace(HOST, `${HOST}:443`)],
    ['capitals', CERTIFICATE.replace(HOST, HOST.toUpperCase())],
    ['a trailing dot', CERTIFICATE.replace(HOST, `${HOST}.`)],
    ['a query', `${CERTIFICATE}?a=b`],
    ['a fragment', `${CERTIFICATE}#a`],
    ['another path', `https://${HOST}/v1/other/CERT-1`],
    ['a deeper path', `https://${HOST}/v1/notifications/certs/a/CERT-1`],
    ['dots', `https://${HOST}/v1/notifications/certs/../../other`],
    ['escaped dots', `https://${HOST}/v1/notifications/certs/%2e%2e`],
    ['an escape', `https://${HOST}/v1/notifications/certs/a%2fb`],
    ['a backslash', `https://${HOST}/v1/notifications/certs\\CERT-1`],
    ['no file', `https://${HOST}/v1/notifications/certs/`],
    ['an internal address', 'https://169.254.169.254/v1/notifications/certs/CERT-1'],
    ['a long name', `${CERTIFICATE}${'x'.repeat(600)}`],
    ['no URL', 'CERT-1'],
  ])('is rejected without a fetch if that has %s', async (_title, url) => {
    const gate = await start();
    expect(await deliver(gate, { url })).toMatchObject({ status: 401, code: 'malformed_signature' });
    expect(requests).toEqual([]);
    await gate.stop();
  });

  test.each([
    ['fails', 500],
    ['redirects', 302],
  ])('gets 503 if the host %s, so that the sender retries, and is accepted once the host works again', async (_title, status) => {
    answerWith = status;
    const clock = new FakeClock(Date.now());
    const gate = await start({}, clock);
    expect(await deliver(gate)).toMatchObject({ status: 503, code: 'secret_unavailable' });
    expect(await deliver(gate)).toMatchObject({ status: 503 });
    expect(requests).toHaveLength(1);
    answerWith = 200;
    await clock.advance(10_000);
    expect((await deliver(gate)).status).toBe(200);
    await Promise.all([gate.stop(), clock.advance(30_000)]);
  });

  test('is accepted while another client invents URLs', async () => {
    const gate = await start();
    const toUrl = (index: number): string => CERTIFICATE.replace('CERT-360caa42-fca2a594-1', `CERT-${index}`);
    const forged = Array.from({ length: 30 }, (_, index) => deliver(gate, { url: toUrl(index), from: '127.0.0.66' }));
    expect(new Set((await Promise.all(forged)).map(({ status }) => status))).toEqual(new Set([503]));
    expect(requests).toHaveLength(10);
    expect((await deliver(gate)).status).toBe(200);
    await gate.stop();
  });

  test('is verified by a pinned key instead, and then nothing is fetched', async () => {
    const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    process.env['PINNED_PAYPAL_KEY'] = toPem(publicKey);
    const gate = await start({ keys: [{ name: 'pinned', secret: { env: 'PINNED_PAYPAL_KEY' } }] });
    expect((await deliver(gate, { key: privateKey })).status).toBe(200);
    expect((await deliver(gate)).code).toBe('signature_mismatch');
    expect(requests).toEqual([]);
    await gate.stop();
  });
});

describe('a body with the CRC-32 of a delivery that somebody captured', () => {
  const body = Buffer.from('{"id":"WH-1","amount":"1.00"}');
  const forged = withChecksum(Buffer.from('{"id":"WH-1","amount":"999.00","x":"'), crc32(body));

  test('has a valid signature, so each ID is accepted once', async () => {
    expect(crc32(forged)).toBe(crc32(body));
    const gate = await start();
    const id = randomUUID();
    expect((await deliver(gate, { id, body })).status).toBe(200);
    expect((await deliver(gate, { id, body }, forged)).code).toBe('event_conflict');
    // The other way round, the forged one wins: why the setting has such a name.
    const stolen = randomUUID();
    expect((await deliver(gate, { id: stolen, body }, forged)).status).toBe(200);
    expect((await deliver(gate, { id: stolen, body })).code).toBe('event_conflict');
    expect(app.received).toHaveLength(2);
    await gate.stop();
  });
});
