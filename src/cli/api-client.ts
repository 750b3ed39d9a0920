/** A client of the JSON APIs of a running sidegate: authorized requests, and errors that say what to do. */
import type { IncomingMessage } from 'node:http';
import type { Milliseconds } from '../core/clock.ts';
import { toErrorText } from '../core/errors.ts';
import { openRequest, readText } from './http-request.ts';

/** Which API a client uses. */
export interface ApiTarget {
  /** The option with its URL. */
  readonly option: '--provider' | '--admin';
  readonly url: URL;
  /** Before the paths of all operations. */
  readonly prefix: string;
}

/** How a client reaches and authorizes itself at an API. */
interface ApiConnection {
  readonly target: ApiTarget;
  /** The value of `Authorization`. */
  readonly authorization: string | undefined;
  readonly ca: string | undefined;
  readonly timeout: Milliseconds;
}

/** An event of a stream of server-sent events. */
export interface StreamEvent {
  readonly name: string;
  readonly id: string;
  readonly data: string;
}

/** The API did not do what was asked. */
export class ApiFailure extends Error {
  /** Of the response; 0: no response. */
  readonly status: number;

  constructor(message: string, status = 0) {
    super(message);
    this.status = status;
  }
}

const MAX_RESPONSE_BYTES = 16 * 1024 * 1024;
const MAX_LINE_LENGTH = 65_536;
/** Events of a stream: rows of requests with long paths. */
const MAX_EVENT_LENGTH = 1_048_576;
/** The server sends something at least every 15 s. */
const MIN_STREAM_TIMEOUT_MS: Milliseconds = 45_000;
const SUCCESS = /^2/;

const TEXTS = {
  '--provider': {
    name: "the API of sidegate's provider",
    check: 'check that sidegate runs with a provider section, and --provider',
    token: 'provider.token',
    users: 'provider.basic',
  },
  '--admin': {
    name: 'the admin port of sidegate',
    check: 'check that sidegate runs, that a port-forward to its admin port is open, and --admin',
    token: 'admin.token',
    users: 'admin.basic',
  },
} as const;

/** Sends requests to one API. */
export class ApiClient {
  readonly #connection: ApiConnection;

  constructor(connection: ApiConnection) {
    this.#connection = connection;
  }

  /** Returns the JSON of a successful response, undefined if it has none (204); throws ApiFailure. */
  async request(method: string, path: string, body?: unknown): Promise<unknown> {
    const incoming = await this.#open(method, path, { body });
    const text = await this.#read(incoming);
    if (!SUCCESS.test(String(incoming.statusCode))) throw this.#toFailure(method, incoming, text);
    if (incoming.statusCode === 204) return undefined;
    return this.#parse(text);
  }

  /** Yields the lines of a long action as JSON; throws ApiFailure. */
  async *stream(path: string, body: unknown): AsyncGenerator<unknown> {
    const incoming = await this.#open('POST', path, { body });
    if (incoming.statusCode !== 200) throw this.#toFailure('POST', incoming, await this.#read(incoming));
    for await (const line of this.#readLines(incoming, MAX_LINE_LENGTH)) yield this.#parse(line);
  }

  /**
   * Opens a stream of server-sent events; `lastId`: continues after that event. It ends when the server closes it; its iteration throws
   * ApiFailure if the connection breaks.
   */
  async openEvents(path: string, lastId: string | undefined, signal?: AbortSignal): Promise<AsyncGenerator<StreamEvent>> {
    const headers = { Accept: 'text/event-stream', ...(lastId !== undefined && { 'Last-Event-ID': lastId }) };
    const timeout = Math.max(this.#connection.timeout, MIN_STREAM_TIMEOUT_MS);
    const incoming = await this.#open('GET', path, { headers, timeout, signal });
    if (incoming.statusCode !== 200) throw this.#toFailure('GET', incoming, await this.#read(incoming));
    return toEvents(this.#readLines(incoming, MAX_EVENT_LENGTH));
  }

  /** The response is not one of the API. */
  toStranger(): ApiFailure {
    const { option, url } = this.#connection.target;
    return new ApiFailure(`${url.origin} is not ${TEXTS[option].name}; check ${option}`);
  }

  async #open(
    method: string,
    path: string,
    request: {
      body?: unknown;
      headers?: Readonly<Record<string, string>>;
      timeout?: Milliseconds;
      signal?: AbortSignal | undefined;
    },
  ): Promise<IncomingMessage> {
    const { body, headers, timeout, signal } = request;
    const { target, authorization, ca, timeout: usual } = this.#connection;
    const { url, prefix } = target;
    const base = url.pathname.endsWith('/') ? url.pathname.slice(0, -1) : url.pathname;
    try {
      return await openRequest({
        method,
        url: new URL(`${base}${prefix}${path}`, url),
        headers: {
          Accept: 'application/json, application/x-ndjson',
          ...headers,
          ...(authorization === undefined ? undefined : { Authorization: authorization }),
        },
        body: body === undefined ? undefined : JSON.stringify(body),
        timeout: timeout ?? usual,
        ca,
        signal,
      });
    } catch (thrown) {
      throw this.#toUnreachable(thrown);
    }
  }

  async #read(incoming: IncomingMessage): Promise<string> {
    const text = await readText(incoming, MAX_RESPONSE_BYTES).catch((thrown: unknown) => {
      throw this.#toUnreachable(thrown);
    });
    if (text === undefined) throw new ApiFailure(`the response has more than ${MAX_RESPONSE_BYTES} bytes`);
    return text;
  }

  async *#readLines(incoming: IncomingMessage, maxLength: number): AsyncGenerator<string> {
    let rest = '';
    try {
      for await (const chunk of incoming.setEncoding('utf8') as AsyncIterable<string>) {
        const lines = `${rest}${chunk}`.split('\n');
        rest = lines.pop() ?? '';
        if (rest.length > maxLength) throw this.toStranger();
        yield* lines;
      }
    } catch (thrown) {
      throw thrown instanceof ApiFailure ? thrown : this.#toUnreachable(thrown);
    }
  }

