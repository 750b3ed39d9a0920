import { spawnSync } from 'node:child_process';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls';
import { afterEach, describe, expect, test } from 'vitest';
import { makeAuthority, readPair, toTlsFiles } from '../support/certificates.ts';
import { useApp, useFolder } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, until } from '../support/gate.ts';
import { readOutput } from '../support/run.ts';
import { makeEntry } from '../support/users.ts';

const folder = useFolder();
const authority = makeAuthority(folder, 'ca');
const stranger = makeAuthority(folder, 'stranger-ca');
const local = authority.issue('local', 'DNS:localhost,IP:127.0.0.1');
const other = authority.issue('other', 'DNS:other.example,DNS:*.wild.example');
const client = authority.issue('client', 'DNS:client');
const app = useApp();
let gate: TestGate;
afterEach(() => gate.stop());

const start = async (tls: Sections = {}): Promise<void> => {
  gate = await startGate(
    {
      listen: { address: '127.0.0.1:0', tls: { certFile: 'tls.crt', keyFile: 'tls.key', ...tls } },
      routes: [
        {
          name: 'admin',
          match: { pathPrefix: '/' },
          upstream: `http://127.0.0.1:${app.port}`,
          basic: { realm: 'admin', users: { file: 'users' } },
        },
      ],
    },
    undefined,
    { users: makeEntry('Aladdin', 'open sesame'), ...toTlsFiles(local) },
  );
};
const url = (path = '/admin'): string => `https://localhost:${gate.port}${path}`;
const curl = (...args: string[]): Promise<string> =>
  readOutput('curl', '-sS', '-w', ' %{http_code}', '--cacert', authority.ca, ...args);
/** The name of the certificate that a client sees, or how the handshake failed. */
const shake = (options: ConnectionOptions = {}): Promise<{ name: string; protocol: string | null; socket: TLSSocket }> =>
  new Promise((resolve, reject) => {
    const socket = connect({
      port: gate.port,
      host: '127.0.0.1',
      ca: readFileSync(authority.ca),
      servername: 'localhost',
      ...options,
    });
    socket.once('error', reject);
    socket.once('close', () => reject(new Error('closed')));
    socket.once('secureConnect', () => {
      // With TLS 1.3 a refused client certificate is told after the handshake.
      socket.write('GET /x HTTP/1.1\r\nHost: x\r\n\r\n');
      socket.once('data', () =>
        resolve({ name: String(socket.getPeerCertificate().subject.CN), protocol: socket.getProtocol(), socket }),
      );
    });
  });

describe('real clients log in over TLS:', () => {
  test('curl', async () => {
    await start();
    expect(await curl('-u', 'Aladdin:open sesame', url())).toBe('handled 200');
    expect(await curl('-u', 'Aladdin:wrong', url())).toMatch(/ 401$/);
    expect(await curl('-T', '/etc/hostname', '-u', 'Aladdin:open sesame', url('/put'))).toBe('handled 200');
    expect(app.received[0]?.headers).toMatchObject({ 'x-forwarded-proto': 'https', 'sidegate-user': 'Aladdin' });
  });

  test('wget, after a challenge', async () => {
    await start();
    const args = ['-q', '-O', '-', `--ca-certificate=${authority.ca}`, '--user=Aladdin', '--password=open sesame', url()];
    expect(await readOutput('wget', ...args)).toBe('handled');
  });

  test("Python's urllib, after a challenge", async () => {
    await start();
    const script = `
import ssl, sys, urllib.request as r
passwords = r.HTTPPasswordMgr()
passwords.add_password('admin', sys.argv[1], 'Aladdin', 'open sesame')
context = ssl.create_default_context(cafile=sys.argv[2])
opener = r.build_opener(r.HTTPSHandler(context=context), r.HTTPBasicAuthHandler(passwords))
print(opener.open(sys.argv[1]).read().decode())`;
    expect((await readOutput('python3', '-c', script, url(), authority.ca)).trim()).toBe('handled');
  });
});

