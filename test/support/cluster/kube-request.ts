/** Plain HTTPS requests to an API server, for tests: no status is an error of its own. */
import { Agent, request as httpsRequest } from 'node:https';

/** An object of the API, or a list, or a Status. */
// biome-ignore lint/suspicious/noExplicitAny: tests reach deep into objects whose form the API server itself has checked
export type Kube = any;

/** What is needed to talk to an API server. */
export interface Access {
  /** For example https://127.0.0.1:6443 */
  readonly server: string;
  /** PEM of the authority that signed its certificate. */
  readonly ca: string;
  readonly token: string;
}

/** How it answered. */
export interface Answer {
  readonly status: number;
  /** Parsed JSON; text if the response has another type (metrics, /readyz, logs). */
  readonly body: Kube;
  /** What kubectl prints as `Warning: …`. */
  readonly warnings: readonly string[];
}

/** What may differ from a plain request with JSON. */
export interface AskOptions {
  readonly token?: string;
  readonly contentType?: string;
  /** After a reset of a new connection. */
  readonly isRepeated?: boolean;
}

const agents = new Map<string, Agent>();

/** Asks once. */
export function ask(access: Access, method: string, path: string, body?: unknown, options: AskOptions = {}): Promise<Answer> {
  const content = body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body);
  const headers = {
    Authorization: `Bearer ${options.token ?? access.token}`,
    Accept: 'application/json',
    ...(content !== undefined && {
      'Content-Type': options.contentType ?? 'application/json',
      'Content-Length': Buffer.byteLength(content),
    }),
  };
  return new Promise((done, fail) => {
    const request = httpsRequest(new URL(path, access.server), { method, headers, agent: toAgent(access) }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.once('error', fail);
      response.once('end', () => {
        const warnings = toWarnings(response.headersDistinct['warning'] ?? []);
        const text = Buffer.concat(chunks).toString('utf8');
        // The log of a container is text, even if its only line is JSON.
        const isJson = response.headers['content-type']?.startsWith('application/json') === true;
        done({ status: response.statusCode ?? 0, body: isJson ? JSON.parse(text) : text, warnings });
      });
    });
    request.once('error', (error: NodeJS.ErrnoException) => {
      // The server let go of a kept connection just as it was taken up again: nothing was done. A busy server also resets new ones; then only
      // what changes nothing is repeated, once.
      const isHarmless = (method === 'GET' || path.includes('dryRun=')) && options.isRepeated !== true;
      const isReset = error.code === 'ECONNRESET' && (request.reusedSocket || isHarmless);
      if (isReset) ask(access, method, path, body, { ...options, isRepeated: !request.reusedSocket }).then(done, fail);
      else fail(error);
    });
    request.end(content);
  });
}

function toAgent({ server, ca }: Access): Agent {
  const known = agents.get(server) ?? new Agent({ ca, keepAlive: true, maxSockets: 32 });
  agents.set(server, known);
  return known;
}

/** RFC 7234 §5.5: `299 - "text"`, quotes and backslashes escaped. */
function toWarnings(values: readonly string[]): string[] {
  return values.flatMap((value) =>
    [...value.matchAll(/\d{3} \S+ "((?:[^"\\]|\\.)*)"/g)].map((match) => (match[1] ?? '').replace(/\\(.)/g, '$1')),
  );
}