  #parse(text: string): unknown {
    try {
      return JSON.parse(text);
    } catch {
      throw this.toStranger();
    }
  }

  #toUnreachable(thrown: unknown): ApiFailure {
    const { option, url } = this.#connection.target;
    const why = (thrown as NodeJS.ErrnoException).code ?? toErrorText(thrown);
    return new ApiFailure(`no response from ${url.origin}: ${why}; ${TEXTS[option].check}`);
  }

  #toFailure(method: string, { statusCode = 0, headers }: IncomingMessage, text: string): ApiFailure {
    if (statusCode === 401)
      return new ApiFailure(`not authorized by ${this.#connection.target.url.origin}: ${this.#toHint(method)}`, statusCode);
    const problem = headers['content-type'] === 'application/problem+json' ? (this.#parse(text) as ProblemDetails | null) : null;
    if (typeof problem?.detail !== 'string') return this.toStranger();
    const errors = Array.isArray(problem.errors) ? problem.errors : [];
    const [, ...others] = errors.map((each) => `\n  ${each?.field || 'the body'}: ${each?.message}`);
    return new ApiFailure(`${problem.detail}${others.join('')}`, statusCode);
  }

  #toHint(method: string): string {
    const { authorization, target } = this.#connection;
    const { token, users } = TEXTS[target.option];
    if (authorization?.startsWith('Basic') === true) return `${users} has no such user, or the password is wrong`;
    if (target.option === '--admin' && method !== 'GET')
      return `only users can act: use --user NAME with --password-file FILE or --password-env NAME (${users})`;
    if (authorization === undefined) return 'use --token-file FILE or --token-env NAME, or --user NAME with a password';
    return `the token is not that of ${token}`;
  }
}

interface ProblemDetails {
  readonly detail?: unknown;
  readonly errors?: readonly ({ readonly field?: string; readonly message?: string } | null)[];
}

/** Parses the lines of a stream (HTML Standard, "Server-sent events"). */
async function* toEvents(lines: AsyncGenerator<string>): AsyncGenerator<StreamEvent> {
  let [name, id, data] = ['message', '', ''];
  for await (const line of lines) {
    if (line === '') {
      if (data !== '') yield { name, id, data };
      [name, data] = ['message', ''];
    }
    if (line.startsWith('event: ')) name = line.slice('event: '.length);
    if (line.startsWith('id: ')) id = line.slice('id: '.length);
    if (line.startsWith('data: ')) data = line.slice('data: '.length);
  }
}

/** An ID as a part of a path. */
export function toSegment(id: string): string {
  return encodeURIComponent(id);
}

/** The parameters that are given; a list is a repeated one. */
export function toQuery(given: Readonly<Record<string, string | readonly string[] | undefined>>): URLSearchParams {
  const query = new URLSearchParams();
  for (const [name, value = []] of Object.entries(given)) for (const each of [value].flat()) query.append(name, each);
  return query;
}

/** Reads the pages of a list, at most `limit` entries; `position`: the member with the next position, and the parameter that continues there. */
export async function readPages<T>(
  client: ApiClient,
  path: string,
  query = new URLSearchParams(),
  { limit = Number.POSITIVE_INFINITY, position = 'iterator' }: { limit?: number; position?: 'iterator' | 'cursor' } = {},
): Promise<T[]> {
  const all: T[] = [];
  let next: unknown;
  let emptyPages = 0;
  do {
    const wanted = Math.min(MAX_PAGE, limit - all.length);
    query.set('limit', String(wanted));
    if (typeof next === 'string') query.set(position, next);
    const page = (await client.request('GET', `${path}?${query}`)) as Readonly<Record<string, unknown>> | null;
    const data = page?.['data'];
    if (!Array.isArray(data)) throw client.toStranger();
    all.push(...(data as T[]).slice(0, wanted));
    emptyPages = data.length === 0 ? emptyPages + 1 : 0;
    if (emptyPages > MAX_EMPTY_PAGES)
      throw new ApiFailure(`the list does not end: it has more than ${MAX_EMPTY_PAGES} empty pages in a row`);
    next = page?.[position];
  } while (typeof next === 'string' && all.length < limit);
  return all;
}

const MAX_PAGE = 250;
/** A filter that selects little makes the queue send empty pages, each of up to 50,000 deliveries that it looked at. */
const MAX_EMPTY_PAGES = 1_000;
