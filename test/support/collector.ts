/** A collector on loopback that takes OTLP/HTTP in JSON, reads it strictly, and answers as a test says. */
import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';

/** A span as it came in, with its attributes as a plain object. */
export interface CollectedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly traceState?: string;
  readonly flags: number;
  readonly name: string;
  readonly kind: 'SERVER' | 'CLIENT';
  /** Nanoseconds. */
  readonly start: bigint;
  readonly end: bigint;
  readonly attributes: Readonly<Record<string, string | number>>;
  readonly links: readonly { readonly traceId: string; readonly spanId: string; readonly traceState?: string }[];
  readonly isError: boolean;
  readonly resource: Readonly<Record<string, string | number>>;
}

/** One export as it came. */
export interface Export {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

/** A running collector. */
export interface Collector {
  readonly url: string;
  readonly exports: Export[];
  readonly spans: CollectedSpan[];
  /** What the next exports are answered; all is taken to begin with. */
  answer: (response: ServerResponse) => void;
  /** How many connections there were. */
  readonly connections: () => number;
  close(): Promise<void>;
}

/** Starts it. */
export async function startCollector(tls?: { readonly key: Buffer; readonly cert: Buffer }, port = 0): Promise<Collector> {
  const exports: Export[] = [];
  const spans: CollectedSpan[] = [];
  let connections = 0;
  const collector = { answer: (response: ServerResponse) => void response.end('{}') };
  const onRequest: Parameters<typeof createServer>[1] = (request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const text = Buffer.concat(chunks).toString();
      exports.push({ path: request.url ?? '', headers: request.headers, text });
      spans.push(...readExport(JSON.parse(text)));
      collector.answer(response);
    });
  };
  const server: Server = tls === undefined ? createServer(onRequest) : createTlsServer(tls, onRequest);
  server.on('connection', () => connections++);
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  return Object.assign(collector, {
    url: `${tls === undefined ? 'http' : 'https'}://127.0.0.1:${(server.address() as AddressInfo).port}`,
    exports,
    spans,
    connections: () => connections,
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  });
}

type Json = Readonly<Record<string, unknown>>;

/** All members that opentelemetry-proto names for what is sent; any other is a mistake, as is a wrong type. */
function readExport(body: unknown): CollectedSpan[] {
  const found: CollectedSpan[] = [];
  for (const one of list(take(body, ['resourceSpans'])['resourceSpans'])) {
    const { resource, scopeSpans } = take(one, ['resource', 'scopeSpans']);
    const attributes = readAttributes(take(resource, ['attributes'])['attributes']);
    for (const each of list(scopeSpans)) {
      const { scope, spans } = take(each, ['scope', 'spans']);
      take(scope, ['name', 'version']);
      found.push(...list(spans).map((span) => readSpan(span, attributes)));
    }
  }
  return found;
}

const SPAN_MEMBERS = [
  ...['traceId', 'spanId', 'traceState', 'parentSpanId', 'flags', 'name', 'kind'],
  ...['startTimeUnixNano', 'endTimeUnixNano', 'attributes', 'links', 'status'],
];

function readSpan(value: unknown, resource: CollectedSpan['resource']): CollectedSpan {
  const span = take(value, SPAN_MEMBERS);
  const { kind, status, links = [], parentSpanId, traceState } = span;
  if (kind !== 2 && kind !== 3) throw new Error(`kind ${String(kind)}`);
  return {
    traceId: text(span['traceId'], /^[0-9a-f]{32}$/),
    spanId: text(span['spanId'], /^[0-9a-f]{16}$/),
    ...(parentSpanId === undefined ? undefined : { parentSpanId: text(parentSpanId, /^[0-9a-f]{16}$/) }),
    ...(traceState === undefined ? undefined : { traceState: text(traceState, /^.+$/) }),
    flags: Number(span['flags']),
    name: text(span['name'], /^.+$/),
    kind: kind === 2 ? 'SERVER' : 'CLIENT',
    start: BigInt(text(span['startTimeUnixNano'], /^\d{10,20}$/)),
    end: BigInt(text(span['endTimeUnixNano'], /^\d{10,20}$/)),
    attributes: readAttributes(span['attributes']),
    links: list(links).map((link) => {
      const read = take(link, ['traceId', 'spanId', 'traceState', 'flags']);
      const { traceState: state } = read;
      return {
        traceId: text(read['traceId'], /^[0-9a-f]{32}$/),
        spanId: text(read['spanId'], /^[0-9a-f]{16}$/),
        ...(state === undefined ? undefined : { traceState: text(state, /^.+$/) }),
      };
    }),
    isError: take(status, ['code'])['code'] === 2,
    resource,
  };
}

function readAttributes(value: unknown): Record<string, string | number> {
  return Object.fromEntries(
    list(value).map((attribute) => {
      const { key, value: held } = take(attribute, ['key', 'value']);
      const { stringValue, intValue } = take(held, ['stringValue', 'intValue']);
      if (stringValue === undefined) return [String(key), Number(text(intValue, /^-?\d+$/))];
      return [String(key), text(stringValue, /^[^]*$/)];
    }),
  );
}

function take(value: unknown, members: readonly string[]): Json {
  if (typeof value !== 'object' || value === null) throw new Error(`${String(value)} is no object`);
  for (const name of Object.keys(value)) if (!members.includes(name)) throw new Error(`${name} is no member of it`);
  return value as Json;
}

function list(value: unknown): readonly unknown[] {
  if (!Array.isArray(value)) throw new Error(`${String(value)} is no list`);
  return value;
}

function text(value: unknown, form: RegExp): string {
  if (typeof value !== 'string' || !form.test(value)) throw new Error(`${String(value)} is not ${form.source}`);
  return value;
}
