import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { Agent, request as undiciRequest } from 'undici';
import { beforeEach, describe, expect, test } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { makeAuthority } from '../support/certificates.ts';
import { useApp, useFolder, useGate, useGitApp, useServer } from '../support/fixtures.ts';
import { startGate, until } from '../support/gate.ts';
import { type Ended, PYTHON, run, runPython } from '../support/run.ts';
import { makeEntry, toBasic } from '../support/users.ts';

const folder = useFolder();
const UPLOAD = join(folder, 'upload');
const UPLOAD_BYTES = 3_000_000;
writeFileSync(UPLOAD, Buffer.alloc(UPLOAD_BYTES, 'x'));

const authority = makeAuthority(folder, 'ca');
const { ca } = authority;
const { cert, key } = authority.issue('server', 'DNS:localhost,IP:127.0.0.1');
const app = useApp();
const git = useGitApp();
const server = createServer((_request, response) => {
  response.writeHead(200, { 'Content-Type': 'text/event-stream' });
  response.write('data: 1\n\n');
});
new WebSocketServer({ server }).on('connection', (socket, request) => {
  socket.send(String(request.headers['sidegate-user']));
  socket.on('message', (data) => socket.send(data, { binary: false }));
});
const live = useServer(server);
const gate = useGate(() => {
  const basic = { realm: 'admin', users: { file: 'users' } };
  const toRoute = (name: string, port: number, pathPrefix: string, more = {}) => ({
    name,
    match: { pathPrefix },
    upstream: `http://127.0.0.1:${port}`,
    basic: { ...basic, ...more },
  });
  return startGate(
    {
      listen: { address: '127.0.0.1:0', tls: { certFile: cert, keyFile: key } },
      routes: [
        toRoute('git', git.port, '/repo.git'),
        toRoute('live', live.port, '/live'),
        toRoute('old', app.port, '/old', { latin1: true }),
        toRoute('admin', app.port, '/'),
      ],
    },
    undefined,
    { users: [makeEntry('Aladdin', 'open sesame'), makeEntry('test', '123£')].join('\n') },
  );
});
beforeEach(() => {
  app.handler = ({ body }, response) => response.end(`handled ${body.length}`);
});

const url = (path = '/x', user = ''): string => `https://${user}localhost:${gate.port}${path}`;

describe('curl', () => {
  const curl = async (...args: readonly string[]): Promise<string> =>
    (await run('curl', ['-sS', '-w', ' %{http_code}', '--cacert', ca, ...args])).stdout;
  const USER = ['-u', 'Aladdin:open sesame'] as const;

  test('chooses Basic after the challenge', async () => {
    expect(await curl('--anyauth', ...USER, url())).toBe('handled 0 200');
    expect(app.received).toHaveLength(1);
  });

  test('sends the password from the URL, also for HEAD', async () => {
    expect(await curl(url('/x', 'Aladdin:open%20sesame@'))).toBe('handled 0 200');
    expect(await curl('-I', ...USER, url())).toMatch(/^HTTP\/2 200 /);
    expect(await curl('-I', '--http1.1', ...USER, url())).toMatch(/^HTTP\/1\.1 200 /);
  });

  test.each([
    ['at once', ['--basic']],
    ['after it was asked for it, which takes the content twice', ['--anyauth']],
    ['in chunks', ['-H', 'Transfer-Encoding: chunked']],
    ['without waiting for 100', ['-H', 'Expect:']],
  ])('uploads with the password %s', async (_, args) => {
    // By HTTP/2, curl 7.88 waits forever for leave to send what was refused, whoever refused it.
    for (const version of args.includes('--anyauth') ? ['--http1.1'] : ['--http1.1', '--http2']) {
      app.received.length = 0;
      expect(await curl(version, ...args, ...USER, '-T', UPLOAD, url('/put'))).toBe(`handled ${UPLOAD_BYTES} 200`);
      expect(app.received).toHaveLength(1);
    }
  });

  test('gets 401 for a wrong password during an upload, without its body being read', async () => {
    expect(await curl('-u', 'Aladdin:wrong', '-T', UPLOAD, url('/put'))).toMatch(/"code":"credentials_required".* 401$/);
    expect(app.received).toHaveLength(0);
  });

  test('works with HTTP/1.0', async () => {
    expect(await curl('-0', ...USER, url())).toBe('handled 0 200');
    expect(await curl('-0', ...USER, '--data-binary', 'hello', url())).toBe('handled 5 200');
  });

  test('receives events immediately', async () => {
    // It ends by its own time limit, having written what came until then.
    const { code, stdout } = await run('curl', ['-sS', '-N', '-m', '1', '--cacert', ca, ...USER, url('/live')]);
    expect([code, stdout]).toEqual([28, 'data: 1\n\n']);
  });
});

