/**
 * Sends at a fixed rate regardless of the responses, and measures each response from the time at which the request was due. So a gate
 * that stalls is charged for all requests of that time (no coordinated omission).
 */
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { argv, hrtime, stdout } from 'node:process';
import { Worker } from 'node:worker_threads';
import type { PacerOptions } from './pacer.ts';
import { toQuantile } from './statistics.ts';

/** One run's outcome; times in milliseconds. */
export interface PacedResult {
  readonly sent: number;
  readonly statuses: Readonly<Record<string, number>>;
  /** Requests without a complete response at the end. */
  readonly failed: number;
  /** A request without a response counts with the time that it has waited, which is a lower bound. */
  readonly p50: number;
  readonly p99: number;
  readonly worst: number;
  /** How late the sender itself was at its 99th percentile: part of every figure above. */
  readonly senderLateP99: number;
}

const BEATS_PER_SECOND = 1_000;
const MOST_CONNECTIONS = 512;
const HEAD_END = '\r\n\r\n';
const LAST_CHUNK = '0\r\n\r\n';
const START_IN_NANOSECONDS = 300_000_000n;
const GRACE_MS = 5_000;
const NANOSECONDS_IN_MILLISECOND = 1e6;

type OnAnswer = (connection: Connection, status: string, due: bigint) => void;

/** A keep-alive connection with at most one request in flight. */
class Connection {
  readonly #socket: Socket;
  readonly #onAnswer: OnAnswer;
  #due: bigint | undefined;
  #text = '';

  constructor(port: number, onAnswer: OnAnswer, onLost: (connection: Connection) => void) {
    this.#onAnswer = onAnswer;
    this.#socket = connect({ port, host: '127.0.0.1', noDelay: true });
    this.#socket.setEncoding('latin1').on('data', (text: string) => this.#onData(text));
    this.#socket.on('error', () => this.#socket.destroy());
    this.#socket.once('close', () => onLost(this));
  }

  /** When the request in flight was due. */
  get due(): bigint | undefined {
    return this.#due;
  }

  send(request: Buffer, due: bigint): void {
    this.#due = due;
    this.#text = '';
    this.#socket.write(request);
  }

  close(): void {
    this.#socket.destroy();
  }

  #onData(text: string): void {
    this.#text += text;
    const due = this.#due;
    if (due === undefined || !isWhole(this.#text)) return;
    this.#due = undefined;
    this.#onAnswer(this, this.#text.slice(9, 12), due);
  }
}

/** Sufficient for the short responses of the benchmark's app and gates. */
function isWhole(text: string): boolean {
  const end = text.indexOf(HEAD_END);
  if (end === -1) return false;
  const length = /\r\ncontent-length: (\d+)/i.exec(text)?.[1];
  return length === undefined ? text.endsWith(LAST_CHUNK) : text.length >= end + HEAD_END.length + Number(length);
}

class Sender {
  readonly #port: number;
  readonly #requests: readonly Buffer[];
  readonly #latencies: number[] = [];
  readonly #lateness: number[] = [];
  readonly #statuses: Record<string, number> = {};
  readonly #idle: Connection[] = [];
  readonly #queue: { request: Buffer; due: bigint }[] = [];
  readonly #all = new Set<Connection>();
  /** When those were due whose connection broke. */
  readonly #lost: (bigint | undefined)[] = [];
  #sent = 0;

  constructor(port: number, requests: readonly Buffer[]) {
    this.#port = port;
    this.#requests = requests;
  }

