/** An app that can be stopped and started again on its port. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';

export interface StoppableApp {
  /** The IDs of the deliveries, in the format of GitHub. */
  readonly received: string[];
  readonly url: string;
  readonly startAgain: () => Promise<void>;
  readonly stopApp: () => Promise<void>;
}

/** Of the test that runs; no other program uses its address. */
export async function startStoppableApp(): Promise<StoppableApp> {
  const received: string[] = [];
  const host = `127.${process.pid % 250}.7.3`;
  let server: Server | undefined;
  let port = 0;
  const stopApp = async (): Promise<void> => {
    const old = server;
    server = undefined;
    await new Promise((resolve) => (old === undefined ? resolve(undefined) : old.close(resolve)));
  };
  const startAgain = async (): Promise<void> => {
    const started = createServer((request, response) => {
      received.push(request.headers['x-github-delivery'] as string);
      request.resume();
      response.writeHead(204, { Connection: 'close' }).end();
    });
    await new Promise<void>((resolve) => started.listen(port, host, resolve));
    ({ port } = started.address() as AddressInfo);
    server = started;
  };
  await startAgain();
  onTestFinished(stopApp);
  return { received, startAgain, stopApp, url: `http://${host}:${port}` };
}
