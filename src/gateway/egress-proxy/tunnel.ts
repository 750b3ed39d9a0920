/** Relays bytes between a client and a destination until either closes, both are idle, or the maximum duration is reached. */
import type { Socket } from 'node:net';
import { freeChunk } from '../../core/buffers.ts';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { pauseUntilDrained, writeCounted } from '../../core/read-pause.ts';
import type { BodyStream, UpgradeRequest } from '../../core/request.ts';
import { afterWrite, onceEvent, onEvent } from '../../core/safe-events.ts';
import { ClientReads, type ReadLimits } from '../upstream/client-reads.ts';

/** How long a tunnel may last. */
export interface TunnelLimits {
  /** How slowly the client may take what is sent to it. */
  readonly reads: ReadLimits;
  readonly idleTimeout: Milliseconds;
  readonly maxDuration: Milliseconds;
}

/** The number of bytes relayed. */
interface TunnelTotals {
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
    const reads = new ClientReads(limits.reads, content.owner);
    const stopSweep = clock.every(SWEEP_MS, () => {
      const now = clock.monotonic();
      if (now - lastByteAt >= limits.idleTimeout || now - startedAt >= limits.maxDuration) server.destroy();
    });
    onEvent(server, 'data', (chunk: Buffer) => {
      lastByteAt = clock.monotonic();
      bytesReceived += chunk.length;
      if (client.writer.destroyed) return freeChunk(chunk);
      reads.onSent(chunk.length);
      // Memory that a broken TLS connection may still use is left to the garbage collector.
      const onWritten = afterWrite(() => freeChunk(chunk));
      if (!client.write(chunk, onWritten)) reads.waitFor(client.writer)?.hold(server);
    });
    // The content reports it only until the client has ended its side.
    onceEvent(client.writer, 'close', () => server.destroy());
    // One side may end while the other still sends.
    onEvent(server, 'end', () => client.end());
    onEvent(server, 'error', () => server.destroy());
    onEvent(server, 'close', () => {
      stopSweep();
      content.stop();
      // After a clean end the client may finish reading; otherwise it must not mistake partial data for complete data.
      if (server.readableEnded) client.close(clock, limits.reads.sendTimeout);
      else client.destroy();
      resolve({ bytesSent, bytesReceived });
    });
    content.start({
      write: (chunk) => {
        lastByteAt = clock.monotonic();
        bytesSent += chunk.length;
        const isTaken = writeCounted(server, chunk, () => freeChunk(chunk));
        return isTaken ? undefined : pauseUntilDrained(server, content.owner, limits.idleTimeout);
      },
      end: () => server.end(),
      fail: () => server.destroy(),
    });
  });
}
