/** Joins a client and a destination byte for byte, until either ends, both are silent, or the time is over. */
import type { Socket } from 'node:net';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { ContentStream } from '../../core/content.ts';
import type { UpgradeRequest } from '../../core/parsed-head.ts';
import { onEvent } from '../../core/safe-events.ts';

/** How long a tunnel may last. */
export interface TunnelLimits {
  readonly idleTimeout: Milliseconds;
  readonly maxDuration: Milliseconds;
}

/** What went through. */
export interface TunnelTotals {
  readonly bytesSent: number;
  readonly bytesReceived: number;
}

const SWEEP_MS = 1_000;

/** Resolves when the tunnel is over. `content` is what the client sends, `client` where it reads. */
export function joinTunnel(
  client: UpgradeRequest,
  content: ContentStream,
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
    // Each side may have ended while the other still speaks.
    onEvent(server, 'end', () => client.end());
    onEvent(server, 'error', () => server.destroy());
    onEvent(server, 'drain', () => content.resume());
    onEvent(server, 'close', () => {
      stopSweep();
      content.stop();
      // Where the destination ended in good order, the client is let finish reading; else it must not take the part for the whole.
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
