/** Relays bytes between a client and a destination until either closes, both are idle, or the maximum duration is reached. */
import type { Socket } from 'node:net';
import type { BodyStream } from '../../core/body.ts';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { UpgradeRequest } from '../../core/parsed-head.ts';
import { onEvent } from '../../core/safe-events.ts';

/** How long a tunnel may last. */
export interface TunnelLimits {
  readonly idleTimeout: Milliseconds;
  readonly maxDuration: Milliseconds;
}

/** The number of bytes relayed. */
export interface TunnelTotals {
  readonly bytesSent: number;
  readonly bytesReceived: number;
}

const SWEEP_MS = 1_000;

/** Resolves when the tunnel is over. `content`: what the client sends; `client`: writes to it. */
export function relayTunnel(
  client: UpgradeRequest,
  content: BodyStream,
  server: Socket,
  limits: TunnelLimits,
  clock: Clock,
): Promise<TunnelTotals> {
  return new Promise((resolve) => {
    const startedAt = clock.monotonic();
    let lastByteAt = startedAt;
    let bytesSent = 0;
    let bytesReceived = 0;
    const stopSweep = clock.every(SWEEP_MS, () => {
      const now = clock.monotonic();
      if (now - lastByteAt >= limits.idleTimeout || now - startedAt >= limits.maxDuration) server.destroy();
    });
    onEvent(server, 'data', (chunk: Buffer) => {
      lastByteAt = clock.monotonic();
      bytesReceived += chunk.length;
      if (client.write(chunk)) return;
      server.pause();
      client.onDrain(() => server.resume());
    });
    // One side may end while the other still sends.
    onEvent(server, 'end', () => client.end());
    onEvent(server, 'error', () => server.destroy());
    onEvent(server, 'drain', () => content.resume());
    onEvent(server, 'close', () => {
      stopSweep();
      content.stop();
      // After a clean end the client may finish reading; otherwise it must not mistake partial data for complete data.
      if (server.readableEnded) client.end();
      else client.destroy();
      resolve({ bytesSent, bytesReceived });
    });
    content.start({
      write: (chunk) => {
        lastByteAt = clock.monotonic();
        bytesSent += chunk.length;
        return server.write(chunk);
      },
      end: () => server.end(),
      fail: () => server.destroy(),
    });
  });
}