  /** Sends each request once and unchanged, at `rate` per second, and resolves when all have a response or are given up. */
  run(rate: number): Promise<PacedResult> {
    const perBeat = Math.max(Math.round(rate / BEATS_PER_SECOND), 1);
    const options: PacerOptions = {
      startAt: hrtime.bigint() + START_IN_NANOSECONDS,
      everyNanoseconds: BigInt(Math.round((perBeat * 1e9) / rate)),
      beats: Math.floor(this.#requests.length / perBeat),
    };
    const pacer = new Worker(new URL('./pacer.ts', import.meta.url), { workerData: options });
    return new Promise((resolve, reject) => {
      const finish = (): void => {
        resolve(this.#sumUp());
        for (const connection of this.#all) connection.close();
      };
      const total = perBeat * options.beats;
      const check = setInterval(() => {
        if (this.#latencies.length < total) return;
        clearInterval(check);
        finish();
      }, 100);
      pacer.once('error', reject);
      pacer.on('message', (due: bigint) => this.#beat(due, perBeat));
      pacer.once('exit', () => {
        setTimeout(() => {
          clearInterval(check);
          finish();
        }, GRACE_MS).unref();
      });
    });
  }

  #beat(due: bigint, count: number): void {
    this.#lateness.push(toMilliseconds(hrtime.bigint() - due));
    for (let i = 0; i < count; i++) {
      const request = this.#requests[this.#sent] as Buffer;
      this.#sent++;
      const connection = this.#idle.pop() ?? this.#open();
      if (connection === undefined) this.#queue.push({ request, due });
      else connection.send(request, due);
    }
  }

  #open(): Connection | undefined {
    if (this.#all.size >= MOST_CONNECTIONS) return undefined;
    const connection = new Connection(
      this.#port,
      (from, status, due) => this.#onAnswer(from, status, due),
      (lost) => this.#onLost(lost),
    );
    this.#all.add(connection);
    return connection;
  }

  #onAnswer(connection: Connection, status: string, due: bigint): void {
    this.#latencies.push(toMilliseconds(hrtime.bigint() - due));
    this.#statuses[status] = (this.#statuses[status] ?? 0) + 1;
    const next = this.#queue.shift();
    if (next === undefined) this.#idle.push(connection);
    else connection.send(next.request, next.due);
  }

  #onLost(connection: Connection): void {
    this.#all.delete(connection);
    this.#lost.push(connection.due);
    const at = this.#idle.indexOf(connection);
    if (at !== -1) this.#idle.splice(at, 1);
  }

  #sumUp(): PacedResult {
    const now = hrtime.bigint();
    const unanswered = [...this.#lost, ...[...this.#all, ...this.#queue].map(({ due }) => due)];
    const waits = unanswered.filter((due) => due !== undefined).map((due) => toMilliseconds(now - due));
    const latencies = [...this.#latencies, ...waits];
    return {
      sent: this.#sent,
      statuses: this.#statuses,
      failed: this.#sent - this.#latencies.length,
      p50: toQuantile(latencies, 0.5),
      p99: toQuantile(latencies, 0.99),
      worst: toQuantile(latencies, 1),
      senderLateP99: toQuantile(this.#lateness, 0.99),
    };
  }
}

function toMilliseconds(nanoseconds: bigint): number {
  return Number(nanoseconds) / NANOSECONDS_IN_MILLISECOND;
}

function toRequests(listFile: string, body: Buffer): Buffer[] {
  const lines = readFileSync(listFile, 'latin1').split('\n').filter(Boolean);
  return lines.map((line) => {
    const [id, timestamp, signature] = line.split(' ');
    const head =
      'POST /hooks/billing HTTP/1.1\r\nHost: hooks.example\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\n' +
      `Content-Type: application/json\r\nContent-Length: ${body.length}\r\nWebhook-Id: ${id}\r\n` +
      `Webhook-Timestamp: ${timestamp}\r\nWebhook-Signature: ${signature}\r\n\r\n`;
    return Buffer.concat([Buffer.from(head, 'latin1'), body]);
  });
}

if (import.meta.main) {
  const [port, listFile, bodyFile, rate] = argv.slice(2);
  const requests = toRequests(listFile ?? '', readFileSync(bodyFile ?? ''));
  stdout.write(JSON.stringify(await new Sender(Number(port), requests).run(Number(rate))));
}
