import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { beforeEach, describe, expect, test } from 'vitest';
import type { TlsContexts } from '../../../../src/http/server/tls.ts';
import {
  CERTIFICATES_BYTES,
  ChainCosts,
  findHelloState,
  HANDSHAKE_BYTES,
  TlsHandshakes,
  toMaxHandshakes,
} from '../../../../src/http/server/tls-handshakes.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const MIB = 1024 * 1024;

/** A message of `length` bytes, in records of at most `size` bytes. */
function toRecords(length: number, size = 16_384, type = 1): Buffer {
  const message = Buffer.concat([Buffer.from([type, length >> 16, (length >> 8) & 255, length & 255]), Buffer.alloc(length)]);
  const records: Buffer[] = [];
  for (let at = 0; at < message.length; at += size) {
    const record = message.subarray(at, at + size);
    records.push(Buffer.from([22, 3, 1, record.length >> 8, record.length & 255]), record);
  }
  return Buffer.concat(records);
}

describe('a ClientHello', () => {
  const find = (bytes: Buffer): string => findHelloState(bytes, { at: 0, received: 0, head: [] });

  test.each([1, 2, 3, 5, 512, 16_384])('is complete with its last byte, in records of %i bytes', (size) => {
    const bytes = toRecords(517, size);
    for (const length of [0, 1, 4, 5, 6, 9, 100, bytes.length - 1])
      expect(find(bytes.subarray(0, length)), String(length)).toBe('incomplete');
    expect(find(bytes)).toBe('complete');
  });

  test('is found in pieces as in one, and reads each record once', () => {
    for (const size of [1, 2, 3, 5, 512]) {
      const bytes = toRecords(517, size);
      const scan = { at: 0, received: 0, head: [] };
      const isComplete = (length: number): boolean => findHelloState(bytes.subarray(0, length), scan) === 'complete';
      const lengths = Array.from({ length: bytes.length }, (_, index) => index + 1);
      expect(lengths.find(isComplete)).toBe(bytes.length);
      expect(scan.at).toBe(bytes.length - 5 - ((517 + 4) % size || size));
    }
  });

  test('is invalid with an empty record', () => {
    expect(find(Buffer.from([22, 3, 1, 0, 0]))).toBe('invalid');
    expect(find(Buffer.from([22, 3, 1, 0, 1, 1, 22, 3, 1, 0, 0]))).toBe('invalid');
  });

  test.each([
    [16_380, 'incomplete'],
    [16_381, 'too-large'],
    [130_900, 'too-large'],
    [0xff_ff_ff, 'too-large'],
  ])('of %i bytes is known by its first bytes: %s', (length, state) => {
    const start = Buffer.from([22, 3, 1, 64, 0, 1, length >> 16, (length >> 8) & 255, length & 255]);
    expect(find(start)).toBe(state);
  });

  test.each([
    ['HTTP', Buffer.from('GET / HTTP/1.1\r\n')],
    ['another record', Buffer.from([20, 3, 3, 0, 1, 1])],
    ['another message', toRecords(100_000, 16_384, 11)],
  ])('is left to OpenSSL if it is %s', (_name, bytes) => {
    expect(find(bytes)).toBe('complete');
  });
});

test.each([
  [undefined, 1, HANDSHAKE_BYTES, 1_024],
  [96, 1, HANDSHAKE_BYTES, 40],
  [192, 1, HANDSHAKE_BYTES, 136],
  [192, 1, CERTIFICATES_BYTES, 27],
  [256, 2, HANDSHAKE_BYTES, 84],
  [64, 1, CERTIFICATES_BYTES, 4],
])('with %s MiB and %i workers, each has handshakes of %i bytes: %i', (limit, workers, bytes, count) => {
  expect(toMaxHandshakes({ limit: limit === undefined ? undefined : limit * MIB, workers }, bytes)).toBe(count);
});

