/** An app that verifies deliveries by itself, soundly, and whose habits a test can spoil one at a time. */
import { createHmac } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { SECRET, unixNow } from './deliveries.ts';

/** A request, as the habits see it. */
export interface Incoming {
  readonly rawHeaders: readonly string[];
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
}

/** How the app goes about it. */
export interface Habits {
  /** The value of a header; undefined refuses. */
  readField(request: Incoming, name: string): string | undefined;
  toContent(request: Incoming): Buffer;
  isTaken(request: Incoming): boolean;
  /** Unix seconds; undefined refuses. */
  parseTime(text: string): number | undefined;
  toSignedTime(text: string, seconds: number): string;
  isRecent(ageSeconds: number): boolean;
  isSoundId(id: string): boolean;
  toSigned(id: string, time: string, body: Buffer): Buffer;
  /** Undefined refuses. */
  toEntries(list: string): readonly string[] | undefined;
  isSame(entry: string, right: string): boolean;
  secrets: readonly string[];
  /** Without any of the above. */
  trusts(request: Incoming): boolean;
  remembers: 'at once' | 'after a while' | 'never';
  refuse(response: ServerResponse, right: string): void;
  accept(response: ServerResponse, isDuplicate: boolean): void;
}

/** A running consumer. */
export interface Consumer {
  readonly url: string;
  /** How often each id was handled. */
  readonly handled: ReadonlyMap<string, number>;
  close(): Promise<void>;
}

const TWINS = ['svix-id', 'svix-timestamp', 'svix-signature'];
/** Long enough for requests that were sent at once to be under way together. */
const A_WHILE_MS = 100;

/** Does everything right. */
export const SOUND: Habits = {
  readField: ({ headers, rawHeaders }, name) => {
    const count = rawHeaders.filter((each, at) => at % 2 === 0 && each.toLowerCase() === name).length;
    return count === 1 && !TWINS.some((twin) => twin in headers) ? String(headers[name]) : undefined;
  },
  toContent: ({ body }) => body,
  isTaken: ({ headers }) => /^application\/json\s*(;|$)/i.test(headers['content-type'] ?? ''),
  parseTime: (text) => (/^[0-9]{1,12}$/.test(text) ? Number(text) : undefined),
  toSignedTime: (text) => text,
  isRecent: (age) => Math.abs(age) <= 300,
  isSoundId: (id) => /^[\x21-\x2d\x2f-\x7e]{1,256}$/.test(id),
  toSigned: (id, time, body) => Buffer.concat([Buffer.from(`${id}.${time}.`), body]),
  toEntries: (list) => (list.split(' ').length > 10 ? undefined : list.split(' ')),
  isSame: (entry, right) => entry === `v1,${right}`,
  secrets: [SECRET.replace('whsec_', '')],
  trusts: () => false,
  remembers: 'at once',
  refuse: (response) => response.writeHead(401).end(),
  accept: (response) => response.writeHead(204).end(),
};

/** Starts it on a free port; `now` in unix seconds. */
export async function startConsumer(over: Partial<Habits> = {}, now: () => number = unixNow): Promise<Consumer> {
  const habits = { ...SOUND, ...over };
  const handled = new Map<string, number>();
  const handle = (id: string): unknown => handled.set(id, (handled.get(id) ?? 0) + 1);
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const { headers, rawHeaders } = request;
      const incoming = { headers, rawHeaders, body: Buffer.concat(chunks) };
      try {
        const { id, right } = judge(habits, incoming, now());
        if (id === undefined) habits.refuse(response, right);
        else
          take(
            habits,
            handled.has(id),
            () => handle(id),
            (isDuplicate) => habits.accept(response, isDuplicate),
          );
      } catch (thrown) {
        response.writeHead(500).end(thrown instanceof Error ? thrown.stack : '');
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hooks`,
    handled,
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function take({ remembers }: Habits, isKnown: boolean, handle: () => void, answer: (isDuplicate: boolean) => void): void {
  if (remembers === 'never' || !isKnown) {
    if (remembers !== 'after a while') handle();
    else {
      setTimeout(() => {
        handle();
        answer(false);
      }, A_WHILE_MS);
      return;
    }
  }
  answer(isKnown);
}

/** The id of a genuine delivery; and the signature that would be right, as careless apps print it. */
function judge(habits: Habits, incoming: Incoming, now: number): { id: string | undefined; right: string } {
  const read = (name: string): string | undefined => habits.readField(incoming, name);
  const [id, time, list] = [read('webhook-id'), read('webhook-timestamp'), read('webhook-signature')];
  if (habits.trusts(incoming)) return { id: id ?? 'none', right: '' };
  if (id === undefined || time === undefined || list === undefined || !habits.isTaken(incoming))
    return { id: undefined, right: '' };
  const seconds = habits.parseTime(time);
  if (seconds === undefined || !habits.isRecent(now - seconds) || !habits.isSoundId(id)) return { id: undefined, right: '' };
  const signed = habits.toSigned(id, habits.toSignedTime(time, seconds), habits.toContent(incoming));
  const rights = habits.secrets.map((secret) =>
    createHmac('sha256', Buffer.from(secret, 'base64')).update(signed).digest('base64'),
  );
  const entries = habits.toEntries(list) ?? [];
  const isGenuine = rights.some((right) => entries.some((entry) => habits.isSame(entry, right)));
  return { id: isGenuine ? id : undefined, right: rights[0] ?? '' };
}
