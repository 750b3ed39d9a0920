/** Sends deliveries of the inbox to the app of their route, exactly as the gate would have forwarded them. */
import { connect } from 'node:net';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { onEvent } from '../../core/safe-events.ts';
import type { Upstream, UpstreamExchange } from '../../http/client/upstream.ts';
import { lookUpForConnect } from '../../http/dial/resolve.ts';
import { type AttemptOutcome, type AttemptResult, type Sender, toOutcome } from '../attempt/attempt.ts';
import { INBOX_PREFIX, isInboxEndpoint, parseInboxMetadata } from '../events/event.ts';

/** The app of a route: where it listens, and the connections to it. */
export interface InboxApp {
  readonly host: string;
  readonly port: number;
  readonly pool: Pick<Upstream, 'send'>;
}

export type FindApp = (route: string) => InboxApp | undefined;

const MAX_RESPONSE_BYTES = 64 * 1024;
/** The app is in the same pod. */
const MAX_CONNECT_MS: Milliseconds = 500;

/** Sends inbox deliveries to the app, and all others with `other`. */
export function withInbox(other: Sender, findApp: FindApp, clock: Clock): Sender {
  return {
    send(delivery, endpoint, signal) {
      if (!isInboxEndpoint(endpoint.id)) return other.send(delivery, endpoint, signal);
      const startedAt = clock.now();
      const begin = clock.monotonic();
      const finish = (outcome: AttemptOutcome, more: Partial<AttemptResult> = {}): AttemptResult => {
        const duration = clock.monotonic() - begin;
        return { outcome, startedAt, duration, isSent: true, ...more };
      };
      const request = parseInboxMetadata(delivery.metadata);
      const route = endpoint.id.slice(INBOX_PREFIX.length);
      const app = findApp(route);
      if (app === undefined)
        return Promise.resolve(finish('blocked', { isSent: false, detail: `there is no webhook route with the name ${route}` }));
      if (request === undefined)
        return Promise.resolve(finish('protocol', { isSent: false, detail: 'the stored request is damaged' }));
      return new Promise((resolve) => {
        let status = 0;
        let received = 0;
        let cancelTimer: CancelTimer = () => undefined;
        let exchange: UpstreamExchange | undefined;
        const end: (...result: Parameters<typeof finish>) => void = (...result) => {
          cancelTimer();
          resolve(finish(...result));
        };
        const respond = (): void => end(toOutcome(status), { status });
        // The status counts once the app has sent it: the rest of a response is not used, and may be endless.
        const finishEarly = (): void => {
          exchange?.abort();
          respond();
        };
        exchange = app.pool.send(
          { ...request, body: delivery.body, repeatable: false, signal },
          {
            onInformation: () => undefined,
            onHead(head) {
              status = head;
              cancelTimer = clock.after(endpoint.timeout, finishEarly);
            },
            onData({ length }, releaseBuffer) {
              releaseBuffer?.();
              received += length;
              if (received > MAX_RESPONSE_BYTES) finishEarly();
              return undefined;
            },
            onEnd: respond,
            onFailure: ({ kind, nothingSent, detail }) =>
              status === 0 ? end(kind, { isSent: !nothingSent, detail }) : respond(),
          },
        );
      });
    },
    isReachable(endpoint) {
      const app = isInboxEndpoint(endpoint.id) ? findApp(endpoint.id.slice(INBOX_PREFIX.length)) : undefined;
      return app && acceptsConnections(app, clock);
    },
  };
}

/** Opens a connection and closes it: unlike an attempt, that costs the app nothing. */
function acceptsConnections({ host, port }: InboxApp, clock: Clock): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, lookup: lookUpForConnect });
    const end = (isAccepted: boolean): void => {
      cancel();
      socket.destroy();
      resolve(isAccepted);
    };
    const cancel = clock.after(MAX_CONNECT_MS, () => end(false));
    onEvent(socket, 'connect', () => end(true));
    onEvent(socket, 'error', () => end(false));
  });
}
