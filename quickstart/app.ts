/** The example app: takes events and counts them, with not a line of verification in it. */
import { createServer, type Server } from 'node:http';

/** A running example app. */
export interface ExampleApp {
  readonly server: Server;
  /** Ids of the events that reached it, in order. */
  readonly received: readonly string[];
}

/** Starts the app; rejects where the port cannot be had. */
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
