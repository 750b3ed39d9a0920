/** A client of the provider's API for commands: authorized requests, and errors that say what to do. */
import { readFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { request as openHttp } from 'node:http';
import { request as openHttps } from 'node:https';
import type { Command } from 'commander';
import { readSecret } from '../config/sources/secrets.ts';
import type { Milliseconds } from '../core/clock.ts';
import { SidegateError, toErrorText, usageError } from '../core/errors.ts';
import { onEvent } from '../core/safe-events.ts';
import { toTimeout } from './input.ts';
import type { Io } from './io.ts';

/** Options of all commands that use the API. */
export interface ProviderOptions {
  readonly provider: string;
  readonly tokenEnv?: string;
  readonly tokenFile?: string;
  readonly user?: string;
  readonly passwordEnv?: string;
  readonly passwordFile?: string;
  readonly ca?: string;
  readonly timeout: string;
}

/** The API did not do what was asked. */
export class ApiFailure extends Error {}

const MAX_RESPONSE_BYTES = 16 * 1024 * 1024;
const MAX_LINE_LENGTH = 65_536;
const FORBIDDEN_PATH = /[?#]/;

/** Adds the options to a command. */
export function withProvider(command: Command): Command {
  return command
    .option('--provider <url>', 'URL of the API (provider.address)', 'http://127.0.0.1:8482')
    .option('--token-env <name>', 'environment variable with the token (provider.token)')
    .option('--token-file <file>', 'file with the token')
    .option('--user <name>', 'user of the API (provider.basic), instead of a token')
    .option('--password-env <name>', 'environment variable with the password of the user')
    .option('--password-file <file>', 'file with the password of the user')
    .option('--ca <file>', 'certificates of trusted CAs, PEM')
    .option('--timeout <duration>', 'how long to wait for a response', '30s');
}

/** Sends requests to one provider. */
export class ProviderClient {
  readonly #base: URL;
  readonly #authorization: string | undefined;
  readonly #ca: string | undefined;
  readonly #timeout: Milliseconds;

  private constructor(base: URL, authorization: string | undefined, ca: string | undefined, timeout: Milliseconds) {
    this.#base = base;
    this.#authorization = authorization;
    this.#ca = ca;
    this.#timeout = timeout;
  }

  /** Reads the credentials and the CA; throws a usage error. */
  static async create(options: ProviderOptions, command: string, io: Io): Promise<ProviderClient> {
    const ca = options.ca === undefined ? undefined : await readCa(options.ca);
    const timeout = toTimeout(options.timeout, command, io);
    return new ProviderClient(parseBase(options.provider), await readAuthorization(options), ca, timeout);
  }

  /** Returns the JSON of a successful response, undefined if it has none; throws ApiFailure. */
  async request(method: string, path: string, body?: unknown): Promise<unknown> {
    const incoming = await this.#open(method, path, body);
    const text = await readText(incoming);
    if ((incoming.statusCode ?? 0) >= 400) throw this.#toFailure(incoming, text);
    try {
      return text === '' ? undefined : JSON.parse(text);
    } catch {
      throw this.#toStranger();
    }
  }

  /** Yields the lines of a stream as JSON; throws ApiFailure. */
  async *stream(path: string, body: unknown): AsyncGenerator<unknown> {
    const incoming = await this.#open('POST', path, body);
    if (incoming.statusCode !== 200) throw this.#toFailure(incoming, await readText(incoming));
    let rest = '';
    try {
      for await (const chunk of incoming.setEncoding('utf8') as AsyncIterable<string>) {
        const lines = `${rest}${chunk}`.split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) yield JSON.parse(line);
        if (rest.length > MAX_LINE_LENGTH) throw this.#toStranger();
      }
    } catch (thrown) {
      throw thrown instanceof ApiFailure ? thrown : this.#toUnreachable(thrown);
    }
  }

  #open(method: string, path: string, body: unknown): Promise<IncomingMessage> {
    const url = new URL(path, this.#base);
    const text = body === undefined ? undefined : JSON.stringify(body);
    const headers = {
      Accept: 'application/json, application/x-ndjson',
      ...(text === undefined ? undefined : { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) }),
      ...(this.#authorization === undefined ? undefined : { Authorization: this.#authorization }),
    };
    return new Promise((resolve, reject) => {
      const fail = (thrown: unknown): void => reject(this.#toUnreachable(thrown));
      const open = url.protocol === 'https:' ? openHttps : openHttp;
      const outgoing = open(url, {
        method,
        headers,
        timeout: this.#timeout,
        ...(this.#ca === undefined ? undefined : { ca: this.#ca }),
      });
      // After silence, not in total: a replay takes as long as it takes.
      onEvent(outgoing, 'timeout', () => outgoing.destroy(new Error(`no response for ${this.#timeout / 1_000} s`)));
      onEvent(outgoing, 'response', resolve);
      onEvent(outgoing, 'error', fail);
      outgoing.end(text);
    });
  }

  #toUnreachable(thrown: unknown): ApiFailure {
    const why = (thrown as NodeJS.ErrnoException).code ?? toErrorText(thrown);
    return new ApiFailure(
      `no response from ${this.#base.origin}: ${why}; check that sidegate runs with a provider section, and --provider`,
    );
  }

  #toStranger(): ApiFailure {
    return new ApiFailure(`${this.#base.origin} is not the API of sidegate's provider; check --provider`);
  }

  #toFailure({ statusCode = 0, headers }: IncomingMessage, text: string): ApiFailure {
    if (statusCode === 401) return new ApiFailure(`not authorized by ${this.#base.origin}: ${this.#toHint()}`);
    if (headers['content-type'] !== 'application/problem+json') return this.#toStranger();
    const { detail, errors = [] } = JSON.parse(text) as { detail: string; errors?: { field: string; message: string }[] };
    const [, ...others] = errors.map(({ field, message }) => `\n  ${field === '' ? 'the body' : field}: ${message}`);
    return new ApiFailure(`${detail}${others.join('')}`);
  }

  #toHint(): string {
    if (this.#authorization === undefined) return 'use --token-file FILE or --token-env NAME, or --user NAME with a password';
    const isBearer = this.#authorization.startsWith('Bearer');
    return isBearer ? 'the token is not that of provider.token' : 'provider.basic has no such user, or the password is wrong';
  }
}

