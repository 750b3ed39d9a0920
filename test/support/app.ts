/** A real app on a real port that records what reaches it, and answers as a test says. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A request as the app got it. */
export interface Received {
  readonly method: string;
  readonly url: string;
  readonly rawHeaders: readonly string[];
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
}

/** Answers one request. */
export type AppHandler = (request: Received, response: ServerResponse) => void;

/** A running app. */
export interface TestApp {
  readonly port: number;
  readonly received: Received[];
  /** How the next requests are answered; 200 with a short text to begin with. */
  handler: AppHandler;
  close(): Promise<void>;
}

/** Starts it on a free port. */
export async function startApp(port = 0): Promise<TestApp> {
  const received: Received[] = [];
  const app = { handler: ((_request, response) => response.end('handled')) as AppHandler };
  const server: Server = createServer({ maxHeaderSize: 131_072 }, (request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const { method = '', url = '', rawHeaders, headers } = request;
      const one = { method, url, rawHeaders, headers, body: Buffer.concat(chunks) };
      received.push(one);
      app.handler(one, response);
    });
  });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  return Object.assign(app, {
    port: (server.address() as AddressInfo).port,
    received,
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  });
}

/** Makes the app hold its responses. Each call of the result sends the oldest one that is held, with this text. */
export function holdResponses(app: TestApp, text = 'handled'): () => void {
  const held: ServerResponse[] = [];
  app.handler = (_request, response) => void held.push(response);
  return () => void held.shift()?.end(text);
}
