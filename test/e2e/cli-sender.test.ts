/** `sign`, `send` and `verify` with the scheme and the keys of a route, whatever its scheme is. */
import { createHmac, generateKeyPairSync } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { describe, expect, onTestFinished, test } from 'vitest';
import { stringify } from 'yaml';
import { runProgram } from '../../src/cli/program.ts';
import { CONTROLS } from '../support/cli.ts';
import { useApp, useFolder, useGate } from '../support/fixtures.ts';
import { type Sections, startGate, toRoute } from '../support/gate.ts';
import { recordIo } from '../support/io.ts';

const SECRET = 'a secret that both of us know';
const OTHER = 'another secret of the same route';
const BODY = '{"a": 1}\n';
const AT = '1700000000';
const folder = useFolder();
const body = join(folder, 'event.json');
writeFileSync(body, BODY);
writeFileSync(join(folder, 'secret'), SECRET);
writeFileSync(join(folder, 'other'), OTHER);

const CUSTOM = {
  signature: { header: 'X-Ours', list: ',', forms: [{ prefix: 'v1=' }] },
  signed: ['timestamp', 'body'],
  separator: '.',
  timestamp: { entry: 't=' },
};
const KEY = { name: 'current', secret: { file: 'secret' } };
const OLD = { name: 'old', secret: { file: 'other' } };

function toConfigRoute(name: string, webhook: object, match: object = { path: `/hooks/${name}` }): object {
  return { name, match, upstream: 'http://127.0.0.1:3000', webhook: { keys: [KEY, OLD], ...webhook } };
}

const ours = toConfigRoute('ours', { scheme: 'custom', custom: CUSTOM });

function writeConfig(...routes: object[]): string {
  const file = join(folder, 'gate.yaml');
  writeFileSync(file, stringify({ listen: { address: '127.0.0.1:0' }, routes }));
  return file;
}

