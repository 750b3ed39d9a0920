/** `sign` and `send` for senders whose token is the body: the file has the claims, and the token is what is sent. */
import { generateKeyPairSync } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { runProgram } from '../../src/cli/program.ts';
import { findPreset } from '../../src/verify/presets/catalogue.ts';
import { makeChain } from '../support/certificates.ts';
import { useApp, useFolder, useGate } from '../support/fixtures.ts';
import { startGate, toRoute } from '../support/gate.ts';
import { recordIo } from '../support/io.ts';

const folder = useFolder();
const app = useApp();
const file = (name: string, content: string): string => {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
};
const toPem = { spki: { format: 'pem', type: 'spki' }, pkcs8: { format: 'pem', type: 'pkcs8' } } as const;
const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
const [signer = '', intermediate = ''] = findPreset('apple-app-store')?.jwt?.chain?.extensions ?? [];
const apple = makeChain(folder, [signer, intermediate]);
const secrets = {
  wix: rsa.publicKey.export(toPem.spki).toString(),
  apple: apple.root,
};
const KEYS = {
  wix: file('wix-private', rsa.privateKey.export(toPem.pkcs8).toString()),
  apple: file('apple-private', apple.bundle),
};
const WEBHOOKS = {
  wix: { scheme: 'wix' },
  apple: { scheme: 'apple-app-store', jwt: { audience: ['com.example.app'] } },
};
type Sender = keyof typeof WEBHOOKS;
const CLAIMS = {
  wix: '{"data":"{\\"eventType\\":\\"Grüße\\"}","iss":"wix.com"}',
  apple: '{"notificationType":"DID_RENEW","notificationUUID":"002e14d5","data":{"appAppleId":1}}',
};

function toConfig(name: Sender): string {
  const keys = [{ name: 'k', secret: { file: file(`${name}-key`, secrets[name]) } }];
  const route = { name, match: { path: '/hook' }, upstream: 'http://127.0.0.1:3000', webhook: { ...WEBHOOKS[name], keys } };
  return file(`${name}.yaml`, stringify({ listen: { address: '127.0.0.1:0' }, routes: [route] }));
}

async function run(...args: string[]): Promise<{ status: number; stdout: string; stderr: string }> {
  const { io, stdout, stderr } = recordIo({ stdin: Readable.from([]) as unknown as NodeJS.ReadableStream });
  const status = await runProgram(args, io);
  return { status, stdout: stdout(), stderr: stderr() };
}

function toClaims(token: string): Record<string, unknown> {
  return JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()) as Record<string, unknown>;
}

describe.each(['wix', 'apple'] as const)('the token of %s', (name) => {
  const gate = useGate(() =>
    startGate({ routes: [toRoute(app.port, { webhook: WEBHOOKS[name] })] }, undefined, { secret: secrets[name] }),
  );
  const claims = file(`${name}.json`, CLAIMS[name]);
  const options = ['-c', toConfig(name), '--secret-file', KEYS[name]];

  test('is sent, verified by a running gate, and forwarded as it is', async () => {
    const sent = await run('send', `http://127.0.0.1:${gate.port}/hooks/billing`, claims, ...options);
    expect(sent).toMatchObject({ status: 0, stdout: expect.stringContaining('handled') });
    const { body = Buffer.alloc(0), headers } = app.received.at(-1) ?? {};
    const token = name === 'wix' ? body.toString() : (JSON.parse(body.toString()) as { signedPayload: string }).signedPayload;
    expect(toClaims(token)).toMatchObject(JSON.parse(CLAIMS[name]) as object);
    expect(headers?.['content-type']).toBe(name === 'wix' ? 'text/plain' : 'application/json');
  });

  test('is printed by sign, and verify accepts it but not another one', async () => {
    const { stdout } = await run('sign', claims, ...options);
    const [head = '', token = ''] = stdout.trimEnd().split('\n\n');
    const verify = (body: string): ReturnType<typeof run> =>
      run('verify', file('signed', body), '-c', toConfig(name), '-H', head.trim());
    expect(await verify(token)).toMatchObject({ status: 0 });
    const changed = Buffer.from(`${JSON.stringify({ ...toClaims(token), injected: 1 })}`).toString('base64url');
    expect(await verify(token.replace(/\.[^.]*\./, `.${changed}.`))).toMatchObject({ status: 1 });
  });

  test.each(['[1]', '"text"', 'null', 'not JSON', ''])('is not made of %j', async (content) => {
    expect(await run('sign', file('bad', content), ...options)).toMatchObject({
      status: 2,
      stderr: expect.stringContaining('the body is signed as the claims of a token, so it must be a JSON object'),
    });
  });
});

test('claims that the file has are kept, and those that the route requires are added', async () => {
  const body = file('given.json', '{"data":{"bundleId":"com.example.other"},"notificationUUID":"a"}');
  const { stdout } = await run('sign', body, '-c', toConfig('apple'), '--secret-file', KEYS.apple, '--id', 'b');
  const { signedPayload } = JSON.parse(stdout.split('\n\n')[1] ?? '') as { signedPayload: string };
  expect(toClaims(signedPayload)).toEqual({ data: { bundleId: 'com.example.other' }, notificationUUID: 'a' });
  const summary = file('summary.json', '{"summary":{"bundleId":"com.example.app"}}');
  const other = await run('sign', summary, '-c', toConfig('apple'), '--secret-file', KEYS.apple, '--id', 'b');
  const added = (JSON.parse(other.stdout.split('\n\n')[1] ?? '') as { signedPayload: string }).signedPayload;
  expect(toClaims(added)).toEqual({ summary: { bundleId: 'com.example.app' }, notificationUUID: 'b' });
});

test('a private key without its chain is reported, and so is the root of the route', async () => {
  const alone = file('alone', apple.bundle.slice(0, apple.bundle.indexOf('-----BEGIN CERTIFICATE')));
  const claims = file('claims.json', CLAIMS.apple);
  expect((await run('sign', claims, '-c', toConfig('apple'), '--secret-file', alone)).stderr).toContain(
    'the token contains a chain of 2 certificates: put them into the secret after the private key, that of the signer first',
  );
  expect((await run('sign', claims, '-c', toConfig('apple'))).stderr).toContain('not an ECDSA P-256 private key in PEM');
});
