/** Connections that one side stops reading, or never closes: each has a deadline, and gives back its slot and its buffers. */
import { once } from 'node:events';
import { connect as openHttp2 } from 'node:http2';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { afterEach, describe, expect, test } from 'vitest';
import { toStatuses } from '../support/client.ts';
import { useAuthority, useGate, useScriptApp } from '../support/fixtures.ts';
import { type Sections, type TestGate, until } from '../support/gate.ts';
import { PROXY_AUTH, startProxyGate } from '../support/proxy.ts';

const GRANTED = 'HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n';
const CHUNK = Buffer.alloc(64 * 1024, 'x');
/** More than the kernel buffers for a connection on loopback. */
const MORE_THAN_BUFFERED = 32 * 1024 * 1024;

/** The same in chunked coding. */
const PIECE = Buffer.concat([Buffer.from('10000\r\n'), CHUNK, Buffer.from('\r\n')]);

/** Writes as fast as the other side reads. */
function flood(socket: Socket, chunk = CHUNK): void {
  while (socket.writable && socket.write(chunk));
  if (socket.writable) socket.once('drain', () => flood(socket, chunk));
}

const SHARES = 'sidegate_limit_hits_total{limit="buffer_share"}';
const STALLS = 'sidegate_limit_hits_total{limit="send_stall"}';
const open = new Set<Socket>();
/** What the app does with a connection once a request has arrived on it, by its path. */
const APPS: Readonly<Record<string, (socket: Socket) => unknown>> = {
  /** Sends without end, and reads what it gets. */
  flood: (socket) => flood(socket.resume()),
  /** The same as the body of a response. */
  body: (socket) => flood(socket.resume(), PIECE),
  /** Says something every 100 ms, and reads nothing. */
  deaf: (socket) => {
    socket.pause();
    const timer = setInterval(() => socket.write('.'), 100);
    socket.on('close', () => clearInterval(timer));
  },
  /** Reads nothing, and says nothing, so that it does not notice its end. */
  still: (socket) => open.delete(socket.pause()),
  /** Sends more than the client takes, and ends. */
  ending: (socket) => socket.resume().end(Buffer.alloc(MORE_THAN_BUFFERED)),
  /** Ends at once. */
  leaving: (socket) => socket.resume().end(),
};
const app = useScriptApp((socket) => {
  open.add(socket);
  socket.on('close', () => open.delete(socket));
  socket.on('error', () => undefined);
  socket.once('data', (head: Buffer) => {
    const [, method = '', path = ''] = /^(GET|POST) (\S+) /.exec(head.toString('latin1')) ?? [];
    if (method !== 'POST') socket.write(path === '/body' ? 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n' : GRANTED);
    APPS[path.slice(1)]?.(socket);
  });
});

/** A gate whose clients may be idle for so long, and need so long to read. */
function startWith(
  idleTimeout: string,
  sendTimeout: string,
  { limits, ...over }: { readonly limits?: Sections; readonly listen?: Sections } = {},
): Promise<TestGate> {
  const upstream = `http://127.0.0.1:${app.port}`;
  return startProxyGate({
    allow: [`app.example:${app.port}`],
    names: { 'app.example': ['127.0.0.1'] },
    proxy: { idleTimeout },
    sections: {
      limits: { sendTimeout, keepAliveTimeout: '1s', ...limits },
      routes: [{ name: 'open', match: { pathPrefix: '/' }, upstream, allow: 'anyone', idleTimeout }],
      ...over,
    },
  });
}

const KINDS = {
  'an upgraded connection': (gate: TestGate, behavior: string) => {
    const socket = connect({ port: gate.port, host: '127.0.0.1', allowHalfOpen: true });
    socket.write(`GET /${behavior} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`);
    return socket;
  },
  'a CONNECT tunnel': (gate: TestGate, behavior: string) => {
    const socket = connect({ port: gate.proxyPort, host: '127.0.0.1', allowHalfOpen: true });
    socket.write(`CONNECT app.example:${app.port} HTTP/1.1\r\nHost: app.example\r\n${PROXY_AUTH}\r\n`);
    socket.write(`GET /${behavior} HTTP/1.1\r\n\r\n`);
    return socket;
  },
};

const clients: Socket[] = [];
afterEach(() => {
  for (const client of clients.splice(0)) client.destroy();
  for (const socket of open) socket.destroy();
});

/** A client that reads nothing, and survives the end of its connection. */
function openDeaf(kind: keyof typeof KINDS, gate: TestGate, behavior: string): Socket {
  const socket = KINDS[kind](gate, behavior);
  socket.on('error', () => socket.destroy());
  socket.pause();
  clients.push(socket);
  return socket;
}

/** Nothing is left of any connection, neither in the gate nor at the app. */
async function expectAllClosed(gate: TestGate): Promise<void> {
  await until(() => open.size === 0);
  await until(async () => (await gate.metric('sidegate_connections')) === 0);
}

describe.each(Object.keys(KINDS) as (keyof typeof KINDS)[])('%s', (kind) => {
  describe('with an idleTimeout of 1 s', () => {
    const gate = useGate(() => startWith('1s', '60s'));

    test('is closed if its client never reads what the app sends', async () => {
      for (let i = 0; i < 20; i++) openDeaf(kind, gate, 'flood');
      await until(() => open.size === 20);
      await expectAllClosed(gate);
    });

    test('is closed if the app never reads what the client sends, although it keeps sending', async () => {
      const client = openDeaf(kind, gate, 'deaf').resume();
      flood(client);
      await until(() => open.size === 1);
      await expectAllClosed(gate);
    });

    test('is closed if the app has ended it, although its client never ends its side', async () => {
      openDeaf(kind, gate, 'leaving');
      await until(async () => (await gate.metric('sidegate_connections')) === 1);
      await expectAllClosed(gate);
    });

    test('is closed if neither side reads', async () => {
      flood(openDeaf(kind, gate, 'still'));
      await until(async () => (await gate.metric('sidegate_connections')) === 1);
      await expectAllClosed(gate);
    });
  });

  describe('with a sendTimeout of 1 s', () => {
    const gate = useGate(() => startWith('60s', '1s'));

    test('is closed if its client never reads, although it keeps sending', async () => {
      const client = openDeaf(kind, gate, 'flood');
      const before = await gate.metric(STALLS);
      const timer = setInterval(() => client.write('.'), 50);
      client.on('close', () => clearInterval(timer));
      await until(() => open.size === 1);
      await expectAllClosed(gate);
      clearInterval(timer);
      expect(await gate.metric(STALLS)).toBe(before + 1);
    });

    test('is closed if its client ends its side and then disconnects while the app sends', async () => {
      const client = openDeaf(kind, gate, 'flood');
      await until(() => open.size === 1);
      client.end();
      client.once('data', () => client.resetAndDestroy());
      await expectAllClosed(gate);
    });

    test('is closed if the app has ended it, although its client takes nothing of what the app sent', async () => {
      openDeaf(kind, gate, 'ending');
      await until(() => open.size === 1);
      await expectAllClosed(gate);
    });

    test('delivers all that the app sent before it ended, to a client that reads', async () => {
      const client = openDeaf(kind, gate, 'ending');
      let received = 0;
      client.on('data', (chunk: Buffer) => (received += chunk.length));
      client.resume();
      await new Promise((resolve) => client.once('end', resolve));
      client.end();
      expect(received).toBeGreaterThan(MORE_THAN_BUFFERED);
      await expectAllClosed(gate);
    });
  });
});

describe('upgraded connections', () => {
  const gate = useGate(() => startWith('60s', '60s', { limits: { maxUpgraded: 16, maxUpgradedPerClient: 8 } }));
  const upgradeFrom = (localAddress: string): Promise<number | undefined> => {
    const socket = connect({ port: gate.port, host: '127.0.0.1', localAddress });
    clients.push(socket);
    socket.write('GET /still HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
    return new Promise((resolve) => socket.once('data', (text) => resolve(toStatuses(String(text))[0])));
  };

  test('of two clients leave slots for others', async () => {
    for (const address of ['127.0.0.66', '127.0.0.67']) for (let i = 0; i < 16; i++) await upgradeFrom(address);
    expect([await upgradeFrom('127.0.0.68'), await upgradeFrom('127.0.0.69')]).toEqual([101, 101]);
  });
});

describe('with little memory', () => {
  const gate = useGate(() => startWith('60s', '60s', { limits: { maxBufferedBytes: '1Mi' } }));
  const openFrom = async (localAddress: string, head: string): Promise<Socket> => {
    const socket = connect({ port: gate.port, host: '127.0.0.1', localAddress });
    socket.on('error', () => socket.destroy());
    clients.push(socket);
    await once(socket, 'connect');
    socket.write(`${head} HTTP/1.1\r\nHost: a\r\n`);
    return socket;
  };
  const UPGRADE = 'Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n';

  test.each(['flood', 'body'])('the client that holds most loses what it does not read, and no other does (%s)', async (path) => {
    const slow = await openFrom('127.0.0.66', `GET /${path}`);
    slow.pause().write(UPGRADE);
    await until(() => open.size === 1);
    const [kept] = open;
    const before = await gate.metric(SHARES);
    for (let i = 0; i < 20; i++) (await openFrom('127.0.0.67', `GET /${path}`)).pause().write(UPGRADE);
    await until(async () => (await gate.metric(SHARES)) >= before + 15);
    await until(() => open.size <= 6);
    expect([kept !== undefined && open.has(kept), open.size > 1]).toEqual([true, true]);
  });

  test('uploads that the app does not read get 503, except as many as fit', async () => {
    const statuses: (number | undefined)[] = [];
    for (let i = 0; i < 20; i++) {
      const socket = await openFrom('127.0.0.66', 'POST /still');
      socket.write('Content-Length: 1000000000\r\n\r\n');
      socket.once('data', (text) => statuses.push(toStatuses(String(text))[0]));
      flood(socket);
    }
    await until(() => statuses.length >= 14);
    expect(new Set(statuses)).toEqual(new Set([503]));
  });
});

describe('a response', () => {
  const gate = useGate(() => startWith('60s', '1s'));

  test('that its client never reads is cut off, and its buffers are returned', async () => {
    for (let i = 0; i < 20; i++) {
      const client = connect(gate.port, '127.0.0.1');
      client.on('error', () => client.destroy());
      client.pause();
      clients.push(client);
      client.write('GET /body HTTP/1.1\r\nHost: a\r\n\r\n');
    }
    await until(() => open.size === 20);
    await expectAllClosed(gate);
  });
});

describe('an HTTP/2 connection', () => {
  const { cert: certFile, key: keyFile } = useAuthority().issue('local', 'DNS:localhost,IP:127.0.0.1');
  const gate = useGate(() => startWith('60s', '1s', { listen: { address: '127.0.0.1:0', tls: { certFile, keyFile } } }));
  const openRaw = (): Promise<Socket> =>
    new Promise((resolve) => {
      // Half-open, or it would answer the end of the gate's side with its own.
      const transport = connect({ port: gate.port, host: '127.0.0.1', allowHalfOpen: true });
      transport.on('error', () => transport.destroy());
      clients.push(transport);
      const socket = connectTls({ socket: transport, rejectUnauthorized: false, ALPNProtocols: ['h2'] });
      socket.on('error', () => socket.destroy());
      clients.push(socket);
      socket.once('secureConnect', () => resolve(socket));
    });

  test('that was idle for too long is closed, although its client ignores that', async () => {
    const socket = await openRaw();
    socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');
    socket.write(Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]));
    socket.pause();
    await expectAllClosed(gate);
  });

  test('whose client never opens its window loses its streams, and their buffers are returned', async () => {
    const session = openHttp2(`https://127.0.0.1:${gate.port}`, { rejectUnauthorized: false });
    session.on('error', () => undefined);
    const closed = Array.from({ length: 5 }, () => {
      const stream = session.request({ ':path': '/body' });
      stream.on('error', () => undefined).pause();
      return new Promise((resolve) => stream.once('close', resolve));
    });
    await until(() => open.size === 5);
    await Promise.all(closed);
    session.destroy();
    await expectAllClosed(gate);
  });
});
