/** The example app: receives events and counts them, without any verification. */
import { createServer, type Server } from 'node:http';

/** A running example app. */
export interface ExampleApp {
  readonly server: Server;
  /** IDs of the events that reached it, in order. */
  readonly received: readonly string[];
}

/** Starts the app; rejects if the port is not available. */
export function startExampleApp(port: number): Promise<ExampleApp> {
  const received: string[] = [];
  const server = createServer((request, response) => {
    request.resume();
    request.on('end', () => {
      received.push(String(request.headers['webhook-id']));
      response.writeHead(200, { 'Content-Type': 'application/json' });
      response.end(`${JSON.stringify({ handled: received.length })}\n`);
    });
  });
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', () => resolve({ server, received }));
  });
}