/** An ID as a part of a path. */
export function toSegment(id: string): string {
  return encodeURIComponent(id);
}

async function readText(incoming: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of incoming as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > MAX_RESPONSE_BYTES) throw new ApiFailure(`the response has more than ${MAX_RESPONSE_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function parseBase(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !['http:', 'https:'].includes(url.protocol) || FORBIDDEN_PATH.test(text))
    throw usageError(`--provider ${text} is not an http or https URL; example: http://127.0.0.1:8482`);
  return url;
}

/** Never from an argument, except for the user name: every user of the machine can read arguments. */
async function readAuthorization(options: ProviderOptions): Promise<string | undefined> {
  const { user, tokenEnv, tokenFile, passwordEnv, passwordFile } = options;
  const token = await readOne(tokenEnv, tokenFile, 'token');
  const password = await readOne(passwordEnv, passwordFile, 'password');
  if ((user === undefined) !== (password === undefined))
    throw usageError('use --user together with --password-env or --password-file');
  if (user === undefined || password === undefined) return token === undefined ? undefined : `Bearer ${token.toString('latin1')}`;
  if (token !== undefined) throw usageError('use either a token or a user with a password');
  if (user.includes(':')) throw usageError(`--user ${user} contains a colon, which no user name has (RFC 7617)`);
  return `Basic ${Buffer.concat([Buffer.from(`${user}:`), password]).toString('base64')}`;
}

async function readOne(env: string | undefined, file: string | undefined, what: string): Promise<Buffer | undefined> {
  if (env !== undefined && file !== undefined) throw usageError(`use either --${what}-env or --${what}-file`);
  if (env === undefined && file === undefined) return undefined;
  const read = await readSecret(env === undefined ? { file: file ?? '' } : { env });
  if ('problem' in read) throw usageError(read.problem);
  return read.secret.expose();
}

async function readCa(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (thrown) {
    throw new SidegateError(
      'user',
      'usage',
      `cannot read --ca ${file} (${(thrown as NodeJS.ErrnoException).code ?? 'unknown reason'})`,
    );
  }
}
