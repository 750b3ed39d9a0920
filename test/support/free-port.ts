/** Ports for programs that do not tell which one they got for port 0. */
import { connect, createServer } from 'node:net';
import { until } from './gate.ts';

/** Linux gives outgoing connections ports from 32768 on: one of them could take the port while its program restarts. */
const MIN_PORT = 10_000;
/** The bus port of a Redis Cluster is 10,000 higher, and must be below those ports, too. */
const MAX_PORT = 22_000;

/** A port of loopback that was free a moment ago. */
export async function findFreePort(): Promise<number> {
  for (;;) {
    const port = MIN_PORT + Math.floor(Math.random() * (MAX_PORT - MIN_PORT));
    if (await isFree(port)) return port;
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  const isListening = await new Promise<boolean>((resolve) => {
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => resolve(true));
  });
  if (isListening) await new Promise((resolve) => server.close(resolve));
  return isListening;
}

/** Waits until the program takes connections. */
export async function untilOpen(port: number): Promise<void> {
  await until(
    () =>
      new Promise<boolean>((resolve) => {
        const socket = connect(port, '127.0.0.1');
        socket.once('connect', () => {
          socket.destroy();
          resolve(true);
        });
        socket.once('error', () => resolve(false));
      }),
  );
}
