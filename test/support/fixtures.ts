/** Parts that a whole test file shares: each is started before its tests and stopped behind them. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach } from 'vitest';
import { type AppHandler, startApp, type TestApp } from './app.ts';
import { type RedisServer, startRedis } from './redis.ts';

const HANDLED: AppHandler = (_request, response) => response.end('handled');

/** An app for all tests of the file; each test finds it with nothing received, and answering 200. */
export function useApp(): TestApp {
  let app: TestApp | undefined;
  const running = (): TestApp => {
    if (app === undefined) throw new Error('the app runs only during tests and hooks');
    return app;
  };
  beforeAll(async () => {
    app = await startApp();
  });
  afterAll(() => app?.close());
  beforeEach(() => {
    running().received.length = 0;
    running().handler = HANDLED;
  });
  return {
    get port() {
      return running().port;
    },
    get received() {
      return running().received;
    },
    get handler() {
      return running().handler;
    },
    set handler(next) {
      running().handler = next;
    },
    close: () => running().close(),
  };
}

/** A Redis server for all tests of the file. */
export function useRedis(): Pick<RedisServer, 'port' | 'cli' | 'kill' | 'restart' | 'signal'> {
  let redis: RedisServer | undefined;
  const running = (): RedisServer => {
    if (redis === undefined) throw new Error('Redis runs only during tests and hooks');
    return redis;
  };
  beforeAll(async () => {
    redis = await startRedis();
  });
  afterAll(() => redis?.stop());
  return {
    get port() {
      return running().port;
    },
    cli: (...args) => running().cli(...args),
    kill: () => running().kill(),
    restart: () => running().restart(),
    signal: (signal) => running().signal(signal),
  };
}

/** A temporary folder, removed behind the tests of the file. */
export function useFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-test-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