describe('a client with a chain of 31 KB', () => {
  const CHAIN = 31 * 1024;
  const open = (): { costs: ChainCosts; clock: FakeClock } => {
    const clock = new FakeClock();
    return { costs: new ChainCosts(clock), clock };
  };

  test('waits ten times as long as the check takes', async () => {
    const { costs, clock } = open();
    expect(costs.charge('10.0.0.1', CHAIN)).toBe(true);
    await clock.advance(1_149);
    expect(costs.isPaused('10.0.0.1')).toBe(true);
    await clock.advance(1);
    expect(costs.isPaused('10.0.0.1')).toBe(false);
  });

  test('waits at most a minute, however many it had at once', async () => {
    const { costs, clock } = open();
    for (let i = 0; i < 100; i++) costs.charge('10.0.0.1', CHAIN);
    await clock.advance(60_000);
    expect(costs.isPaused('10.0.0.1')).toBe(false);
  });

  test('delays no other client', () => {
    const { costs } = open();
    costs.charge('10.0.0.1', CHAIN);
    expect(costs.isPaused('10.0.0.2')).toBe(false);
  });
});

test('untrusted chains of 2 KiB cost nothing, and larger ones what they have more', async () => {
  const clock = new FakeClock();
  const costs = new ChainCosts(clock);
  const FREE = 2 * 1024;
  expect([costs.charge('10.0.0.1', FREE, FREE), costs.isPaused('10.0.0.1')]).toEqual([false, false]);
  expect([costs.charge('10.0.0.1', FREE + 4_096, FREE), costs.isPaused('10.0.0.1')]).toEqual([false, true]);
  await clock.advance(200);
  expect(costs.isPaused('10.0.0.1')).toBe(false);
});

test('chains of 8 KiB cost nothing', () => {
  const costs = new ChainCosts(new FakeClock());
  expect([costs.charge('10.0.0.1', 8 * 1024), costs.isPaused('10.0.0.1')]).toEqual([false, false]);
});

/** A connection to a port, without a network. */
class FakeSocket extends EventEmitter {
  static #ports = 0;
  readonly remotePort = ++FakeSocket.#ports;
  readonly remoteAddress: string;
  bytesRead = 0;
  /** The certificates of the client, which nobody trusts. */
  chainBytes = 0;
  /** OpenSSL works on its handshake. */
  isRunning = false;
  destroyed = false;

  constructor(remoteAddress: string) {
    super();
    this.remoteAddress = remoteAddress;
  }

  getPeerX509Certificate(): object | undefined {
    return this.chainBytes === 0 ? undefined : { raw: Buffer.alloc(this.chainBytes) };
  }

  pause(): void {
    // Nothing is read.
  }

  resume(): void {
    // Nothing is read.
  }

  unshift(): void {
    // OpenSSL would read it.
  }

  destroy(): void {
    if (this.destroyed) return;
    this.destroyed = true;
    process.nextTick(() => this.emit('close'));
  }
}