describe('wget', () => {
  const wget = (...args: readonly string[]): Promise<Ended> =>
    run('wget', ['-q', '-t', '1', '-O', '-', `--ca-certificate=${ca}`, ...args]);

  test('answers the challenge', async () => {
    expect(await wget('--user=Aladdin', '--password=open sesame', url())).toMatchObject({ code: 0, stdout: 'handled 0' });
  });

  test('reports a wrong password', async () => {
    // 6: "Username/password authentication failure".
    expect(await wget('--user=Aladdin', '--password=wrong', url())).toMatchObject({ code: 6, stdout: '' });
    expect(await wget(url())).toMatchObject({ code: 6, stdout: '' });
  });
});

describe('Python', () => {
  const URLLIB = `
import ssl, sys, urllib.error, urllib.request as r
target, ca, password = sys.argv[1:4]
passwords = r.HTTPPasswordMgrWithDefaultRealm()
if password: passwords.add_password(None, target, 'Aladdin', password)
context = ssl.create_default_context(cafile=ca)
opener = r.build_opener(r.HTTPSHandler(context=context), r.HTTPBasicAuthHandler(passwords))
try: print(opener.open(target).read().decode())
except urllib.error.HTTPError as e: print(e.code, e.headers['WWW-Authenticate'])`;

  test.each([
    ['with the password', 'open sesame', 'handled 0'],
    ['with a wrong one', 'wrong', '401 Basic realm="admin", charset="UTF-8"'],
    ['without one', '', '401 Basic realm="admin", charset="UTF-8"'],
  ])('’s urllib, %s', async (_, password, expected) => {
    expect(await runPython(URLLIB, url(), ca, password)).toBe(expected);
  });

  const REQUESTS = `
import sys, requests
target, ca = sys.argv[1:3]
s = requests.Session()
s.verify = ca
s.trust_env = False
def show(**more): print(s.request(more.pop('method', 'GET'), more.pop('url', target), **more).status_code, end=' ')
show(auth=('Aladdin', 'open sesame'))
show(auth=('Aladdin', 'wrong'))
show()
show(method='PUT', auth=('Aladdin', 'open sesame'), data=iter([b'a', b'b' * 100000]))
show(auth=('test', '123\\u00a3'.encode()))
show(auth=('test', '123\\u00a3'))
show(url=target.replace('/x', '/old'), auth=('test', '123\\u00a3'))`;

  test.skipIf(PYTHON === undefined)('’s requests, which encodes text as Latin-1, with the option for it', async () => {
    expect(await runPython(REQUESTS, url(), ca)).toBe('200 401 401 200 200 401 200');
    expect(app.received.map(({ body }) => body.length)).toEqual([0, 100_001, 0, 0]);
  });
});

