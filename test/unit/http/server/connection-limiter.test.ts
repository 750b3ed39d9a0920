import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { afterEach, describe, expect, test } from 'vitest';
import {
  type ConnectionLimit,
  type ConnectionLimiterOptions,
  KEPT_WHILE_TIGHT,
  limitConnections,
} from '../../../../src/http/server/connection-limiter.ts';
import { makeAuthority } from '../../../support/certificates.ts';
import { useFolder } from '../../../support/fixtures.ts';
import { until } from '../../../support/gate.ts';

const MOST = 4;
const folder = useFolder();
const clients: Socket[] = [];
let server: Server | undefined;
afterEach(() => {
  for (const client of clients.splice(0)) client.destroy();
  server?.closeAllConnections();
  server?.close();
});

/** Paths whose response waits until the test sends it. The port takes it for one that is not read, or the body for incomplete. */
const HELD = ['/hold', '/unread', '/upload'];

async function start(
  isTls: boolean,
  { toUploadClient, ...over }: Partial<ConnectionLimiterOptions> & { toUploadClient?: () => string | undefined } = {},
) {
  const held: (() => void)[] = [];
  const answer = (request: { url?: string | undefined }, response: { end: (text: string) => void }): void => {
    if (HELD.includes(request.url ?? '')) held.push(() => response.end('held'));
    else response.end('ok');
  };
  const pair = isTls ? makeAuthority(folder, 'root').issue('server', 'IP:127.0.0.1') : undefined;
  const made =
    pair === undefined
      ? createServer(answer)
      : (createTlsServer({ cert: readFileSync(pair.cert), key: readFileSync(pair.key) }, answer) as unknown as Server);
  server = made;
  const limiter = limitConnections(made, {
    maxConnections: MOST,
    maxPerClient: MOST,
    toClient: ({ remoteAddress }) => remoteAddress,
    onLimit: () => undefined,
    isTight: () => false,
    keptWhileTight: KEPT_WHILE_TIGHT,
    onFirstRequest: () => undefined,
    onClosed: () => undefined,
    ...over,
  });
  made.on('request', ({ socket, url }, response) => {
    const upload = { declaredLength: undefined, isComplete: url !== '/upload' };
    const tracked = { writableEnded: url === '/unread', destroy: () => response.destroy() };
    limiter.track(socket, upload, tracked, response).client = toUploadClient?.();
  });
  await new Promise<void>((done) => void made.listen(0, '127.0.0.1', () => done()));
  const { port } = made.address() as AddressInfo;
  const dial = async (localAddress = '127.0.0.1') => {
    const options = { port, host: '127.0.0.1', localAddress };
    const socket = isTls ? connectTls({ ...options, rejectUnauthorized: false }) : connect(options);
    clients.push(socket);
    let text = '';
    const state = { isClosed: false };
    socket.on('data', (chunk) => {
      text += String(chunk);
    });
    socket.on('error', () => undefined);
    socket.once('close', () => {
      state.isClosed = true;
    });
    await new Promise<void>((done) => {
      socket.once(isTls ? 'secureConnect' : 'connect', () => done());
      socket.once('close', () => done());
    });
    const ask = async (path: string, wanted = 'ok'): Promise<void> => {
      socket.write(`GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`);
      if (!HELD.includes(path)) await until(() => text.endsWith(wanted));
    };
    return { ask, isClosed: () => state.isClosed, text: () => text };
  };
  return { dial, held };
}

