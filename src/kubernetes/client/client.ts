/** A client for a cluster's API server: JSON over https with deadlines and size limits, and errors with the server's reason. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { KubeError, toKubeError } from './error.ts';
import { type ClusterAccess, type KubeResponse, Transport } from './transport.ts';

/** Content types of request bodies. */
export const CONTENT = {
  json: 'application/json',
  /** RFC 6902. */
  jsonPatch: 'application/json-patch+json',
  /** RFC 7396. */
  mergePatch: 'application/merge-patch+json',
  strategicMergePatch: 'application/strategic-merge-patch+json',
  /** Server-side apply; the query must contain `fieldManager`. The body is JSON, which is valid YAML. */
  apply: 'application/apply-patch+yaml',
} as const;

/** Requests only the metadata of an object, never its data: for Secrets. */
export const METADATA_ONLY_OBJECT = 'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1';

/** A path of the API, made by `toKubePath` only. */
export type KubePath = string & { readonly isEncoded: true };

/**
 * The path of `segments` below `root`, such as `/api/v1`. Names of objects are often untrusted: they are encoded, so that they change neither the
 * path nor the query. Throws KubeError (404) for a segment that no object can have as its name.
 */
export function toKubePath(root: string, ...segments: readonly string[]): KubePath {
  const encoded = segments.map((segment) => {
    if (['', '.', '..'].includes(segment)) throw new KubeError(404, 'NotFound', `"${segment}" is not the name of an object`);
    // The colon before the port of a pod or Service is allowed (RFC 3986 §3.3).
    return `/${encodeURIComponent(segment.toWellFormed()).replaceAll('%3A', ':')}`;
  });
  return `${root}${encoded.join('')}` as KubePath;
}

/** Options of a request. */
export interface RequestOptions {
  /** Sent as JSON. */
  readonly body?: unknown;
  /** Of the body. Default: `application/json`. */
  readonly contentType?: string;
  readonly query?: Query;
  readonly accept?: string;
  /** For the request and its whole response. Default: 15 s. */
  readonly timeout?: Milliseconds;
  /** Maximum size of the response in bytes. Default: 64 MiB. */
  readonly maxBytes?: number;
  /** Whether a pod responds, through the API server: it must not make the client wait or send the request again. */
  readonly isToPod?: boolean;
}

/** Query parameters; undefined ones are omitted. */
export type Query = Readonly<Record<string, string | number | boolean | undefined>>;

interface ObjectPage<T> {
  readonly items?: readonly T[] | null;
  readonly metadata?: { readonly continue?: string };
}

/** With the number of objects that a page may have. */
interface LimitedPage<T> extends ObjectPage<T> {
  readonly limit: number;
}

const TIMEOUT: Milliseconds = 15_000;
const MAX_BYTES = 67_108_864;
const PAGE_SIZE = 500;
const UNAUTHORIZED = 401;
const EXPIRED = 410;
const TOO_MANY = 429;
/** API Priority and Fairness sends `Retry-After: 1`. A much longer value must not delay the caller. */
const MAX_WAIT_SECONDS = 10;
const MAX_WAITS = 3;

/** Sends requests to one cluster. */
export class KubeClient {
  readonly #access: ClusterAccess;
  readonly #clock: Clock;
  readonly #transport: Transport;

  constructor(access: ClusterAccess, clock: Clock) {
    this.#access = access;
    this.#clock = clock;
    this.#transport = new Transport(access, clock);
  }

  /** Returns the parsed response. Rejects only with KubeError. */
  async request<T>(method: string, path: KubePath, options: RequestOptions = {}): Promise<T> {
    const { body } = await this.#send(method, path, { accept: CONTENT.json, ...options });
    try {
      return JSON.parse(body.toString('utf8')) as T;
    } catch {
      throw new KubeError(0, 'NotUnderstood', `${method} ${path}: the response is not JSON`);
    }
  }

  /** Returns what a pod serves, `pod` being `name:port`, through the API server. Rejects like `request`, but the status may be the pod's. */
  async readPod(namespace: string, pod: string, path: string, options: RequestOptions = {}): Promise<string> {
    const proxy = toKubePath('/api/v1', 'namespaces', namespace, 'pods', pod, 'proxy', path);
    const { body } = await this.#send('GET', proxy, { accept: '*/*', isToPod: true, ...options });
    return body.toString('utf8');
  }

