/** Ports for programs that do not tell which one they got for port 0. */
import { createServer } from 'node:net';

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
