import { readFileSync } from 'node:fs';
import { request as openHttps } from 'node:https';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { afterEach, describe, expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp, useAuthority, useGate, useScriptApp } from '../support/fixtures.ts';
import { toRoute, until } from '../support/gate.ts';
import { PROXY_AUTH, readToEnd, startProxyGate } from '../support/proxy.ts';
import { createRandom, mutate, randomBytes } from '../support/seeded.ts';

const SEED = 20_261_122;
const HEAD_END = '\r\n\r\n';
const GRANTED = `HTTP/1.1 101 X\r\nUpgrade: websocket${HEAD_END}`;
const EARLY = 'early';
const UPGRADE = `GET /open/ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket${HEAD_END}${EARLY}`;

/** What the hostile app does with a connection. */
let script: (socket: Socket) => void = (socket) => socket.end();

const authority = useAuthority();
const { cert: certFile, key: keyFile } = authority.issue('local', 'DNS:localhost,IP:127.0.0.1');
const app = useApp();
const hostile = useScriptApp((socket) => script(socket));

/** The app sends these bytes once it has the request, and then ends or resets its connection. */
function respond(bytes: Buffer | string, end: 'end' | 'reset' = 'end'): void {
  script = (socket) => {
    socket.once('data', () => {
      if (end === 'end') socket.end(bytes, 'latin1');
      else socket.write(bytes, 'latin1', () => socket.resetAndDestroy());
    });
  };
}

/** What a client does once its bytes are written; `bare` is the socket below TLS. */
type Finish = (socket: Socket, bare: Socket) => unknown;

/** Everything a client gets for these bytes until the connection closes. */
function exchange(port: number, isTls: boolean, bytes: Buffer | string, finish?: Finish): Promise<string> {
  const bare = connect(port, '127.0.0.1');
  bare.on('error', () => undefined);
  const socket = isTls ? connectTls({ socket: bare, rejectUnauthorized: false }) : bare;
  socket.on('error', () => undefined);
  const onWritten = (): unknown => finish?.(socket, bare);
  if (typeof bytes === 'string') socket.write(bytes, 'latin1', onWritten);
  else socket.write(bytes, onWritten);
  return readToEnd(socket);
}

const toStatus = (text: string): number => Number(/^HTTP\/1\.1 (\d{3}) /.exec(text)?.[1] ?? 0);
const toContent = (text: string): string => text.slice(text.indexOf(HEAD_END) + HEAD_END.length);

