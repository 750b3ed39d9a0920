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
  /** Parsed JSON; text where it is none (metrics, /readyz). */
  readonly body: Kube;
  /** What kubectl prints as `Warning: …`. */
  readonly warnings: readonly string[];
}

/** What may differ from a plain request with JSON. */
export interface AskOptions {
  readonly token?: string;
  readonly contentType?: string;
}

const agents = new Map<string, Agent>();

/** Asks once. */
export function ask(access: Access, method: string, path: string, body?: unknown, options: AskOptions = {}): Promise<Answer> {
  const text = body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body);
  const headers = {
    Authorization: `Bearer ${options.token ?? access.token}`,
    Accept: 'application/json',
    ...(text !== undefined && {
      'Content-Type': options.contentType ?? 'application/json',
      'Content-Length': Buffer.byteLength(text),
    }),
  };
  return new Promise((done, fail) => {
    const request = httpsRequest(new URL(path, access.server), { method, headers, agent: toAgent(access) }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.once('error', fail);
      response.once('end', () => {
        const warnings = toWarnings(response.headersDistinct['warning'] ?? []);
        done({ status: response.statusCode ?? 0, body: parse(Buffer.concat(chunks).toString('utf8')), warnings });
      });
    });
    request.once('error', fail);
    request.end(text);
  });
}

function toAgent({ server, ca }: Access): Agent {
  const known = agents.get(server) ?? new Agent({ ca, keepAlive: true, maxSockets: 32 });
  agents.set(server, known);
  return known;
}

function parse(text: string): Kube {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** RFC 7234 §5.5: `299 - "text"`, quotes and backslashes escaped. */
function toWarnings(values: readonly string[]): string[] {
  return values.flatMap((value) =>
    [...value.matchAll(/\d{3} \S+ "((?:[^"\\]|\\.)*)"/g)].map((match) => (match[1] ?? '').replace(/\\(.)/g, '$1')),
  );
}