describe('of the handshakes that wait for one of four places', () => {
  const STEP_MS = 50;
  /** A place becomes free after a quarter of a second, if more wait than there are places. */
  const STEPS = 10;
  let clock: FakeClock;
  let handshakes: TlsHandshakes;
  let isShared: boolean;
  beforeEach(() => {
    clock = new FakeClock();
    isShared = true;
    const contexts = { clientCertificate: 'request' } as unknown as TlsContexts;
    const memory = { limit: 64 * MIB, workers: 1, onBytes: () => undefined, shortage: undefined };
    handshakes = new TlsHandshakes({ contexts, clock, memory, onLimit: () => undefined, isShared: () => isShared }, 10_000);
  });

  /** Sends a ClientHello. */
  const begin = (address: string): FakeSocket => {
    const socket = new FakeSocket(address);
    handshakes.take(socket as unknown as Socket, () => {
      socket.isRunning = true;
    });
    socket.emit('data', toRecords(517));
    return socket;
  };
  /** The client continues its handshake as soon as it may; resolves with whether it could. */
  const complete = async (socket: FakeSocket, flood: () => void): Promise<boolean> => {
    for (let i = 0; i < STEPS && !socket.isRunning; i++) {
      flood();
      await clock.advance(STEP_MS);
    }
    if (!socket.isRunning || socket.destroyed) return false;
    handshakes.finish(socket as unknown as TLSSocket);
    return true;
  };
  /** In each step, begins handshakes from one network after the other, and continues none; `isImpatient`: the client ends them itself. */
  const stallFrom = (networks: number, toAddress: (index: number) => string, isImpatient = false): (() => void) => {
    let count = 0;
    const begun: FakeSocket[] = [];
    return () => {
      for (const socket of begun) if (isImpatient && socket.isRunning) socket.destroy();
      for (let i = 0; i < STEPS; i++) begun.push(begin(toAddress(count++ % networks)));
    };
  };
  const stall = async (flood: () => void, steps: number): Promise<void> => {
    for (let i = 0; i < steps; i++) {
      flood();
      await clock.advance(STEP_MS);
    }
  };
  const end = async (socket: FakeSocket | undefined): Promise<void> => {
    socket?.destroy();
    await clock.advance(0);
  };
  /** Whether a client goes before another one that came later. */
  const goesFirst = async (address: string): Promise<boolean> => {
    const running = ['127.0.2.1', '127.0.2.2', '127.0.2.3', '127.0.2.4'].map(begin);
    const [first, second] = [begin(address), begin('127.0.3.1')];
    await end(running[0]);
    expect(second.isRunning).toBe(!first.isRunning);
    return first.isRunning;
  };

  test('one of another site goes before those of many networks of one /48', async () => {
    const flood = stallFrom(4_096, (index) => `2001:db8:0:${index.toString(16)}::1`);
    await stall(flood, 1);
    expect(await complete(begin('2001:db8:1::1'), flood)).toBe(true);
  });

  test.each([
    ['that do not go on with theirs', false],
    ['that end theirs themselves', true],
  ])('one goes before those of networks %s', async (_name, isImpatient) => {
    const flood = stallFrom(16, (index) => `127.0.1.${index}`, isImpatient);
    await stall(flood, 100);
    expect(await complete(begin('127.0.0.1'), flood)).toBe(true);
  });

  test('those of a client that did not complete one go last for half a minute', async () => {
    await end(begin('127.0.0.1'));
    expect(await goesFirst('127.0.0.1')).toBe(false);
  });

  test('those of a client that did not complete one go first after half a minute', async () => {
    await end(begin('127.0.0.1'));
    await clock.advance(30_000);
    expect(await goesFirst('127.0.0.1')).toBe(true);
  });

  test('those of a client with a chain that nobody trusts go last, and begin one after the other', async () => {
    isShared = false;
    const sockets = Array.from({ length: 4 }, () => begin('127.0.0.1'));
    isShared = true;
    for (const socket of sockets) Object.assign(socket, { bytesRead: 3_000, chainBytes: 2_500 });
    for (const socket of sockets) expect(await complete(socket, () => undefined)).toBe(true);
    const next = Array.from({ length: 4 }, () => begin('127.0.0.1'));
    await clock.advance(150);
    expect(next.filter(({ isRunning }) => isRunning)).toHaveLength(1);
    await clock.advance(100);
    expect(next.filter(({ isRunning }) => isRunning)).toHaveLength(2);
    for (const socket of next) await end(socket);
    await clock.advance(1_000);
    expect(await goesFirst('127.0.0.1')).toBe(false);
  });

  test('those of a proxy begin at once, whatever chain or unfinished handshake one of its clients had', async () => {
    const sockets = Array.from({ length: 3 }, () => begin('127.0.0.1'));
    for (const socket of sockets) Object.assign(socket, { bytesRead: 8_000, chainBytes: 7_594 });
    for (const socket of sockets) expect(await complete(socket, () => undefined)).toBe(true);
    await end(begin('127.0.0.1'));
    expect(Array.from({ length: 4 }, () => begin('127.0.0.1')).filter(({ isRunning }) => isRunning)).toHaveLength(4);
  });

  test('those of a client that completed one since go first', async () => {
    await end(begin('127.0.0.1'));
    expect(await complete(begin('127.0.0.1'), () => undefined)).toBe(true);
    await clock.advance(100);
    expect(await goesFirst('127.0.0.1')).toBe(true);
  });
});
