/** Talks to a cluster's API server: JSON over https with deadlines and bounds, and errors that tell its reason. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { ClusterAccess } from './access.ts';
import { KubeError, toKubeError } from './error.ts';
import { type Answer, Transport } from './transport.ts';

/** Content types of changes. */
export const CONTENT = {
  json: 'application/json',
  /** RFC 6902. */
  jsonPatch: 'application/json-patch+json',
  /** RFC 7396. */
  mergePatch: 'application/merge-patch+json',
  strategicMergePatch: 'application/strategic-merge-patch+json',
  /** Server-side apply; the query names `fieldManager`. JSON is YAML. */
  apply: 'application/apply-patch+yaml',
} as const;

/** Asks for the name and labels of an object alone, never for what it holds: for Secrets. */
export const METADATA_ONLY_OBJECT = 'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1';

/** What a request may have beside its method and path. */
export interface RequestOptions {
  /** Becomes JSON. */
  readonly body?: unknown;
  /** Of the body; `application/json` if left out. */
  readonly contentType?: string;
  readonly query?: Query;
  readonly accept?: string;
  /** For all of it, answer and all; 15 s if left out. */
  readonly timeout?: Milliseconds;
  /** Bytes that the answer may have; 64 MiB if left out. */
  readonly maxBytes?: number;
}

/** Parameters of a URL; undefined ones are left out. */
export type Query = Readonly<Record<string, string | number | boolean | undefined>>;

/** How a list is asked for. */
export interface ListOptions extends Pick<RequestOptions, 'accept' | 'timeout'> {
  /** Objects in one answer; 500 if left out. */
  readonly pageSize?: number;
}

interface Page<T> {
  readonly items?: readonly T[] | null;
  readonly metadata?: { readonly continue?: string };
}

const TIMEOUT: Milliseconds = 15_000;
const MAX_BYTES = 67_108_864;
const PAGE_SIZE = 500;
const UNAUTHORIZED = 401;
const EXPIRED = 410;
const TOO_MANY = 429;
/** API Priority and Fairness asks for one second; whoever asks for much more would hold up what waits for us. */
const LONGEST_WAIT_SECONDS = 10;
const MOST_WAITS = 3;

/** One cluster. */
export class KubeClient {
  readonly #access: ClusterAccess;
  readonly #clock: Clock;
  readonly #transport: Transport;

  constructor(access: ClusterAccess, clock: Clock) {
    this.#access = access;
    this.#clock = clock;
    this.#transport = new Transport(access, clock);
  }

  /** The parsed answer. Rejects with KubeError and nothing else. */
  async request<T>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
    const { body } = await this.#ask(method, path, { accept: CONTENT.json, ...options });
    try {
      return JSON.parse(body.toString('utf8')) as T;
    } catch {
      throw new KubeError(0, 'NotUnderstood', `${method} ${path}: the answer is no JSON`);
    }
  }

  /** The answer as text, for what is no JSON: a pod's metrics, a log. Rejects like `request`. */
  async text(path: string, options: RequestOptions = {}): Promise<string> {
    const { body } = await this.#ask('GET', path, { accept: '*/*', ...options });
    return body.toString('utf8');
  }

  /** All objects of a list, page by page; one whose pages expired on the way is asked for anew, in one piece. */
  async list<T>(path: string, query: Query = {}, options: ListOptions = {}): Promise<T[]> {
    const { pageSize = PAGE_SIZE, ...rest } = options;
    const found: T[] = [];
    let token: string | undefined;
    do {
      try {
        const page: Page<T> = await this.request('GET', path, { ...rest, query: { ...query, limit: pageSize, continue: token } });
        found.push(...(page.items ?? []));
        token = page.metadata?.continue || undefined;
      } catch (thrown) {
        if (token === undefined || !(thrown instanceof KubeError && thrown.status === EXPIRED)) throw thrown;
        const whole: Page<T> = await this.request('GET', path, { ...rest, query });
        return [...(whole.items ?? [])];
      }
    } while (token !== undefined);
    return found;
  }

  /** Closes idle connections. */
  close(): void {
    this.#transport.close();
  }

  async #ask(method: string, path: string, options: RequestOptions): Promise<Answer> {
    const { body, contentType = CONTENT.json, accept = CONTENT.json, timeout = TIMEOUT, maxBytes = MAX_BYTES } = options;
    const request = {
      method,
      path: `${path}${toQuery(options.query)}`,
      accept,
      content: body === undefined ? undefined : { type: contentType, bytes: Buffer.from(JSON.stringify(body)) },
      timeout,
      maxBytes,
    };
    let isRefused = false;
    for (let waits = 0; ; ) {
      const answer = await this.#transport.send(request, await this.#credentials(isRefused));
      if (answer.status === UNAUTHORIZED && !isRefused) {
        // A token may have been rotated since it was read: once, with what is valid now.
        isRefused = true;
      } else if (answer.status === TOO_MANY && waits < MOST_WAITS && answer.retryAfter !== undefined) {
        waits++;
        await this.#wait(answer.retryAfter);
      } else {
        return accepted(answer, `${method} ${path}`);
      }
    }
  }

  async #credentials(isRefused: boolean): ReturnType<ClusterAccess['credentials']> {
    try {
      return await this.#access.credentials(isRefused);
    } catch (thrown) {
      if (thrown instanceof KubeError) throw thrown;
      throw new KubeError(0, 'NoCredentials', thrown instanceof Error ? thrown.message : 'there are no credentials');
    }
  }

  #wait(seconds: number): Promise<void> {
    return new Promise((resolve) => {
      this.#clock.after(Math.min(seconds, LONGEST_WAIT_SECONDS) * 1_000, resolve);
    });
  }
}

function accepted(answer: Answer, request: string): Answer {
  const { status, body } = answer;
  if (status >= 200 && status < 300) return answer;
  // Whoever may redirect us may have our credentials: no API server does.
  if (status >= 300 && status < 400)
    throw new KubeError(status, 'Redirected', `${request}: the answer points elsewhere (${status})`);
  throw toKubeError(status, body, request);
}

function toQuery(query: Query = {}): string {
  const given = Object.entries(query).flatMap(([name, value]): [string, string][] =>
    value === undefined ? [] : [[name, String(value)]],
  );
  return given.length === 0 ? '' : `?${new URLSearchParams(given)}`;
}