describe.each([
  ['clear text', false],
  ['TLS', true],
])('in %s', (_, isTls) => {
  const gate = useGate(() => {
    const tls = isTls ? { tls: { certFile, keyFile } } : {};
    const upstream = `http://127.0.0.1:${hostile.port}`;
    return startProxyGate({
      allow: [`app.example:${hostile.port}`],
      names: { 'app.example': ['127.0.0.1'] },
      proxy: tls,
      sections: {
        listen: { address: '127.0.0.1:0', ...tls },
        routes: [{ name: 'open', match: { pathPrefix: '/open' }, upstream, allow: 'anyone' }, toRoute(app.port)],
      },
    });
  });
  afterEach(async () => {
    expect(await deliver()).toBe(200);
    const metrics = await gate.metrics();
    for (const scope of ['guarded', 'process'])
      expect(metrics).toContain(`\nsidegate_escaped_errors_total{scope="${scope}"} 0\n`);
    await until(async () => (await gate.metric('sidegate_connections')) === 0);
  });

  /** A valid delivery's status. */
  function deliver(): Promise<number> {
    const { headers, body } = makeDelivery();
    if (!isTls) return send(gate.port, { headers, body }).then(({ status }) => status);
    const options = { port: gate.port, host: '127.0.0.1', method: 'POST', path: '/hooks/billing', headers, agent: false };
    return new Promise((resolve, reject) => {
      const outgoing = openHttps({ ...options, ca: readFileSync(authority.ca) }, (incoming) => {
        incoming.resume();
        incoming.on('end', () => resolve(incoming.statusCode ?? 0));
      });
      outgoing.on('error', reject);
      outgoing.end(body);
    });
  }

  const upgrade = (finish?: Finish): Promise<string> => exchange(gate.port, isTls, UPGRADE, finish);
  const toConnect = (): string => `CONNECT app.example:${hostile.port} HTTP/1.1\r\nHost: app.example\r\n${PROXY_AUTH}\r\n`;
  const tunnel = (bytes: string, finish?: Finish): Promise<string> =>
    exchange(gate.proxyPort, isTls, toConnect() + bytes, finish);

  describe('an upgrade that a client requested', () => {
    const HUGE = 'x'.repeat(15_000);
    const withFields = (fields: string): string => `HTTP/1.1 101 Switching Protocols\r\n${fields}\r\n`;

    test.each([
      ['no protocol', withFields('Connection: Upgrade\r\n')],
      ['an empty protocol', withFields('Connection: Upgrade\r\nUpgrade:\r\n')],
      ['another protocol', withFields('Connection: Upgrade\r\nUpgrade: h2c\r\n')],
      ['two protocols in one field', withFields('Upgrade: websocket, h2c\r\n')],
      ['the protocol twice', withFields('Upgrade: websocket\r\nUpgrade: websocket\r\n')],
      ['a control byte', withFields('Upgrade: websocket\r\nX: a\0b\r\n')],
      ['a bare CR', withFields('Upgrade: websocket\r\nX: a\rY: b\r\n')],
      ['a bare LF', withFields('Upgrade: websocket\r\nX: a\nY: b\r\n')],
      ['a folded line', withFields('Upgrade: websocket\r\nX: a\r\n b\r\n')],
      ['a name with a space', withFields('Upgrade: websocket\r\nX Y: a\r\n')],
      ['two lengths', withFields('Upgrade: websocket\r\nContent-Length: 1\r\nContent-Length: 2\r\n')],
      ['a length and chunks', withFields('Upgrade: websocket\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n')],
      ['huge fields', withFields(`Upgrade: websocket\r\n${`X: ${HUGE}\r\n`.repeat(5)}`)],
      ['fields without end', `HTTP/1.1 101 X\r\n${`X: ${HUGE}\r\n`.repeat(100)}`],
      ['10,000 hints before it', `HTTP/1.1 102 X${HEAD_END}`.repeat(10_000) + GRANTED],
      ['bytes that are not HTTP', '\0\x01\x02\xff'.repeat(1_000)],
      ['half a head', GRANTED.slice(0, -2)],
      ['nothing', ''],
    ])('is rejected with 502 if the app sends %s', async (_title, bytes) => {
      respond(bytes);
      expect(toStatus(await upgrade())).toBe(502);
    });

    test.each([
      ['a length', 'Content-Length: 5\r\n'],
      ['chunks', 'Transfer-Encoding: chunked\r\n'],
      ['a trailer', 'Trailer: X\r\nKeep-Alive: timeout=5\r\n'],
    ])('is granted without %s, which a 101 must not have', async (_title, fields) => {
      respond(`${withFields(`Connection: Upgrade\r\nUpgrade: websocket\r\n${fields}`)}frames`);
      const text = await upgrade();
      expect(text).toMatch(/^HTTP\/1\.1 101 [^]*\r\n\r\nframes$/);
      expect(text).not.toMatch(/\r\n(?:Content-Length|Transfer-Encoding|Trailer|Keep-Alive):/i);
    });

    test.each([
      ['a second 101', GRANTED],
      ['a whole response', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'],
      ['a megabyte of random bytes', randomBytes(createRandom(SEED), 1_000_000).toString('latin1')],
    ])('gets every byte after the 101 unchanged if the app sends %s', async (_title, bytes) => {
      respond(GRANTED + bytes);
      const text = await upgrade();
      expect(toStatus(text)).toBe(101);
      expect(toContent(text) === bytes).toBe(true);
    });

    test('ends with the response if the app sends a 101 after another one', async () => {
      respond(`HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n${GRANTED}frames`);
      const text = await upgrade();
      expect(toStatus(text)).toBe(200);
      expect(toContent(text)).toBe('');
    });

    test.each(['end', 'reset'] as const)('survives an app whose connection has its %s at every byte', async (end) => {
      const bytes = `HTTP/1.1 103 X\r\nLink: </a>${HEAD_END}${GRANTED}frames`;
      const head = bytes.length - 'frames'.length;
      for (let length = 0; length <= bytes.length; length++) {
        respond(bytes.slice(0, length), end);
        const text = (await upgrade()).replace(/^HTTP\/1\.1 103 [^]*?\r\n\r\n/, '');
        if (length < head) expect(toStatus(text)).toBe(502);
        else if (end === 'end') expect(toContent(text)).toBe(bytes.slice(head, length));
        // A reset may overtake what was sent before it.
        else expect([0, 101]).toContain(toStatus(text));
      }
    });

    test('survives a client that disconnects at every byte of its frames while the app floods', async () => {
      const flood = Buffer.alloc(1_000_000);
      script = (socket) => {
        socket.once('data', () => {
          socket.write(GRANTED);
          socket.write(flood, () => socket.end());
        });
        socket.resume();
      };
      for (const leave of [(socket: Socket) => socket.destroy(), (socket: Socket) => socket.resetAndDestroy()])
        await Promise.all(
          Array.from({ length: 20 }, (_item, length) =>
            upgrade((socket, bare) => {
              socket.write('f'.repeat(length));
              socket.once('data', () => leave(bare));
            }),
          ),
        );
    });

    test('survives an app and a client that reset at once', async () => {
      for (let round = 0; round < 20; round++) {
        let client: Socket | undefined;
        script = (socket) => {
          socket.once('data', () => {
            socket.write(GRANTED, () => {
              socket.resetAndDestroy();
              client?.destroy();
            });
          });
        };
        await upgrade((socket) => {
          client = socket;
        });
      }
    });

    test('survives random bytes from both sides', async () => {
      const random = createRandom(SEED);
      for (let round = 0; round < 100; round++) {
        respond(mutate(random, Buffer.from(`${GRANTED}frames`), 4), random(2) === 0 ? 'end' : 'reset');
        await exchange(gate.port, isTls, mutate(random, Buffer.from(UPGRADE), 2), (socket) => socket.end());
      }
    });
  });

  describe('a CONNECT tunnel', () => {
    const RESPONSE = `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked${HEAD_END}2\r\nok\r\n0\r\n\r\n`;

    test.each(['end', 'reset'] as const)('survives an app whose connection has its %s at every byte', async (end) => {
      for (let length = 0; length <= RESPONSE.length; length++) {
        respond(RESPONSE.slice(0, length), end);
        const text = await tunnel('GET / HTTP/1.1\r\nHost: app.example\r\n\r\n');
        if (end === 'end') expect(toContent(text)).toBe(RESPONSE.slice(0, length));
        else expect(RESPONSE.startsWith(text === '' ? '' : toContent(text))).toBe(true);
      }
    });

    test.each([
      ['ends', (socket: Socket) => socket.end()],
      ['resets', (socket: Socket) => socket.resetAndDestroy()],
      ['speaks and resets', (socket: Socket) => socket.write('220 hello', () => socket.resetAndDestroy())],
      ['does not read and resets', (socket: Socket) => socket.pause().write('220 hello', () => socket.resetAndDestroy())],
    ])('survives an app that %s before the client sends anything', async (_title, act) => {
      script = act;
      for (let round = 0; round < 10; round++)
        expect([0, 200, 502]).toContain(toStatus(await tunnel('x'.repeat(round * 10_000))));
    });

    test('passes random bytes on unchanged', async () => {
      const random = createRandom(SEED);
      for (let round = 0; round < 20; round++) {
        const bytes = randomBytes(random, random(100_000));
        respond(bytes);
        expect(toContent(await tunnel('x')) === bytes.toString('latin1')).toBe(true);
      }
    });

    test('survives a client that disconnects while the app floods', async () => {
      const flood = Buffer.alloc(1_000_000);
      script = (socket) => {
        socket.write(flood, () => socket.end());
        socket.resume();
      };
      for (const leave of [(socket: Socket) => socket.destroy(), (socket: Socket) => socket.resetAndDestroy()])
        await Promise.all(
          Array.from({ length: 20 }, (_item, length) =>
            tunnel('x'.repeat(length), (socket, bare) => socket.once('data', () => leave(bare))),
          ),
        );
    });

    test('survives random bytes after the CONNECT, and a mutated CONNECT', async () => {
      const random = createRandom(SEED);
      for (let round = 0; round < 100; round++) {
        respond(randomBytes(random, random(200)), random(2) === 0 ? 'end' : 'reset');
        const bytes = Buffer.concat([mutate(random, Buffer.from(toConnect()), 2), randomBytes(random, random(200))]);
        await exchange(gate.proxyPort, isTls, bytes, (socket) => socket.end());
      }
    });
  });
});