  /** Returns all objects of a list, read page by page. If the list's continue token expires, the whole list is read again in one request. */
  async list<T>(
    path: KubePath,
    query: Query = {},
    options: Pick<RequestOptions, 'accept' | 'timeout'> & {
      /** Maximum number of objects in one response. Default: 500. */
      readonly pageSize?: number;
    } = {},
  ): Promise<T[]> {
    const { pageSize = PAGE_SIZE, ...rest } = options;
    const found: T[] = [];
    let limit = pageSize;
    let token: string | undefined;
    do {
      try {
        const page: LimitedPage<T> = await this.#readPage(path, { ...query, limit, continue: token }, rest);
        found.push(...(page.items ?? []));
        token = page.metadata?.continue || undefined;
        limit = page.limit;
      } catch (thrown) {
        if (token === undefined || !(thrown instanceof KubeError && thrown.status === EXPIRED)) throw thrown;
        const whole: ObjectPage<T> = await this.request('GET', path, { ...rest, query });
        return [...(whole.items ?? [])];
      }
    } while (token !== undefined);
    return found;
  }

  /** Halves a page that is too large: anyone who may create large objects could otherwise make a list unreadable. */
  async #readPage<T>(path: KubePath, query: Query & { limit: number }, options: RequestOptions): Promise<LimitedPage<T>> {
    const { limit } = query;
    try {
      return { ...(await this.request<ObjectPage<T>>('GET', path, { ...options, query })), limit };
    } catch (thrown) {
      if (!(thrown instanceof KubeError && thrown.reason === 'TooLarge') || limit === 1) throw thrown;
      return this.#readPage(path, { ...query, limit: Math.floor(limit / 2) }, options);
    }
  }

  /** Closes idle connections, and ends the kubectl of the access. */
  close(): void {
    this.#transport.close();
  }

  async #send(method: string, path: KubePath, options: RequestOptions): Promise<KubeResponse> {
    const { body, contentType = CONTENT.json, accept = CONTENT.json, isToPod = false } = options;
    const request = {
      method,
      path: `${path}${toQuery(options.query)}`,
      accept,
      content: body === undefined ? undefined : { type: contentType, bytes: Buffer.from(JSON.stringify(body)) },
      timeout: options.timeout ?? TIMEOUT,
      maxBytes: options.maxBytes ?? MAX_BYTES,
      isToPod,
    };
    let isRejected = isToPod;
    for (let waits = isToPod ? MAX_WAITS : 0; ; ) {
      const response = await this.#transport.send(request, await this.#token());
      if (response.status === UNAUTHORIZED && !isRejected) {
        // The token may have been rotated since it was read, so try once more with fresh credentials.
        isRejected = true;
      } else if (response.status === TOO_MANY && waits < MAX_WAITS && response.retryAfter !== undefined) {
        waits++;
        await this.#wait(response.retryAfter);
      } else {
        return toAccepted(response, `${method} ${path}`, this.#access.kind === 'kubectl');
      }
    }
  }

  async #token(): Promise<string | undefined> {
    try {
      return this.#access.kind === 'kubectl' ? undefined : await this.#access.token();
    } catch (thrown) {
      throw new KubeError(0, 'NoCredentials', thrown instanceof Error ? thrown.message : 'the token cannot be read');
    }
  }

  #wait(seconds: number): Promise<void> {
    return new Promise((resolve) => {
      this.#clock.after(Math.min(seconds, MAX_WAIT_SECONDS) * 1_000, resolve);
    });
  }
}

function toAccepted(response: KubeResponse, request: string, isThroughKubectl: boolean): KubeResponse {
  const { status, body, type } = response;
  if (status >= 200 && status < 300) return response;
  // An API server never redirects. Following a redirect would send the credentials to another host.
  if (status >= 300 && status < 400)
    throw new KubeError(status, 'Redirected', `${request}: the server sent a redirect (${status}), which is not followed`);
  const isOfKubectl = isThroughKubectl && status === 500 && type?.startsWith('text/plain') === true;
  throw toKubeError(status, body, request, isOfKubectl);
}

function toQuery(query: Query = {}): string {
  const given = Object.entries(query).flatMap(([name, value]): [string, string][] =>
    value === undefined ? [] : [[name, String(value)]],
  );
  return given.length === 0 ? '' : `?${new URLSearchParams(given)}`;
}
