/** Measures only the exchange with the app: sidegate's connection and node:http in turns, CPU per request on real sockets. */
import { fork } from 'node:child_process';
import { createServer } from 'node:net';
import process, { argv, cpuUsage, exit, stdout } from 'node:process';
import { fileURLToPath } from 'node:url';
import { systemClock } from '../src/core/clock.ts';
import { HttpClient } from '../src/http/client/pool.ts';
import type { Upstream, UpstreamOptions, UpstreamRequest } from '../src/http/client/upstream.ts';
import { createNodeHttpUpstream } from './node-http-upstream.ts';

const ROUNDS = 6;
const REQUESTS = 20_000;
const WARM_UP = 5_000;
const IN_FLIGHT = 32;
const HEAD_END = Buffer.from('\r\n\r\n');
const BODY = Buffer.alloc(1_024, 'x');

const REQUEST: UpstreamRequest = {
  method: 'POST',
  path: '/hooks/billing',
  // As many fields, and as long ones, as the gate sends for a delivery.
  headers: [
    ...['Host', 'app.example', 'User-Agent', 'sender/1.0', 'Content-Type', 'application/json'],
    ...['Webhook-Id', 'msg_2b5f0a1c9d8e7f60', 'Webhook-Timestamp', '1800000000'],
    ...['Webhook-Signature', 'v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4='],
    ...['X-Forwarded-For', '203.0.113.9', 'X-Forwarded-Proto', 'http', 'X-Forwarded-Host', 'app.example'],
    ...['Via', '1.1 sidegate', 'Sidegate-Route', 'billing', 'Sidegate-Key', 'current'],
    ...['Sidegate-Request-Id', '6f1c1f0e-8f0e-4f0e-9f0e-0f0e0f0e0f0e', 'Content-Length', String(BODY.length)],
    ...['Connection', 'keep-alive'],
  ],
  body: BODY,
  repeatable: false,
};

/** The app: a separate process that counts bytes and responds like node:http. */
function serve(): void {
  const answer = Buffer.from(
    'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Sat, 21 Nov 2026 06:00:00 GMT\r\nConnection: keep-alive\r\n' +
      'Keep-Alive: timeout=5\r\nContent-Length: 11\r\n\r\n{"ok":true}',
  );
  const server = createServer({ noDelay: true }, (socket) => {
    let seen = Buffer.alloc(0);
    socket.on('error', () => socket.destroy());
    socket.on('data', (chunk) => {
      seen = seen.length === 0 ? chunk : Buffer.concat([seen, chunk]);
      const end = seen.indexOf(HEAD_END);
      if (end === -1 || seen.length < end + HEAD_END.length + BODY.length) return;
      seen = Buffer.alloc(0);
      socket.write(answer);
    });
  });
  server.listen(0, '127.0.0.1', () => {
    const address = server.address();
    process.send?.(typeof address === 'object' && address !== null ? address.port : 0);
  });
}

/** Microseconds of CPU, user and system, of this process per request for `count` requests, with `IN_FLIGHT` at a time. */
function measure(upstream: Upstream, count: number): Promise<number> {
  const before = cpuUsage();
  let started = 0;
  let done = 0;
  return new Promise((resolve, reject) => {
    const next = (): void => {
      started++;
      upstream.send(REQUEST, {
        onInformation: () => undefined,
        onHead: () => undefined,
        onData: () => undefined,
        onEnd() {
          done++;
          if (started < count) setImmediate(next);
          else if (done === count) {
            const { user, system } = cpuUsage(before);
            resolve((user + system) / count);
          }
        },
        onFailure: ({ kind, detail }) => reject(new Error(`${kind}: ${detail}`)),
      });
    };
    for (let i = 0; i < IN_FLIGHT; i++) next();
  });
}

function toMedian(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 === 1 ? (sorted[half] ?? 0) : ((sorted[half - 1] ?? 0) + (sorted[half] ?? 0)) / 2;
}

async function run(): Promise<void> {
  const child = fork(fileURLToPath(import.meta.url), ['app']);
  const port = await new Promise<number>((resolve) => child.once('message', (message) => resolve(Number(message))));
  const options: UpstreamOptions = {
    host: '127.0.0.1',
    port,
    connectTimeout: 1_000,
    responseTimeout: 15_000,
    idleResponseTimeout: 15_000,
    idleTimeout: 4_000,
    maxConnections: IN_FLIGHT,
    maxHeadBytes: 65_536,
  };
  const rivals = [
    { name: 'own connection', upstream: new HttpClient(systemClock).createUpstream(options), figures: [] as number[] },
    { name: 'node:http', upstream: createNodeHttpUpstream(options, systemClock), figures: [] as number[] },
  ];
  for (const { upstream } of rivals) await measure(upstream, WARM_UP);
  for (let round = 0; round < ROUNDS; round++)
    for (const { upstream, figures } of rivals) figures.push(await measure(upstream, REQUESTS));
  for (const { name, figures } of rivals) {
    const all = figures.map((figure) => figure.toFixed(1)).join(' ');
    stdout.write(`${name}: ${toMedian(figures).toFixed(1)} µs CPU per request (${all})\n`);
  }
  const [own, rival] = rivals.map(({ figures }) => toMedian(figures));
  stdout.write(`ratio: ${((own ?? 0) / (rival ?? 1)).toFixed(2)}\n`);
  for (const { upstream } of rivals) upstream.close();
  child.kill();
  exit(0);
}

if (argv[2] === 'app') serve();
else await run();
