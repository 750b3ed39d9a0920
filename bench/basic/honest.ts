/** The legitimate clients of a storm: one sends requests with a known password, one sends requests without a password, each at a fixed rate. */
import { readFileSync } from 'node:fs';
import { argv, stdout } from 'node:process';
import { type PacedResult, sendAtRate } from '../open-loop.ts';

/** The input. */
export interface HonestOptions {
  readonly port: number;
  readonly path: string;
  /** Requests per second of each client. */
  readonly rate: number;
  readonly seconds: number;
  /** The participants, each with a file of requests. */
  readonly files: Readonly<Record<string, string>>;
}

/** The results by participant. */
export type HonestResult = Readonly<Record<string, PacedResult>>;

function toRequests(file: string, { path, rate, seconds }: HonestOptions): Buffer[] {
  const lines = readFileSync(file, 'latin1').split('\n').slice(0, -1);
  const start = `GET ${path} HTTP/1.1\r\nHost: app.example\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\n`;
  return Array.from({ length: rate * seconds }, (_, i) => {
    const fields = (lines[i % lines.length] as string).split('\t').filter(Boolean);
    return Buffer.from(`${start}${fields.map((field) => `${field}\r\n`).join('')}\r\n`, 'latin1');
  });
}

if (import.meta.main) {
  const options = JSON.parse(argv[2] ?? '') as HonestOptions;
  const senders = Object.entries(options.files).map(
    async ([name, file]) => [name, await sendAtRate(options.port, toRequests(file, options), options.rate)] as const,
  );
  stdout.write(JSON.stringify(Object.fromEntries(await Promise.all(senders))));
}
