/**
 * The least that Node can do for a delivery: verify, claim and confirm the ID in Redis, forward to the app, respond. It has no limits, no
 * timeouts, no log and no metrics, and trusts the responses of Redis and of the app. The rest of the cost of sidegate is its own work.
 */
import { createHmac, createSecretKey, timingSafeEqual } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import process, { argv, env } from 'node:process';
import { keepHeapWhileIdle } from '../../src/gateway/server/process-memory.ts';

// Each rival is idle while others are measured: V8 would discard its code, and compile it again in the next scenario.
keepHeapWhileIdle();

const [port, redisPort, appPort] = argv.slice(2).map(Number) as [number, number, number];
const key = createSecretKey(Buffer.from((env['BENCH_SECRET'] ?? '').replace('whsec_', ''), 'base64'));
const LEASE_MS = '60000';
const RETENTION_MS = '259200000';
const READ_BYTES = 65_536;
const HEAD_END = '\r\n\r\n';

/** Commands of one turn of the event loop are sent together. */
class Redis {
  readonly #socket: Socket;
  readonly #waiting: ((reply: string) => void)[] = [];
  #batch = '';

  constructor() {
    const buffer = Buffer.allocUnsafe(READ_BYTES);
    this.#socket = connect({
      host: '127.0.0.1',
      port: redisPort,
      noDelay: true,
      onread: { buffer, callback: (length) => this.#onRead(buffer.toString('latin1', 0, length)) },
    });
  }

  send(args: readonly string[], onReply: (reply: string) => void): void {
    if (this.#batch === '') setImmediate(() => this.#flush());
    this.#batch += `*${args.length}\r\n`;
    for (const arg of args) this.#batch += `$${arg.length}\r\n${arg}\r\n`;
    this.#waiting.push(onReply);
  }

  end(): void {
    this.#socket.destroy();
  }

  #flush(): void {
    this.#socket.write(this.#batch, 'latin1');
    this.#batch = '';
  }

  #onRead(text: string): boolean {
    // `+OK`, or `$-1` if the ID was claimed before. The replies are short: each batch of them arrives in one piece.
    for (const line of text.split('\r\n').slice(0, -1)) this.#waiting.shift()?.(line);
    return true;
  }
}

/** A kept-alive connection to the app, with one request at a time. */
class AppConnection {
  static readonly free: AppConnection[] = [];
  static readonly #buffer = Buffer.allocUnsafe(READ_BYTES);
  readonly #socket: Socket;
  #onResponse: (status: number, body: string) => void = () => undefined;

  constructor() {
    this.#socket = connect({
      host: '127.0.0.1',
      port: appPort,
      noDelay: true,
      onread: { buffer: AppConnection.#buffer, callback: (length) => this.#onRead(length) },
    });
  }

  send(head: string, body: Buffer, onResponse: (status: number, body: string) => void): void {
    this.#onResponse = onResponse;
    this.#socket.cork();
    this.#socket.write(head, 'latin1');
    this.#socket.write(body);
    this.#socket.uncork();
  }

  #onRead(length: number): boolean {
    const text = AppConnection.#buffer.toString('latin1', 0, length);
    AppConnection.free.push(this);
    this.#onResponse(Number(text.slice(9, 12)), text.slice(text.indexOf(HEAD_END) + HEAD_END.length));
    return true;
  }
}

const redis = new Redis();

function isSigned(id: string, time: string, signature: string, body: Buffer): boolean {
  const expected = createHmac('sha256', key).update(`${id}.${time}.`).update(body).digest();
  const actual = Buffer.from(signature.slice('v1,'.length), 'base64');
  return actual.length === expected.length && timingSafeEqual(actual, expected);
}

function respond(response: ServerResponse, status: number, body: string): void {
  response.writeHead(status, ['Content-Type', 'application/json', 'Content-Length', String(body.length)]);
  response.end(body, 'latin1');
}

function forward({ method, url, rawHeaders }: IncomingMessage, body: Buffer, response: ServerResponse, onDone: () => void): void {
  let head = `${method} ${url} HTTP/1.1\r\n`;
  for (let i = 0; i < rawHeaders.length; i += 2) head += `${rawHeaders[i]}: ${rawHeaders[i + 1]}\r\n`;
  const connection = AppConnection.free.pop() ?? new AppConnection();
  connection.send(`${head}\r\n`, body, (status, text) => {
    respond(response, status, text);
    onDone();
  });
}

function onDelivery(request: IncomingMessage, body: Buffer, response: ServerResponse): void {
  const { headers } = request;
  const id = String(headers['webhook-id']);
  if (!isSigned(id, String(headers['webhook-timestamp']), String(headers['webhook-signature']), body))
    return respond(response, 401, '{"ok":false}');
  const name = `bench:${id}`;
  redis.send(['SET', name, 'claimed', 'NX', 'PX', LEASE_MS], (reply) => {
    if (reply !== '+OK') return respond(response, 200, '{"ok":true}');
    forward(request, body, response, () => redis.send(['SET', name, 'handled', 'PX', RETENTION_MS], () => undefined));
  });
}

const server = createServer({ keepAliveTimeout: 65_000 }, (request, response) => {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => onDelivery(request, chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks), response));
});
server.listen(port, '127.0.0.1');
process.once('SIGTERM', () => {
  redis.end();
  server.close();
  server.closeAllConnections();
  // The connections to the app are still open.
  process.exit();
});
