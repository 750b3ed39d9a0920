import { EventEmitter } from 'node:events';
import type { ServerHttp2Stream } from 'node:http2';
import { beforeEach, describe, expect, test } from 'vitest';
import { Http2Streams } from '../../../../src/http/server/http2.ts';
import { NO_PRESSURE } from '../../../../src/http/server/memory-guard.ts';

const MAX = 32;
const STREAM_BYTES = 8 * 1024;
const EVICTED_AT_ONCE = 2;
/** Their memory is as much as that of a stream without fields. */
const MANY_FIELDS = 32;
const ENDED = { writableEnded: true };
const PENDING = { writableEnded: false };
const COMPLETE = { declaredLength: 0, isComplete: true };

let streams: Http2Streams;
let ended: string[];
let limits: string[];
let now: number;
let sessions: Map<string, object>;
beforeEach(() => {
  ended = [];
  limits = [];
  now = 0;
  sessions = new Map();
  streams = new Http2Streams(MAX, NO_PRESSURE, (limit) => limits.push(limit));
});

/** Adds a stream of a client; returns its emitter, or undefined if it was not accepted. */
function add(network: string, response = ENDED, source = COMPLETE, fieldLines = 0, isShared = false): EventEmitter | undefined {
  const stream = new EventEmitter();
  const name = `${network}:${now}`;
  const parts = { stream: stream as ServerHttp2Stream, source, body: { network }, isShared, headBytes: 0, fieldLines };
  return streams.add({ ...parts, response: { ...response, destroy: () => ended.push(name) } }, now++) ? stream : undefined;
}

/** Adds streams of `networks` in turn. */
function addAll(
  networks: readonly string[],
  count: number,
  ...like: readonly [response?: typeof ENDED, source?: typeof COMPLETE]
): void {
  for (let i = 0; i < count; i++) expect(add(networks[i % networks.length] ?? '', ...like)).toBeDefined();
}

/** Until all streams so far may be ended. */
function age(): void {
  now += 1_000;
}

/** A stream of a client arrives on one of its sessions; returns whether that goes on. */
function begin(client: string | undefined, session: number, bytes = STREAM_BYTES): boolean {
  const key = `${client} ${session}`;
  const found = sessions.get(key) ?? {};
  sessions.set(key, found);
  return streams.begin({ session: found, client, bytes });
}

describe('the unfinished streams of a port', () => {
  test('are as many as the limit, and no more once some are closed', () => {
    addAll(['a', 'b', 'c'], MAX);
    age();
    const last = add('c');
    expect(ended).toHaveLength(EVICTED_AT_ONCE);
    last?.emit('close');
    add('c');
    add('c');
    expect(ended).toHaveLength(EVICTED_AT_ONCE);
    expect(limits).toEqual(['client_requests']);
  });

  test('are half as many of one client', () => {
    addAll(['a'], MAX / 2, PENDING);
    expect(add('a', PENDING)).toBeUndefined();
    expect(add('b', PENDING)).toBeDefined();
  });

  test('above the limit end the oldest of the client that keeps most of them', () => {
    addAll(['b'], 1);
    addAll(['a'], MAX / 2);
    addAll(['c', 'd'], MAX / 2 - 1);
    age();
    expect(add('b')).toBeDefined();
    expect(ended).toEqual(['a:1', 'a:2']);
  });

  test('above the limit end those whose body is missing, and none that waits for the app', () => {
    addAll(['a', 'c'], MAX - 1, PENDING);
    add('b', PENDING, { declaredLength: 5, isComplete: false });
    age();
    expect(add('d', PENDING)).toBeDefined();
    expect(ended).toEqual(['b:31']);
    expect(add('d')).toBeUndefined();
    expect(ended).toEqual(['b:31']);
  });

  test('above the limit end none of a client that has fewer', () => {
    addAll(['b'], 2);
    addAll(['a'], MAX / 2, PENDING);
    age();
    expect(add('a', PENDING)).toBeUndefined();
    expect(ended).toEqual([]);
  });

  test('above the limit end none whose body may follow at once', () => {
    addAll(['a', 'c'], MAX - 1, PENDING);
    add('b', PENDING, { declaredLength: 5, isComplete: false });
    expect(add('d', PENDING)).toBeUndefined();
    expect(ended).toEqual([]);
  });

  test('above the limit end old ones of any client, if that with most of them has only young ones', () => {
    addAll(['b'], 6);
    age();
    addAll(['a', 'c'], MAX - 6);
    expect(add('d')).toBeDefined();
    expect(ended).toEqual(['b:0', 'b:1']);
  });

  test('above the limit end young ones of their own client, if there are no old ones', () => {
    addAll(['a'], MAX / 2);
    expect(add('a')).toBeDefined();
    expect(ended).toEqual(['a:0', 'a:1']);
  });

  test('above the limit end young ones of a client that has many', () => {
    addAll(['a'], MAX / 2);
    addAll(['c'], MAX / 2, PENDING);
    expect(add('d')).toBeDefined();
    expect(ended).toEqual(['a:0', 'a:1']);
  });

  test('are searched once in a turn of the event loop for a client with as many, if none can be ended', async () => {
    addAll(['a', 'b'], MAX, PENDING);
    const last = add('a', PENDING);
    expect(last).toBeUndefined();
    age();
    const unread = { declaredLength: 5, isComplete: false };
    const held = { ...PENDING };
    expect([add('a', held, unread), add('a', held, unread)]).toEqual([undefined, undefined]);
    expect(limits).toHaveLength(3);
  });

  test('are all those of the port for a network of many clients', () => {
    for (let i = 0; i < MAX; i++) expect(add('proxy', PENDING, COMPLETE, 0, true)).toBeDefined();
    expect(add('proxy', PENDING, COMPLETE, 0, true)).toBeUndefined();
  });

  test('are fewer if their heads have many fields, so that the memory of all is limited', () => {
    for (let i = 0; i < MAX / 2; i++) add('a', ENDED, COMPLETE, MANY_FIELDS);
    expect(ended).toEqual([]);
    age();
    add('b');
    expect(ended).toEqual(['a:0']);
  });

  test('are not rejected because of their fields if they wait for the app', () => {
    for (let i = 0; i < MAX; i++) expect(add(i % 2 === 0 ? 'a' : 'b', PENDING, COMPLETE, MANY_FIELDS)).toBeDefined();
    expect(ended).toEqual([]);
  });

  test('report their memory as they arrive', () => {
    const reported: number[] = [];
    const memory = { ...NO_PRESSURE, onBytes: (bytes: number) => reported.push(bytes) };
    streams = new Http2Streams(MAX, memory, (limit) => limits.push(limit));
    begin('a', 1, 100);
    begin('a', 1, 200);
    expect(reported).toEqual([100, 200]);
  });

  test('are an eighth while memory is tight', () => {
    streams = new Http2Streams(MAX, { ...NO_PRESSURE, isTight: true }, (limit) => limits.push(limit));
    addAll(['a', 'b'], MAX / 8);
    age();
    add('a');
    expect(ended).toEqual(['a:0', 'a:2']);
  });
});