describe.each([
  ['plain', false],
  ['TLS', true],
])('a %s port with all its connections in use', (_, isTls) => {
  test('accepts a new connection, and closes the one that has been idle longest', async () => {
    const { dial } = await start(isTls);
    const [first, second, third, fourth] = [await dial(), await dial(), await dial(), await dial()];
    await first.ask('/');
    await (await dial()).ask('/');
    await until(() => second.isClosed());
    expect([first, third, fourth].map(({ isClosed }) => isClosed())).toEqual([false, false, false]);
  });

  test('keeps requests in flight, and rejects new connections if there is nothing else to close', async () => {
    const { dial, held } = await start(isTls);
    const busy = [await dial(), await dial(), await dial(), await dial()];
    for (const each of busy) await each.ask('/hold');
    await until(() => held.length === MOST);
    const late = await dial();
    await until(() => late.isClosed());
    for (const release of held) release();
    for (const each of busy) await until(() => each.text().endsWith('held'));
    await (await dial()).ask('/');
  });

  test('replaces a connection of the address that has most', async () => {
    const { dial } = await start(isTls);
    const other = await dial('127.0.0.2');
    const many = [await dial(), await dial(), await dial()];
    await (await dial('127.0.0.3')).ask('/');
    await until(() => many[0]?.isClosed() === true);
    expect(other.isClosed()).toBe(false);
    await other.ask('/');
  });

  test('replaces an unfinished upload of the address that has most, and not the connection of another that is idle', async () => {
    const { dial, held } = await start(isTls);
    const other = await dial('127.0.0.2');
    const uploads = [await dial(), await dial(), await dial()];
    for (const each of uploads) await each.ask('/upload');
    await until(() => held.length === 3);
    await (await dial('127.0.0.3')).ask('/');
    await until(() => uploads[0]?.isClosed() === true);
    await other.ask('/');
    expect(uploads.map(({ isClosed }) => isClosed())).toEqual([true, false, false]);
  });

  test('closes unfinished uploads of the address that has most while memory is tight, also for its own first request', async () => {
    let isTight = false;
    const options = { maxConnections: 100, maxPerClient: 100, isTight: () => isTight, keptWhileTight: 3 };
    const { dial, held } = await start(isTls, options);
    const other = await dial('127.0.0.2');
    const uploads = [await dial(), await dial(), await dial()];
    for (const each of uploads.slice(0, 2)) await each.ask('/upload');
    await until(() => held.length === 2);
    isTight = true;
    await uploads[2]?.ask('/upload');
    // The other one has no request yet.
    await until(() => uploads[0]?.isClosed() === true);
    isTight = false;
    await other.ask('/');
    expect(uploads.map(({ isClosed }) => isClosed())).toEqual([true, false, false]);
  });

  test('replaces the longest unfinished upload of addresses that have one each, and not a newer connection', async () => {
    const { dial, held } = await start(isTls);
    const uploads = [await dial('127.0.0.5'), await dial('127.0.0.6'), await dial('127.0.0.7')];
    for (const each of uploads) await each.ask('/upload');
    await until(() => held.length === 3);
    const other = await dial('127.0.0.2');
    await (await dial('127.0.0.8')).ask('/upload');
    await until(() => uploads[0]?.isClosed() === true);
    await other.ask('/');
    expect(uploads.map(({ isClosed }) => isClosed())).toEqual([true, false, false]);
  });

  const withProxy: ConnectionLimiterOptions['toClient'] = ({ remoteAddress }) =>
    remoteAddress === '127.0.0.9' ? undefined : remoteAddress;

  test('replaces a connection between two requests rather than an upload, also one of many clients that have more', async () => {
    const { dial, held } = await start(isTls, { toClient: withProxy, maxConnections: 6 });
    const uploads = [await dial(), await dial()];
    for (const each of uploads) await each.ask('/upload');
    await until(() => held.length === 2);
    const proxied = [await dial('127.0.0.9'), await dial('127.0.0.9'), await dial('127.0.0.9')];
    const client = await dial('127.0.0.2');
    for (const each of [...proxied, client]) await each.ask('/');
    await (await dial('127.0.0.3')).ask('/hold');
    await until(() => client.isClosed());
    await (await dial('127.0.0.4')).ask('/hold');
    await until(() => proxied[0]?.isClosed() === true);
    expect(uploads.map(({ isClosed }) => isClosed())).toEqual([false, false]);
  });

  test('replaces silent connections of the address that has most, and none of others that are between two requests', async () => {
    const { dial } = await start(isTls, { toClient: withProxy, maxConnections: 7 });
    const silent = [await dial(), await dial(), await dial(), await dial(), await dial()];
    const others = [await dial('127.0.0.2'), await dial('127.0.0.9')];
    for (const each of others) await each.ask('/');
    await (await dial()).ask('/');
    await until(() => silent[0]?.isClosed() === true);
    expect(others.map(({ isClosed }) => isClosed())).toEqual([false, false]);
  });

  test('replaces an unfinished upload of the client that has most behind a proxy, if nothing else can be closed', async () => {
    const clients = ['a', 'b', 'a', 'a'];
    const toUploadClient = (): string | undefined => clients.shift();
    const { dial, held } = await start(isTls, { toClient: () => undefined, toUploadClient });
    const uploads = [await dial(), await dial(), await dial(), await dial()];
    for (const each of uploads) await each.ask('/upload');
    await until(() => held.length === 4);
    await (await dial()).ask('/');
    await until(() => uploads[0]?.isClosed() === true);
    expect(uploads.map(({ isClosed }) => isClosed())).toEqual([true, false, false, false]);
  });

  test('replaces an idle connection while memory is tight, although the port has room, but no request in flight', async () => {
    const hits: ConnectionLimit[] = [];
    let isTight = false;
    const onLimit = (limit: ConnectionLimit): void => void hits.push(limit);
    const options = { maxConnections: 100, isTight: () => isTight, keptWhileTight: 2, onLimit };
    const { dial, held } = await start(isTls, options);
    const [idle, busy] = [await dial(), await dial()];
    await busy.ask('/hold');
    await until(() => held.length === 1);
    isTight = true;
    const next = await dial();
    await until(() => idle.isClosed());
    await next.ask('/hold');
    await until(() => held.length === 2);
    const last = await dial();
    await last.ask('/');
    expect([busy.isClosed(), next.isClosed(), hits]).toEqual([false, false, ['memory', 'memory']]);
  });

  test('closes idle connections for the first request of another while memory is tight, but none that waits for its client', async () => {
    let isTight = false;
    let first = 0;
    const options = {
      maxConnections: 100,
      maxPerClient: 100,
      isTight: () => isTight,
      keptWhileTight: 2,
      onFirstRequest: () => first++,
    };
    const { dial, held } = await start(isTls, options);
    const [uploading, idle, other, next] = [await dial(), await dial(), await dial(), await dial()];
    await uploading.ask('/upload');
    await until(() => held.length === 1);
    isTight = true;
    await next.ask('/upload');
    for (const each of [idle, other]) await until(() => each.isClosed());
    await until(() => held.length === 2);
    expect([uploading.isClosed(), next.isClosed(), first]).toEqual([false, false, 2]);
    for (const release of held) release();
    for (const each of [uploading, next]) await until(() => each.text().endsWith('held'));
    await next.ask('/');
    expect(first).toBe(2);
  });

  test('replaces several while memory is tight, those without a request first, then those that wait for their client', async () => {
    let isTight = false;
    let closed = 0;
    const options = {
      maxConnections: 100,
      maxPerClient: 100,
      isTight: () => isTight,
      keptWhileTight: 2,
      onClosed: () => closed++,
    };
    const { dial, held } = await start(isTls, options);
    const [busy, unread, uploading, idle] = [await dial(), await dial(), await dial(), await dial()];
    await busy.ask('/hold');
    await unread.ask('/unread');
    await uploading.ask('/upload');
    await until(() => held.length === 3);
    isTight = true;
    await (await dial()).ask('/');
    for (const each of [unread, uploading, idle]) await until(() => each.isClosed());
    expect([busy.isClosed(), closed]).toEqual([false, 3]);
  });

  test('replaces the idle connection of a client at its limit, although the port has room', async () => {
    const hits: ConnectionLimit[] = [];
    const { dial } = await start(isTls, { maxPerClient: 2, onLimit: (limit) => void hits.push(limit) });
    const [first, second] = [await dial(), await dial()];
    await first.ask('/');
    await (await dial()).ask('/');
    await until(() => second.isClosed());
    expect([first.isClosed(), hits]).toEqual([false, ['client_connections']]);
    await (await dial('127.0.0.2')).ask('/');
    expect(first.isClosed()).toBe(false);
  });

  test('closes the new connection of a client whose connections are all busy, and no other', async () => {
    const { dial, held } = await start(isTls, { maxPerClient: 2 });
    const busy = [await dial(), await dial()];
    for (const each of busy) await each.ask('/hold');
    await until(() => held.length === 2);
    const late = await dial();
    await until(() => late.isClosed());
    await (await dial('127.0.0.2')).ask('/');
    for (const release of held) release();
    for (const each of busy) await until(() => each.text().endsWith('held'));
  });

  test('closes an idle connection that represents many clients only if no other is idle', async () => {
    const toClient: ConnectionLimiterOptions['toClient'] = ({ remoteAddress }) =>
      remoteAddress === '127.0.0.2' ? undefined : remoteAddress;
    const { dial, held } = await start(isTls, { maxPerClient: 1, toClient });
    const proxied = [await dial('127.0.0.2'), await dial('127.0.0.2'), await dial('127.0.0.2')];
    const own = await dial();
    await (await dial('127.0.0.3')).ask('/hold');
    await until(() => own.isClosed() && held.length === 1);
    for (const each of proxied) await each.ask('/');
    // A fifth connection: the only client is busy, so one of the others makes room.
    const client = await dial('127.0.0.2');
    await until(() => proxied[0]?.isClosed() === true);
    await client.ask('/');
  });

  test('never closes a connection with a request that represents many clients', async () => {
    const { dial, held } = await start(isTls, { toClient: () => undefined });
    const busy = [await dial(), await dial(), await dial(), await dial()];
    for (const each of busy) await each.ask('/hold');
    await until(() => held.length === busy.length);
    const late = await dial();
    await until(() => late.isClosed());
    for (const release of held) release();
    for (const each of busy) await until(() => each.text().endsWith('held'));
  });

  test('replaces an idle connection that represents many clients while memory is tight', async () => {
    const { dial } = await start(isTls, {
      maxConnections: 100,
      isTight: () => true,
      keptWhileTight: 2,
      toClient: () => undefined,
    });
    const first = await dial();
    const others = [await dial(), await dial()];
    await until(() => first.isClosed());
    for (const each of others) await each.ask('/');
  });
});
