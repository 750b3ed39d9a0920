import { createServer as createHttpServer } from 'node:http';
import { connect, createServer, type ListenOptions, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { Listener } from '../../../../src/http/server/listener.ts';
import { until } from '../../../support/gate.ts';

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

function closing(server: Server): Server {
  closers.push(() => server.close());
  return server;
}

const open = (host: string, port: number): Promise<Socket | undefined> =>
  new Promise((resolve) => {
    const socket = connect({ host, port });
    closers.push(() => socket.destroy());
    socket.on('error', () => resolve(undefined));
    socket.once('connect', () => resolve(socket));
  });

describe('a server on several addresses', () => {
  test('gets the connections to each of them, and to no other', async () => {
    const server = createHttpServer((_request, response) => response.end('here'));
    const listener = new Listener(server, { hosts: ['127.0.0.1', '127.0.0.2', '::1'], port: 0 });
    closers.push(() => {
      listener.close();
      server.closeAllConnections();
    });
    const { port, all } = await listener.open();
    expect(all).toEqual([`127.0.0.1:${port}`, `127.0.0.2:${port}`, `[::1]:${port}`]);
    for (const place of all) expect(await (await fetch(`http://${place}/`)).text()).toBe('here');
    expect(await open('127.0.0.3', port)).toBeUndefined();
    listener.close();
    server.closeAllConnections();
    for (const host of ['127.0.0.1', '127.0.0.2', '::1']) expect(await open(host, port)).toBeUndefined();
  });

  test('has one connection limit for all of them', async () => {
    const server = createServer();
    server.maxConnections = 2;
    const kept: Socket[] = [];
    let dropped = 0;
    server.on('connection', (socket: Socket) => kept.push(socket.on('error', () => undefined)));
    server.on('drop', () => dropped++);
    const listener = new Listener(server, { hosts: ['127.0.0.1', '127.0.0.2'], port: 0 });
    closers.push(() => {
      listener.close();
      for (const socket of kept) socket.destroy();
    });
    const { port } = await listener.open();
    const first = await open('127.0.0.2', port);
    await open('127.0.0.1', port);
    await until(() => kept.length === 2);
    for (const host of ['127.0.0.1', '127.0.0.2']) {
      const before = dropped;
      await open(host, port);
      await until(() => dropped === before + 1);
    }
    expect(kept).toHaveLength(2);
    first?.destroy();
    kept[0]?.destroy();
    await until(() => server.maxConnections === 2);
    await open('127.0.0.1', port);
    await until(() => kept.length === 3);
  });

  test('listens on none of them if one is not available', async () => {
    const taken = closing(createServer());
    await new Promise<void>((resolve) => taken.listen(0, '127.0.0.2', resolve));
    const { port } = taken.address() as { port: number };
    const server = createServer();
    const listener = new Listener(server, { hosts: ['127.0.0.1', '127.0.0.2'], port });
    await expect(listener.open()).rejects.toMatchObject({ code: 'EADDRINUSE', address: '127.0.0.2', port });
    expect(await open('127.0.0.1', port)).toBeUndefined();
  });
});

describe('a server on all addresses', () => {
  test('accepts both families', async () => {
    const server = closing(createServer((socket) => socket.end()));
    const { port, all } = await new Listener(server, { hosts: [], port: 0 }).open();
    expect(all).toEqual([`[::]:${port}`]);
    for (const host of ['127.0.0.1', '127.0.0.9', '::1']) expect(await open(host, port)).toBeDefined();
  });

  test('accepts IPv4 if the machine has no IPv6', async () => {
    const server = closing(createServer((socket) => socket.end()));
    const listen = server.listen.bind(server) as (options: ListenOptions, done: () => void) => Server;
    // Like a kernel without IPv6.
    server.listen = ((options: ListenOptions, done: () => void) => {
      if (options.host !== '::') return listen(options, done);
      process.nextTick(() => server.emit('error', Object.assign(new Error('no IPv6'), { code: 'EAFNOSUPPORT' })));
      return server;
    }) as Server['listen'];
    const { all, port } = await new Listener(server, { hosts: [], port: 0 }).open();
    expect(all).toEqual([`0.0.0.0:${port}`]);
    expect(await open('127.0.0.1', port)).toBeDefined();
  });

  test('fails if another process has the IPv6 port', async () => {
    const other = closing(createServer());
    await new Promise<void>((resolve) => other.listen(0, '::1', resolve));
    const { port } = other.address() as { port: number };
    await expect(new Listener(createServer(), { hosts: [], port }).open()).rejects.toMatchObject({ code: 'EADDRINUSE' });
  });
});
