/** The sending side against receivers that it was not written for: the libraries of Standard Webhooks, OpenSSL, and our own gate. */
import { execFileSync } from 'node:child_process';
import { createPublicKey } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import type { SigningKey } from '../../src/provider/endpoints/endpoint.ts';
import { findPublicKey, formatSigningSecret, type SigningSecret } from '../../src/verify/sign/signing-keys.ts';
import type { Received } from '../support/app.ts';
import { useApp, useFolder } from '../support/fixtures.ts';
import { startGate, toRoute } from '../support/gate.ts';
import { startGo, startPython } from '../support/oracles/foreign.ts';
import { readGithubExamples } from '../support/oracles/github-examples.ts';
import { toVerifiers } from '../support/oracles/verifiers.ts';
import { openSender, sendTo } from '../support/sender.ts';

const python = startPython();
const go = startGo();
const app = useApp();
const folder = useFolder();

afterAll(() => {
  python?.stop();
  go?.stop();
});

const toKey = (version: 'v1' | 'v1a', fill: number, bytes = 32): SigningSecret => ({
  version,
  secret: new Secret(Buffer.alloc(bytes, fill)),
});
const [CURRENT, OLD, SEED] = [toKey('v1', 1), toKey('v1', 2, 24), toKey('v1a', 3)];
const OTHER = toKey('v1', 9, 64);
const ROTATION: readonly SigningKey[] = [CURRENT, { ...OLD, expiresAt: Date.now() + 3_600_000 }, SEED];

const verifiers = toVerifiers(python, go);

/** Sends, and returns what the receiver got. */
async function receive(keys: readonly SigningKey[], body?: Buffer): Promise<Received> {
  const result = await sendTo(openSender(), { url: `http://127.0.0.1:${app.port}/`, keys }, body === undefined ? {} : { body });
  expect(result.outcome).toBe('delivered');
  const received = app.received.at(-1);
  if (received === undefined) throw new Error('nothing was received');
  return received;
}

describe.each(verifiers)('$name', ({ verify }) => {
  test('accepts a delivery with the current secret, and during a rotation with the old one, too', async () => {
    const plain = await receive([CURRENT]);
    expect(await verify(plain, formatSigningSecret(CURRENT))).toBe(true);
    expect(await verify(plain, formatSigningSecret(OLD))).toBe(false);
    const rotating = await receive(ROTATION);
    expect(await verify(rotating, formatSigningSecret(CURRENT))).toBe(true);
    expect(await verify(rotating, formatSigningSecret(OLD))).toBe(true);
    expect(await verify(rotating, formatSigningSecret(OTHER))).toBe(false);
  });

  test('notices a changed byte, ID and time', async () => {
    const received = await receive([CURRENT]);
    const secret = formatSigningSecret(CURRENT);
    const body = Buffer.from(received.body.toString().replace('invoice', 'Invoice'));
    expect(await verify({ ...received, body }, secret)).toBe(false);
    for (const [name, value] of [
      ['webhook-id', 'msg_2'],
      ['webhook-timestamp', String(Number(received.headers['webhook-timestamp']) - 1)],
    ] as const)
      expect(await verify({ ...received, headers: { ...received.headers, [name]: value } }, secret)).toBe(false);
  });

  test('accepts 329 real payloads', async () => {
    const secret = formatSigningSecret(CURRENT);
    for (const { event, body } of readGithubExamples())
      expect({ event, ok: await verify(await receive([CURRENT], body), secret) }).toEqual({ event, ok: true });
  });
});

test('PyPI and Go were asked, unless they are missing here', () => {
  expect(verifiers.length).toBe(2 + (python === undefined ? 0 : 1) + (go === undefined ? 0 : 1));
});

test('OpenSSL verifies the v1a signature', async () => {
  const { headers, body } = await receive(ROTATION);
  const entries = String(headers['webhook-signature']).split(' ');
  const entry = entries.find((each) => each.startsWith('v1a,')) ?? '';
  const raw = Buffer.from((findPublicKey(SEED) ?? '').slice('whpk_'.length), 'base64');
  const pem = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: raw.toString('base64url') }, format: 'jwk' }).export({
    format: 'pem',
    type: 'spki',
  });
  const files = { key: join(folder, 'key.pem'), signature: join(folder, 'signature'), signed: join(folder, 'signed') };
  writeFileSync(files.key, pem);
  writeFileSync(files.signature, Buffer.from(entry.slice('v1a,'.length), 'base64'));
  writeFileSync(files.signed, Buffer.concat([Buffer.from(`msg_1.${headers['webhook-timestamp']}.`), body]));
  const verify = (): string =>
    execFileSync(
      'openssl',
      ['pkeyutl', '-verify', '-pubin', '-inkey', files.key, '-rawin', '-in', files.signed, '-sigfile', files.signature],
      {
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'ignore'],
      },
    );
  expect(verify()).toContain('Signature Verified Successfully');
  writeFileSync(files.signed, 'changed');
  expect(verify).toThrow();
});

describe('our own gate', () => {
  const start = async (secret: string) => {
    const webhook = { scheme: 'standard-webhooks', keys: [{ name: 'current', secret: { file: 'secret' } }] };
    const gate = await startGate({ routes: [toRoute(app.port, { match: { path: '/hooks' }, webhook })] }, undefined, { secret });
    onTestFinished(async () => {
      await gate.stop();
    });
    return `http://127.0.0.1:${gate.port}/hooks`;
  };
  test.each([
    ['the current secret', () => formatSigningSecret(CURRENT)],
    ['the old secret', () => formatSigningSecret(OLD)],
    ['the public key', () => findPublicKey(SEED) ?? ''],
  ])('forwards the delivery once, verified with %s', async (_, toText) => {
    const url = await start(toText());
    const sender = openSender();
    for (let i = 0; i < 2; i++)
      expect(await sendTo(sender, { url, keys: ROTATION }, { event: `msg_${toText().length}` })).toMatchObject({
        outcome: 'delivered',
      });
    expect(app.received).toHaveLength(1);
    expect(app.received[0]?.headers['sidegate-key']).toBe('current');
  });

  test('rejects a delivery that another secret signed', async () => {
    const url = await start(formatSigningSecret(OTHER));
    expect(await sendTo(openSender(), { url, keys: ROTATION })).toMatchObject({ outcome: 'client_error', status: 401 });
    expect(app.received).toHaveLength(0);
  });
});