describe('certificates', () => {
  test('are selected by the server name that a client requests', async () => {
    await start({ additionalCertificates: [{ certFile: other.cert, keyFile: other.key }] });
    expect((await shake()).name).toBe('local');
    expect((await shake({ servername: 'other.example' })).name).toBe('other');
    expect((await shake({ servername: 'a.wild.example' })).name).toBe('other');
    expect((await shake({ servername: 'unknown.example', checkServerIdentity: () => undefined })).name).toBe('local');
  });

  test('that are rotated apply to new connections; a broken one changes nothing', async () => {
    await start();
    const before = await shake();
    copyFileSync(other.cert, join(gate.folder, 'tls.crt'));
    await until(() => gate.logText().includes('tls_reload_failed'));
    expect((await shake()).name).toBe('local');
    copyFileSync(other.key, join(gate.folder, 'tls.key'));
    await until(() => gate.logText().includes('tls_reloaded'));
    expect((await shake({ servername: 'other.example' })).name).toBe('other');
    expect((await shake({ servername: '', checkServerIdentity: () => undefined })).name).toBe('other');
    before.socket.write('GET /x HTTP/1.1\r\nHost: x\r\n\r\n');
    expect(String(await new Promise((resolve) => before.socket.once('data', resolve)))).toContain('401');
  });

  test('of one pair that does not match hold up neither the other pairs nor the CAs of clients', async () => {
    const shop = join(folder, 'shop');
    copyFileSync(other.cert, `${shop}.crt`);
    copyFileSync(other.key, `${shop}.key`);
    copyFileSync(authority.ca, `${shop}.ca`);
    const pair = { certFile: `${shop}.crt`, keyFile: `${shop}.key` };
    await start({ clientCaFile: `${shop}.ca`, clientCertificate: 'request', additionalCertificates: [pair] });
    const countReloads = (): number => gate.log().filter(({ msg }) => msg === 'tls_reloaded').length;
    copyFileSync(local.cert, `${shop}.crt`);
    await until(() => gate.logText().includes('tls_reload_failed'));
    copyFileSync(stranger.ca, `${shop}.ca`);
    await until(() => countReloads() === 1);
    copyFileSync(other.key, join(gate.folder, 'tls.key'));
    copyFileSync(other.cert, join(gate.folder, 'tls.crt'));
    await until(async () => (await shake({ servername: 'x', checkServerIdentity: () => undefined })).name === 'other');
    expect((await shake({ servername: 'a.wild.example' })).name).toBe('other');
  });

  test('require TLS 1.2 or newer, or the configured version', async () => {
    await start();
    const old = { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' } as const;
    await expect(shake(old)).rejects.toMatchObject({ code: 'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION' });
    expect((await shake({ maxVersion: 'TLSv1.2' })).protocol).toBe('TLSv1.2');
    await gate.stop();
    await start({ minVersion: '1.3' });
    await expect(shake({ maxVersion: 'TLSv1.2' })).rejects.toMatchObject({ code: 'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION' });
    expect((await shake()).protocol).toBe('TLSv1.3');
  });
});

describe('client certificates', () => {
  test('are requested, and only those of the CA are accepted', async () => {
    await start({ clientCaFile: authority.ca });
    expect((await shake(readPair(client))).name).toBe('local');
    const forged = readPair(stranger.issue('forged', 'DNS:client'));
    await expect(shake()).rejects.toThrow();
    await expect(shake(forged)).rejects.toThrow();
    // With TLS 1.2 the handshake itself fails, so that the cause is certain.
    const required = { code: expect.stringMatching(/_ALERT_HANDSHAKE_FAILURE$/) as string };
    await expect(shake({ maxVersion: 'TLSv1.2' })).rejects.toMatchObject(required);
    await expect(shake({ ...forged, maxVersion: 'TLSv1.2' })).rejects.toMatchObject({ code: 'ECONNRESET' });
  });
});

describe('an unusable file is reported before the gate starts:', () => {
  const check = (config: string): string => {
    writeFileSync(join(folder, 'gate.yaml'), config);
    const cli = join(import.meta.dirname, '..', '..', 'src', 'cli', 'main.ts');
    return spawnSync(process.execPath, [cli, 'check', '--config', join(folder, 'gate.yaml')], { encoding: 'utf8' }).stdout;
  };
  const config = (tls: string, basic = 'users: { file: users }'): string =>
    `listen: { tls: { ${tls} } }\nroutes:\n  - name: a\n    match: { pathPrefix: / }\n    upstream: http://127.0.0.1:1\n    basic: { realm: r, ${basic} }\n`;

  test.each([
    ['a missing certificate', 'certFile: nowhere.crt, keyFile: local.key', 'nowhere.crt does not exist'],
    ['a file that is not a certificate', 'certFile: local.key, keyFile: local.key', 'local.key contains no certificate'],
    ['a key of another certificate', 'certFile: local.crt, keyFile: other.key', 'local.crt and its key:'],
    [
      'a CA file without certificates',
      'certFile: local.crt, keyFile: local.key, clientCaFile: local.key',
      'local.key contains no certificate',
    ],
    [
      'CAs without a line break between them',
      'certFile: local.crt, keyFile: local.key, clientCaFile: joined.crt',
      'joined.crt lacks a line break after -----END CERTIFICATE-----',
    ],
    [
      'a broken CA behind a good one',
      'certFile: local.crt, keyFile: local.key, clientCaFile: broken.crt',
      'broken.crt has a certificate that cannot be read: number 2',
    ],
  ])('%s', async (_, tls, message) => {
    await start();
    writeFileSync(join(folder, 'users'), makeEntry('a', 'b'));
    const good = readFileSync(join(folder, 'local.crt'), 'utf8');
    writeFileSync(join(folder, 'joined.crt'), `${good.trimEnd()}${good}`);
    writeFileSync(join(folder, 'broken.crt'), `${good}${good.replace(/M/, '!')}${good}`);
    expect(check(config(tls))).toContain(message);
  });

  test('an empty users file, and users with weak hashes', async () => {
    await start();
    const tls = 'certFile: local.crt, keyFile: local.key';
    writeFileSync(join(folder, 'users'), '');
    expect(check(config(tls))).toContain('contains no users');
    writeFileSync(join(folder, 'users'), `${makeEntry('ann', 'x', ['-m'])}\n${makeEntry('bob', 'x', ['-s'])}\n`);
    const shown = check(config(tls));
    expect(shown).toMatch(/warning routes\.0\.basic\.users: .*users:1: the password of ann is stored as apr1, which is broken/);
    expect(shown).toMatch(/users:2: the password of bob is stored as sha1/);
    expect(shown).toMatch(/local\.crt expires on/);
  });
});