interface Ran {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

async function run(...args: string[]): Promise<Ran> {
  const { io, stdout, stderr } = recordIo({ stdin: Readable.from([]) as unknown as NodeJS.ReadableStream });
  const status = await runProgram(args, io);
  return { status, stdout: stdout(), stderr: stderr() };
}

async function sign(config: string, ...args: string[]): Promise<Record<string, string>> {
  const { stdout, stderr } = await run('sign', '-c', config, '--timestamp', AT, '--format', 'json', ...args);
  return (stderr === '' ? JSON.parse(stdout) : { stderr }) as Record<string, string>;
}

function verify(config: string, headers: Record<string, string>, ...args: string[]): Promise<Ran> {
  const fields = Object.entries(headers).flatMap((field) => ['-H', field.join(': ')]);
  return run('verify', body, '-c', config, '--at', AT, ...fields, ...args);
}

const hex = (text: string, secret = SECRET): string => createHmac('sha256', secret).update(text).digest('hex');

describe('a scheme whose signature is in the body or the query', () => {
  const mailgun = toConfigRoute('mailgun', { scheme: 'mailgun' });
  const query = toConfigRoute('query', { scheme: 'custom', custom: { signature: { query: 'sig' }, signed: ['body'] } });
  const TYPE = ['-H', 'Content-Type: application/json'];
  const file = join(folder, 'mailgun.json');
  writeFileSync(file, '{"signature":{"token":"abc"},"event-data":{"id":"1"}}');

  test('signs the body, prints it after the headers, and verifies it', async () => {
    const config = writeConfig(mailgun);
    const { stdout, stderr } = await run('sign', file, '-c', config, '--timestamp', AT);
    const signed = JSON.stringify({
      signature: { token: 'abc', timestamp: AT, signature: hex(`${AT}abc`) },
      'event-data': { id: '1' },
    });
    expect({ stdout, stderr }).toEqual({ stdout: `Content-Type: application/json\n\n${signed}\n`, stderr: '' });
    const other = join(folder, 'signed.json');
    writeFileSync(other, signed);
    expect(await run('verify', other, '-c', config, '--at', AT, ...TYPE)).toMatchObject({ status: 0 });
    writeFileSync(other, signed.replace('abc', 'abd'));
    expect(await run('verify', other, '-c', config, '--at', AT, ...TYPE)).toMatchObject({
      status: 1,
      stdout: expect.stringContaining('signature_mismatch'),
    });
    writeFileSync(other, signed.replace('"token":"abc",', ''));
    expect(await run('verify', other, '-c', config, '--at', AT, ...TYPE)).toMatchObject({
      stdout: expect.stringContaining('$.signature.token in the body is missing'),
    });
  });

  test('has no command line of curl, as the file is not what is sent', async () => {
    expect(await run('sign', file, '-c', writeConfig(mailgun), '--format', 'curl')).toMatchObject({
      status: 2,
      stderr: expect.stringContaining('use sidegate send'),
    });
  });

  test('prints the query to append', async () => {
    const { stderr } = await run('sign', body, '-c', writeConfig(query));
    expect(stderr).toBe(`the signature is in the query: sig=${hex(BODY)}\n`);
  });
});

describe('a route with a custom scheme', () => {
  test('signs by its description, with its first key, and verifies with all of its keys', async () => {
    const config = writeConfig(ours);
    const headers = await sign(config, body);
    expect(headers).toEqual({ 'Content-Type': 'application/json', 'X-Ours': `t=${AT},v1=${hex(`${AT}.${BODY}`)}` });
    expect(await verify(config, headers)).toMatchObject({ status: 0, stdout: expect.stringContaining('with the key current') });
    const old = { 'X-Ours': `t=${AT},v1=${hex(`${AT}.${BODY}`, OTHER)}` };
    expect(await verify(config, old)).toMatchObject({ status: 0, stdout: expect.stringContaining('with the key old') });
    const forged = await verify(config, { 'X-Ours': `t=${AT},v1=${hex(BODY)}` });
    expect(forged).toMatchObject({ status: 1, stdout: expect.stringContaining('over the body only') });
  });

  test('signs with the key that is valid now', async () => {
    const keys = [
      { ...KEY, notAfter: '2020-01-01T00:00:00Z' },
      { ...OLD, notBefore: '2020-01-01T00:00:00Z' },
    ];
    const config = writeConfig(toConfigRoute('ours', { scheme: 'custom', custom: CUSTOM, keys }));
    expect((await sign(config, body))['X-Ours']).toBe(`t=${AT},v1=${hex(`${AT}.${BODY}`, OTHER)}`);
  });

  test('uses a secret of the command line instead', async () => {
    const config = writeConfig(ours);
    const secret = ['--secret-file', join(folder, 'other')];
    const headers = await sign(config, body, ...secret);
    expect(headers['X-Ours']).toBe(`t=${AT},v1=${hex(`${AT}.${BODY}`, OTHER)}`);
    expect(await verify(config, headers, ...secret)).toMatchObject({
      status: 0,
      stdout: expect.stringContaining('with the key given'),
    });
  });

  test('has its own tolerance and media types', async () => {
    const text = toConfigRoute('ours', {
      scheme: 'custom',
      custom: CUSTOM,
      contentTypes: ['text/plain', 'none'],
      tolerance: '1h',
    });
    const config = writeConfig(text);
    expect((await sign(config, body))['Content-Type']).toBe('text/plain');
    expect(await sign(config)).toEqual({ 'X-Ours': `t=${AT},v1=${hex(`${AT}.`)}` });
    expect((await verify(config, await sign(config, body), '--at', String(Number(AT) + 3599))).status).toBe(0);
    expect((await verify(config, await sign(config, body), '--at', String(Number(AT) + 3599), '--tolerance', '5m')).status).toBe(
      1,
    );
  });
});

describe('a route whose sender signs with a private key', () => {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  writeFileSync(join(folder, 'public'), publicKey.export({ format: 'pem', type: 'spki' }));
  writeFileSync(join(folder, 'private'), privateKey.export({ format: 'pem', type: 'pkcs8' }));

  test('verifies with the key of the config, and signs with that of the command line', async () => {
    const config = writeConfig(toConfigRoute('chat', { scheme: 'discord', keys: [{ name: 'k', secret: { file: 'public' } }] }));
    const headers = await sign(config, body, '--secret-file', join(folder, 'private'));
    expect((await verify(config, headers)).status).toBe(0);
    expect((await sign(config, body))['stderr']).toMatch(/not an Ed25519 private key in PEM/);
  });
});

describe('a route whose sender signs the URL', () => {
  const publicUrl = 'https://hooks.example.com/in';
  const toSignature = (url: string): string => createHmac('sha256', SECRET).update(`${url}${BODY}`).digest('base64');

  test('signs and verifies the public URL of the route', async () => {
    const config = writeConfig(toConfigRoute('shop', { scheme: 'square', publicUrl }));
    const headers = await sign(config, body);
    expect(headers['X-Square-HmacSha256-Signature']).toBe(toSignature(`${publicUrl}/hooks/shop`));
    expect((await verify(config, headers)).status).toBe(0);
    const other = await sign(config, body, '--public-url', 'https://other.example/x');
    expect(other['X-Square-HmacSha256-Signature']).toBe(toSignature('https://other.example/x'));
    expect((await verify(config, other)).status).toBe(1);
    expect((await verify(config, other, '--public-url', 'https://other.example/x')).status).toBe(0);
  });

  test('needs the URL if it matches more than one path', async () => {
    const config = writeConfig(toConfigRoute('shop', { scheme: 'square', publicUrl }, { pathPrefix: '/shop' }));
    expect((await sign(config, body))['stderr']).toMatch(
      /square signs the URL, and the route matches more than one path: use --public-url/,
    );
  });
});

describe('sidegate send', () => {
  const app = useApp();
  const webhook: Sections = { scheme: 'custom', custom: CUSTOM };
  const gate = useGate(() => startGate({ routes: [toRoute(app.port, { webhook })] }, undefined, { secret: SECRET }));

  test('sends what a running gate with this config accepts', async () => {
    const url = `http://127.0.0.1:${gate.port}/hooks/billing`;
    const { status, stdout } = await run('send', url, body, '-c', writeConfig(ours));
    expect([status, stdout]).toEqual([0, expect.stringContaining('handled')]);
    expect(app.received.at(-1)?.body.toString()).toBe(BODY);
  });

  test('shows the beginning of an endless response, without what a terminal would run', async () => {
    const isHung = Promise.withResolvers<void>();
    const server = createServer((_, response) => {
      response.setHeader('Content-Type', 'text/plain; a=\u009b31m');
      response.write('\u001b[2Jvalid\u202e\r\r\n');
      const fill = (): void => {
        while (response.write('x'.repeat(65_536)));
      };
      response.on('drain', fill).on('close', isHung.resolve);
      fill();
    });
    await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const { status, stdout } = await run('send', `http://127.0.0.1:${port}/`, body, '-c', writeConfig(ours));
    await isHung.promise;
    expect([status, stdout.length]).toEqual([0, expect.toSatisfy((length: number) => length > 4_000 && length < 4_300)]);
    expect(stdout).toMatch(/^\\u001b\[2Jvalid\\u202e\\u000d\r?\nxxx/m);
    expect(stdout.replaceAll('\r\n', '\n')).not.toMatch(CONTROLS);
  });
});

describe('incorrect options', () => {
  const two = [ours, toConfigRoute('shop', { scheme: 'github' })];
  test.each<[string, object[], string[], RegExp]>([
    ['two routes', two, [], /select a route with --route \(ours, shop\)/],
    ['an unknown route', two, ['--route', 'our'], /--route our is not one of ours, shop/],
    ['a scheme as well', [ours], ['--scheme', 'github'], /--config already names the scheme: omit --scheme/],
    ['an encoding without a secret', [ours], ['--encoding', 'hex'], /--encoding requires --secret-env or --secret-file/],
    [
      'a route without a webhook section',
      [
        ours,
        {
          name: 'open',
          match: { path: '/open' },
          upstream: 'http://127.0.0.1:3000',
          basic: { realm: 'r', requireTls: false, users: [{ file: 'secret' }] },
        },
      ],
      ['--route', 'open'],
      /the route open has no webhook section/,
    ],
    ['an invalid config', [toConfigRoute('ours', { scheme: 'githb' })], [], /unknown value "githb"/],
    [
      'a route without a valid key',
      [toConfigRoute('ours', { scheme: 'github', keys: [{ ...KEY, notBefore: '2999-01-01T00:00:00Z' }] })],
      [],
      /the route ours has no valid key: use --secret-env or --secret-file/,
    ],
    [
      'a missing secret',
      [toConfigRoute('ours', { scheme: 'github', keys: [{ name: 'k', secret: { file: 'missing' } }] })],
      [],
      /the key k of the route ours: .*missing/,
    ],
  ])('are reported: %s', async (_title, routes, args, message) => {
    const { status, stderr } = await run('sign', body, '-c', writeConfig(...routes), ...args);
    expect([status, stderr]).toEqual([2, expect.stringMatching(message)]);
  });

  test('are reported: a route without a config', async () => {
    expect((await run('sign', body, '--route', 'ours')).stderr).toMatch(/--route requires --config FILE/);
  });
});
