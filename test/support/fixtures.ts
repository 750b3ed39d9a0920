/** Parts that a test file, a block or a test shares: each is started before its tests and stopped after them. */
import { mkdtempSync, rmSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, onTestFinished } from 'vitest';
import { type AnswerWith, type ApiServer, startApiServer } from './api-server.ts';
import { type AppHandler, startApp, type TestApp } from './app.ts';
import { type Authority, makeAuthority } from './certificates.ts';
import type { TestGate } from './gate.ts';
import { type GitApp, startGitApp } from './git-app.ts';
import { type Pooler, type PostgresOptions, type PostgresServer, startPooler, startPostgres } from './postgres.ts';
import { type RedisServer, startRedis } from './redis.ts';
import { type Script, type ScriptApp, startScriptApp } from './script-app.ts';

const HANDLED: AppHandler = (_request, response) => response.end('handled');

/** An app; each test finds it with nothing received, and responding with 200. */
export function useApp(): TestApp {
  const app = useStarted(startApp, (running) => running.close());
  beforeEach(() => {
    app.received.length = 0;
    app.handler = HANDLED;
  });
  return app;
}

/** A gate. `start` runs after the fixtures that are declared above it have started, so it can use the app's port. */
export function useGate(start: () => Promise<TestGate>): TestGate {
  return useStarted(start, (running) => running.stop());
}

/** Git's own server as an app, with an empty repository. */
export function useGitApp(): GitApp {
  return useStarted(startGitApp, (running) => running.close());
}

/** A cluster's API server; each test finds it asked nothing. */
export function useApiServer(answer: AnswerWith): ApiServer {
  const server = useStarted(
    () => startApiServer(answer),
    (running) => running.stop(),
  );
  beforeEach(() => {
    server.asked.length = 0;
  });
  return server;
}

/** A Redis server. */
export function useRedis(): RedisServer {
  return useStarted(startRedis, (running) => running.stop());
}

/** A PostgreSQL server. */
export function usePostgres(options: PostgresOptions = {}): PostgresServer {
  return useStarted(
    () => startPostgres(options),
    (running) => running.stop(),
  );
}

/** PgBouncer in transaction mode, before a server that is declared above it. */
export function usePooler(server: PostgresServer): Pooler {
  return useStarted(
    () => startPooler(server),
    (running) => running.stop(),
  );
}

/** Makes a server listen on a free port of loopback, and destroys the connections that the tests leave open. */
export function useServer(server: Server): { readonly port: number } {
  const close = trackConnections(server);
  beforeAll(() => listen(server));
  afterAll(close);
  return {
    get port() {
      return toPort(server);
    },
  };
}

/** The same for the test that runs; gives the port. */
export async function startServer(server: Server): Promise<number> {
  onTestFinished(trackConnections(server));
  await listen(server);
  return toPort(server);
}

/**
 * A port that stays the same while the server behind it restarts on another: a port that was free again could go to any other program.
 * `toTarget`: the server's port; undefined while it is down. Gives the port.
 */
export function startRelay(toTarget: () => number | undefined): Promise<number> {
  return startServer(
    createServer((client) => {
      const port = toTarget();
      if (port === undefined) return void client.destroy();
      const server = connect(port, '127.0.0.1');
      for (const [from, to] of [
        [client, server],
        [server, client],
      ] as const)
        from.on('error', () => undefined).on('close', () => to.destroy());
      client.pipe(server).pipe(client);
    }),
  );
}

/** An app that runs `script` on each connection. */
export function useScriptApp(script: Script): ScriptApp {
  return useStarted(
    () => startScriptApp(script),
    (running) => running.close(),
  );
}

/** A server that sends back the bytes it gets. */
export function useEcho(): { readonly port: number } {
  return useServer(createServer({ allowHalfOpen: true }, (socket) => socket.on('error', () => undefined).pipe(socket)));
}

/** A temporary folder for all tests of the file or block. */
export function useFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-test-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A temporary folder for the test that runs; also for use in its `beforeEach`. */
export function makeFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-test-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A CA with a temporary folder of its files. */
export function useAuthority(name = 'ca'): Authority {
  return makeAuthority(useFolder(), name);
}

/** The part that `start` resolves with. It exists only while tests and hooks run, so each access looks it up. */
function useStarted<T extends object>(start: () => Promise<T>, stop: (part: T) => unknown): T {
  let running: T | undefined;
  const find = (): T => {
    if (running === undefined) throw new Error('this part runs only during tests and hooks');
    return running;
  };
  beforeAll(async () => {
    running = await start();
  });
  afterAll(async () => {
    if (running !== undefined) await stop(running);
  });
  return new Proxy({} as T, {
    get: (_, key) => Reflect.get(find(), key) as unknown,
    set: (_, key, value) => Reflect.set(find(), key, value),
  });
}

const listen = (server: Server): Promise<void> => new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const toPort = (server: Server): number => (server.address() as AddressInfo).port;

/** Gives what closes the server and all its connections. */
function trackConnections(server: Server): () => void {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  return () => {
    server.close();
    for (const socket of sockets) socket.destroy();
  };
}