describe('what arrives in one turn of the event loop', () => {
  const TURN = 1_024;
  beforeEach(() => {
    streams = new Http2Streams(TURN, NO_PRESSURE, (limit) => limits.push(limit));
  });

  /** How many streams of one session go on. */
  const flood = (client: string | undefined): number =>
    Array.from({ length: 5 * TURN }, () => begin(client, 1)).filter(Boolean).length;

  test('may be as much as the unfinished streams, half of it of one client, beside the first stream of each session', () => {
    expect([flood('a'), flood('b'), flood('c')]).toEqual([1 + TURN / 2, 1 + TURN / 2, 1]);
    expect(new Set(limits)).toEqual(new Set(['client_requests']));
  });

  test('may be 32 MiB of proxies, beside that of clients', () => {
    flood('a');
    flood('b');
    expect(flood(undefined)).toBe((32 * 1_024 * 1_024) / STREAM_BYTES);
    expect(flood('c')).toBe(1);
  });

  test('may be one stream more of each session, half as many of one client', () => {
    flood('a');
    const opened = Array.from({ length: TURN }, (_, session) => begin('b', session)).filter(Boolean);
    expect(opened).toHaveLength(TURN / 2);
    expect(begin('c', 1)).toBe(true);
  });

  test('leaves their part to others, however much of a client is refused', () => {
    for (let session = 0; session < 10 * TURN; session++) begin('a', session, 2 * STREAM_BYTES);
    flood('a');
    expect(flood('b')).toBe(1 + TURN / 2);
  });

  test('is at least 6 MiB, so that one client may send a hundred requests, however many workers there are', () => {
    streams = new Http2Streams(MAX, NO_PRESSURE, (limit) => limits.push(limit));
    expect(flood('a')).toBe(1 + (3 * 1_024 * 1_024) / STREAM_BYTES);
  });

  test('is an eighth while memory is tight', () => {
    streams = new Http2Streams(TURN, { ...NO_PRESSURE, isTight: true }, (limit) => limits.push(limit));
    expect([flood('a'), flood(undefined)]).toEqual([1 + TURN / 16, (4 * 1_024 * 1_024) / STREAM_BYTES]);
  });

  test('does not count in the next one', async () => {
    for (let i = 0; i <= TURN; i++) begin('a', 1);
    await new Promise((resolve) => setImmediate(resolve));
    expect(begin('a', 1)).toBe(true);
    expect(begin('a', 1)).toBe(true);
  });
});