describe('Node', () => {
  const AUTH = toBasic('Aladdin', 'open sesame');

  test('’s https, with a user in the URL', async () => {
    const status = await new Promise((resolve, reject) =>
      httpsRequest(url('/x', 'Aladdin:open%20sesame@'), { ca: readFileSync(ca), agent: false }, (incoming) => {
        incoming.resume();
        resolve(incoming.statusCode);
      })
        .on('error', reject)
        .end(),
    );
    expect(status).toBe(200);
  });

  test('’s undici, with a streamed body, on one connection', async () => {
    const dispatcher = new Agent({ connect: { ca: readFileSync(ca) }, connections: 1 });
    const before = gate.log().length;
    for (let i = 0; i < 3; i++) {
      const body = Readable.from(['a', 'b'.repeat(100_000)]);
      const answer = await undiciRequest(url('/put'), { method: 'PUT', headers: AUTH, body, dispatcher });
      expect([answer.statusCode, await answer.body.text()]).toEqual([200, 'handled 100001']);
    }
    const wrong = await undiciRequest(url(), { headers: toBasic('Aladdin', 'wrong'), dispatcher });
    expect(wrong.statusCode).toBe(401);
    await wrong.body.dump();
    await dispatcher.close();
    expect(gate.log().length - before).toBe(4);
  });

  test('’s ws reaches the app over TLS with the password', async () => {
    const target = url('/live/socket').replace('https:', 'wss:');
    const refused = new WebSocket(target, { ca: readFileSync(ca) });
    expect(String(await new Promise((resolve) => refused.once('error', resolve)))).toContain('401');
    const socket = new WebSocket(target, { ca: readFileSync(ca), headers: AUTH });
    const messages: string[] = [];
    socket.on('message', (data) => messages.push(String(data)));
    await new Promise((resolve) => socket.once('open', resolve));
    socket.send('hello');
    await until(() => messages.length === 2);
    expect(messages).toEqual(['Aladdin', 'hello']);
    const closed = new Promise((resolve) => socket.once('close', resolve));
    socket.close(1000);
    expect(await closed).toBe(1000);
  });
});

describe('git', () => {
  const runGit = (...args: readonly string[]): Promise<Ended> =>
    run(
      'git',
      ['-c', `http.sslCAInfo=${ca}`, '-c', 'user.name=a', '-c', 'user.email=a@b', '-c', 'init.defaultBranch=main', ...args],
      {
        GIT_TERMINAL_PROMPT: '0',
        GIT_CONFIG_GLOBAL: '/dev/null',
        GIT_CONFIG_NOSYSTEM: '1',
      },
    );

  test('pushes, clones and fetches through a route with passwords', async () => {
    const work = join(folder, 'work');
    const remote = url('/repo.git', 'Aladdin:open%20sesame@');
    await runGit('init', '-q', work);
    // Above http.postBuffer git sends chunks, and asks first by 100-continue or by an empty POST.
    writeFileSync(
      join(work, 'file'),
      Buffer.from(Array.from({ length: 2_000_000 }, (_, i) => ((i * 7919) % 251) ^ ((i >> 8) & 255))),
    );
    await runGit('-C', work, 'add', 'file');
    await runGit('-C', work, 'commit', '-q', '-m', 'one');
    // Over HTTP/2 git with libcurl 7.88 waits forever if the response begins before its upload has ended, as git's server does.
    const settings = ['-c', 'http.postBuffer=65536', '-c', 'http.version=HTTP/1.1'];
    expect(await runGit('-C', work, ...settings, 'push', '-q', remote, 'HEAD:main')).toMatchObject({ code: 0 });
    expect([...git.users]).toEqual(['Aladdin']);
    expect(await runGit('clone', '-q', '-b', 'main', remote, join(folder, 'copy'))).toMatchObject({ code: 0 });
    expect(readFileSync(join(folder, 'copy', 'file')).equals(readFileSync(join(work, 'file')))).toBe(true);
    expect(await runGit('-C', join(folder, 'copy'), 'fetch', '-q')).toMatchObject({ code: 0 });
  }, 60_000);

  test('fails with a wrong password', async () => {
    const { code, stderr } = await runGit('clone', url('/repo.git', 'Aladdin:wrong@'), join(folder, 'none'));
    expect(code).toBe(128);
    expect(stderr).toContain('Authentication failed');
  });
});
