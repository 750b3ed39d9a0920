import { readFileSync, writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { createServer as createTlsServer, Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { ProxyAgent, request as undiciRequest } from 'undici';
import { beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { makeAuthority, readPair } from '../support/certificates.ts';
import { useApp, useFolder, useGate, useGitApp, useServer } from '../support/fixtures.ts';
import type { Sections, TestGate } from '../support/gate.ts';
import { openTunnel, startProxyGate } from '../support/proxy.ts';
import { type Ended, PYTHON, run, runPython } from '../support/run.ts';
import { toBasic } from '../support/users.ts';

const folder = useFolder();
const UPLOAD = join(folder, 'upload');
const UPLOAD_BYTES = 3_000_000;
writeFileSync(UPLOAD, Buffer.alloc(UPLOAD_BYTES, 'x'));

const authority = makeAuthority(folder, 'ca');
const { ca } = authority;
const pair = authority.issue('server', 'DNS:localhost,DNS:secure.example,IP:127.0.0.1');
const app = useApp();
const git = useGitApp();
const server = createTlsServer(readPair(pair), async (request, response) => {
  let length = 0;
  for await (const chunk of request) length += (chunk as Buffer).length;
  const { authorization = 'none', 'proxy-authorization': leaked = 'none' } = request.headers;
  response.end(`secure ${length} ${authorization} ${leaked}`);
});
const sockets = new WebSocketServer({ server });
sockets.on('connection', (socket) => socket.on('message', (data) => socket.send(data, { binary: false })));
const secure = useServer(server);
const start = (proxy: Sections = {}): Promise<TestGate> =>
  startProxyGate({
    allow: [`app.example:${app.port}`, `git.example:${git.port}`, `secure.example:${secure.port}`],
    names: { 'app.example': ['127.0.0.1'], 'git.example': ['127.0.0.1'], 'secure.example': ['127.0.0.1'] },
    proxy,
  });
/** One in clear text, one over TLS. */
const gate = useGate(() => start());
const guarded = useGate(() => start({ requireTls: true, tls: { certFile: pair.cert, keyFile: pair.key } }));
beforeEach(() => {
  app.handler = ({ body }, response) => response.end(`handled ${body.length}`);
});

const appUrl = (path = '/x'): string => `http://app.example:${app.port}${path}`;
const secureUrl = (path = '/x'): string => `https://secure.example:${secure.port}${path}`;
const proxyUrl = (user = 'Aladdin:open%20sesame@'): string => `http://${user}127.0.0.1:${gate.proxyPort}`;
const WRONG = 'Aladdin:wrong@';

describe('curl', () => {
  const curl = async (...args: readonly string[]): Promise<string> =>
    (await run('curl', ['-sS', '-w', ' %{http_code} %{http_connect}', '--cacert', ca, ...args])).stdout;
  const USER = ['--proxy-user', 'Aladdin:open sesame'];

  test.each([
    ['in clear text', () => ['-x', `http://127.0.0.1:${gate.proxyPort}`]],
    ['by TLS', () => ['-x', `https://localhost:${guarded.proxyPort}`, '--proxy-cacert', ca]],
  ])('%s, sends the password after a challenge', async (_, toArgs) => {
    const args = [...toArgs(), ...USER, '--proxy-anyauth'];
    expect(await curl(...args, appUrl())).toBe('handled 0 200 000');
    expect(await curl(...args, secureUrl())).toBe('secure 0 none none 200 200');
    expect(await curl(...args, '-T', UPLOAD, appUrl())).toBe(`handled ${UPLOAD_BYTES} 200 000`);
    expect(await curl(...args, '-T', UPLOAD, secureUrl())).toBe(`secure ${UPLOAD_BYTES} none none 200 200`);
    expect(await curl(...args, '-p', appUrl())).toBe('handled 0 200 200');
  });

  test('uploads in chunks, and without waiting for 100', async () => {
    const args = ['-x', proxyUrl(), '-T', UPLOAD];
    expect(await curl(...args, '-H', 'Transfer-Encoding: chunked', appUrl())).toBe(`handled ${UPLOAD_BYTES} 200 000`);
    expect(await curl(...args, '-H', 'Expect:', appUrl())).toBe(`handled ${UPLOAD_BYTES} 200 000`);
  });

  test('gets 407 for a wrong proxy password during an upload', async () => {
    const args = ['-x', proxyUrl(WRONG)];
    expect(await curl(...args, '-H', 'Expect:', '-T', UPLOAD, appUrl())).toMatch(
      /"code":"proxy_credentials_required".* 407 000$/,
    );
    expect(await curl(...args, secureUrl())).toBe(' 000 407');
    expect(app.received).toHaveLength(0);
  });

  test('keeps the passwords of the proxy and of the destination apart', async () => {
    const answer = await curl('-x', proxyUrl(), '-u', 'bob:secret', secureUrl());
    expect(answer).toBe(`secure 0 ${toBasic('bob', 'secret').Authorization} none 200 200`);
    await curl('-x', proxyUrl(), '-u', 'bob:secret', appUrl());
    expect(app.received[0]?.headers.authorization).toBe(toBasic('bob', 'secret').Authorization);
    expect(JSON.stringify(app.received[0]?.rawHeaders)).not.toContain(toBasic('Aladdin', 'open sesame').Authorization);
  });

  test('works with HTTP/1.0, both ways', async () => {
    expect(await curl('-0', '-x', proxyUrl(), appUrl())).toBe('handled 0 200 000');
    expect(await curl('--proxy1.0', `127.0.0.1:${gate.proxyPort}`, ...USER, secureUrl())).toBe('secure 0 none none 200 200');
  });

  test('receives events through it immediately', async () => {
    app.handler = (_request, response) =>
      void response.writeHead(200, { 'Content-Type': 'text/event-stream' }).write('data: 1\n\n');
    const { code, stdout } = await run('curl', ['-sS', '-N', '-m', '1', '-x', proxyUrl(), appUrl()]);
    expect([code, stdout]).toEqual([28, 'data: 1\n\n']);
  });
});

describe('wget', () => {
  const wget = (user: readonly string[], target: string): Promise<Ended> => {
    const proxy = `http://127.0.0.1:${gate.proxyPort}`;
    const args = ['-q', '-t', '1', '-O', '-', `--ca-certificate=${ca}`, ...user, target];
    return run('wget', args, { http_proxy: proxy, https_proxy: proxy });
  };
  const USER = ['--proxy-user=Aladdin', '--proxy-password=open sesame'];

  test('is allowed with the password, and rejected with a wrong one', async () => {
    expect(await wget(USER, appUrl())).toMatchObject({ code: 0, stdout: 'handled 0' });
    expect(await wget(USER, secureUrl())).toMatchObject({ code: 0, stdout: 'secure 0 none none' });
    for (const target of [appUrl(), secureUrl()])
      expect((await wget(['--proxy-user=Aladdin', '--proxy-password=wrong'], target)).code).not.toBe(0);
    expect(app.received).toHaveLength(1);
  });
});

describe('Python', () => {
  const URLLIB = `
import ssl, sys, urllib.error, urllib.request as r
target, proxy, ca = sys.argv[1:4]
opener = r.build_opener(r.ProxyHandler({'http': proxy, 'https': proxy}), r.HTTPSHandler(context=ssl.create_default_context(cafile=ca)))
try: print(opener.open(target).read().decode())
except urllib.error.HTTPError as e: print(e.code, e.headers['Proxy-Authenticate'])
except urllib.error.URLError as e: print(e.reason)`;
  const CHALLENGE = '407 Basic realm="egress", charset="UTF-8"';
  const REFUSED = 'Tunnel connection failed: 407 Proxy Authentication Required';

  test.each([
    ['with the password', undefined, 'handled 0', 'secure 0 none none'],
    ['with a wrong one', WRONG, CHALLENGE, REFUSED],
    ['without one', '', CHALLENGE, REFUSED],
  ])('’s urllib, %s', async (_, user, plain, tunnelled) => {
    expect(await runPython(URLLIB, appUrl(), proxyUrl(user), ca)).toBe(plain);
    expect(await runPython(URLLIB, secureUrl(), proxyUrl(user), ca)).toBe(tunnelled);
  });

  test('’s urllib, which sends the password only after a challenge', async () => {
    const script = `
import sys, urllib.request as r
target, proxy = sys.argv[1:3]
passwords = r.HTTPPasswordMgrWithDefaultRealm()
passwords.add_password(None, proxy, 'Aladdin', 'open sesame')
opener = r.build_opener(r.ProxyHandler({'http': proxy}), r.ProxyBasicAuthHandler(passwords))
print(opener.open(target, data=b'x' * 100000).read().decode())`;
    expect(await runPython(script, appUrl(), proxyUrl(''))).toBe('handled 100000');
  });

  const REQUESTS = `
import sys, requests
plain, secure, proxy, wrong, ca = sys.argv[1:6]
s = requests.Session()
s.trust_env = False
s.verify = ca
s.proxies = {'http': proxy, 'https': proxy}
print(s.get(plain).text, s.put(plain, data=iter([b'a', b'b' * 100000])).text, s.get(secure).text, s.post(secure, data=b'x' * 100000).text, sep='|', end='|')
s.proxies = {'http': wrong, 'https': wrong}
print(s.get(plain).status_code, end='|')
try: s.get(secure)
except requests.exceptions.ProxyError as e: print('407' in str(e))`;

  test.skipIf(PYTHON === undefined)('’s requests', async () => {
    expect(await runPython(REQUESTS, appUrl(), secureUrl(), proxyUrl(), proxyUrl(WRONG), ca)).toBe(
      'handled 0|handled 100001|secure 0 none none|secure 100000 none none|407|True',
    );
  });
});

describe('Node', () => {
  const token = toBasic('Aladdin', 'open sesame').Authorization;
  const tls = { requestTls: { ca: '' } };
  beforeAll(() => {
    tls.requestTls.ca = readFileSync(ca, 'utf8');
  });

  test.each([
    ['by tunnels', true],
    ['without tunnels where none is needed', false],
  ])('’s undici ProxyAgent, %s', async (_, proxyTunnel) => {
    const dispatcher = new ProxyAgent({ uri: proxyUrl(''), token, proxyTunnel, ...tls });
    for (let i = 0; i < 2; i++) {
      const plain = await undiciRequest(appUrl(), { method: 'PUT', body: 'hello', dispatcher });
      expect([plain.statusCode, await plain.body.text()]).toEqual([200, 'handled 5']);
    }
    const secured = await undiciRequest(secureUrl(), { dispatcher });
    expect(await secured.body.text()).toBe('secure 0 none none');
    expect(JSON.stringify(app.received)).not.toContain(token);
    await dispatcher.close();
  });

  test('’s undici ProxyAgent over TLS to the proxy', async () => {
    const uri = `https://localhost:${guarded.proxyPort}`;
    const dispatcher = new ProxyAgent({ uri, token, proxyTls: { ca: tls.requestTls.ca }, ...tls });
    const secured = await undiciRequest(secureUrl(), { dispatcher });
    expect(await secured.body.text()).toBe('secure 0 none none');
    await dispatcher.close();
  });

  test('’s undici ProxyAgent gets 407 for a wrong password', async () => {
    const dispatcher = new ProxyAgent({ uri: proxyUrl(''), token: toBasic('Aladdin', 'wrong').Authorization, ...tls });
    await expect(undiciRequest(secureUrl(), { dispatcher })).rejects.toThrow('407');
    await dispatcher.close();
  });

  test('’s https in a manually opened tunnel', async () => {
    const authority = `secure.example:${secure.port}`;
    const options = { host: '127.0.0.1', port: gate.proxyPort, headers: { 'Proxy-Authorization': token } };
    const tunnel = await new Promise<Socket>((resolve, reject) =>
      httpRequest({ ...options, method: 'CONNECT', path: authority })
        .on('connect', (_response, socket) => resolve(socket as Socket))
        .on('error', reject)
        .end(),
    );
    const inner = connectTls({ socket: tunnel, servername: 'secure.example', ca: readFileSync(ca) });
    inner.write('GET /x HTTP/1.1\r\nHost: secure.example\r\nConnection: close\r\n\r\n');
    let text = '';
    for await (const chunk of inner) text += String(chunk);
    expect(text).toMatch(/^HTTP\/1\.1 200 [^]*secure 0 none none/);
  });

  test('’s own agent for a proxy in the environment', async () => {
    const agent = new HttpsAgent({ proxyEnv: { HTTPS_PROXY: proxyUrl() }, ca: readFileSync(ca) });
    const text = await new Promise<string>((resolve, reject) =>
      httpsRequest(secureUrl(), { agent }, (incoming) => {
        void incoming.toArray().then((chunks) => resolve(Buffer.concat(chunks as Buffer[]).toString()));
      })
        .on('error', reject)
        .end(),
    );
    expect(text).toBe('secure 0 none none');
    agent.destroy();
  });

  test('’s ws in a tunnel', async () => {
    const tunnel = await openTunnel(gate.proxyPort, `secure.example:${secure.port}`);
    const socket = new WebSocket(secureUrl().replace('https:', 'wss:'), {
      createConnection: () => connectTls({ socket: tunnel, servername: 'secure.example', ca: readFileSync(ca) }),
    });
    await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
    socket.send('hello');
    expect(String(await new Promise((resolve) => socket.once('message', resolve)))).toBe('hello');
    const closed = new Promise((resolve) => socket.once('close', resolve));
    socket.close(1000);
    expect(await closed).toBe(1000);
  });
});

describe('git', () => {
  const clone = (proxy: string, to: string): Promise<Ended> =>
    run('git', ['-c', `http.proxy=${proxy}`, 'clone', '-q', `http://git.example:${git.port}/repo.git`, join(folder, to)], {
      GIT_TERMINAL_PROMPT: '0',
      GIT_CONFIG_GLOBAL: '/dev/null',
      GIT_CONFIG_NOSYSTEM: '1',
    });

  test('clones through it with the password, and fails with a wrong one', async () => {
    expect(await clone(proxyUrl(), 'copy')).toMatchObject({ code: 0 });
    const { code, stderr } = await clone(proxyUrl(WRONG), 'none');
    expect(code).toBe(128);
    expect(stderr).toMatch(/407|[Pp]roxy/);
  });
});
