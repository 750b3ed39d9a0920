/** Sends deliveries of the inbox to the app of their route, exactly as the gate would have forwarded them. */
import type { CancelTimer, Clock } from '../../core/clock.ts';
import { onAbort } from '../../core/safe-events.ts';
import type { Upstream, UpstreamExchange } from '../../gateway/upstream/upstream.ts';
import type { AttemptOutcome, AttemptResult, Sender } from '../attempt/attempt.ts';
import { toOutcome } from '../attempt/outcomes.ts';
import { INBOX_PREFIX, parseInboxMetadata } from '../events/inbox-request.ts';

/** The connection pools of the routes' apps. */
export type FindApp = (route: string) => Upstream | undefined;

const MAX_RESPONSE_BYTES = 64 * 1024;

/** Sends inbox deliveries to the app, and all others with `other`. */
export function withInbox(other: Sender, findApp: FindApp, clock: Clock): Sender {
  return {
    send(delivery, endpoint, signal) {
      if (!endpoint.id.startsWith(INBOX_PREFIX)) return other.send(delivery, endpoint, signal);
      const startedAt = clock.now();
      const begin = clock.monotonic();
      const finish = (outcome: AttemptOutcome, more: Partial<AttemptResult> = {}): AttemptResult => ({
        outcome,
        startedAt,
        duration: clock.monotonic() - begin,
        isSent: true,
        ...more,
      });
      const request = parseInboxMetadata(delivery.metadata);
      const app = findApp(endpoint.id.slice(INBOX_PREFIX.length));
      if (app === undefined) return Promise.resolve(finish('blocked', { isSent: false, detail: 'the route no longer exists' }));
      if (request === undefined)
        return Promise.resolve(finish('protocol', { isSent: false, detail: 'the stored request is damaged' }));
      return new Promise((resolve) => {
        let status = 0;
        let received = 0;
        let cancelTimer: CancelTimer = () => undefined;
        let exchange: UpstreamExchange | undefined;
        const stopListening = onAbort(signal, () => {
          exchange?.abort();
          end(finish('aborted'));
        });
        const end = (result: AttemptResult): void => {
          stopListening();
          cancelTimer();
          resolve(result);
        };
        // The status counts once the app has sent it: the rest of a response is not used, and may be endless.
        const finishEarly = (): void => {
          exchange?.abort();
          end(finish(toOutcome(status), { status }));
        };
        exchange = app.send(
          { ...request, body: delivery.body, repeatable: false },
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
            onEnd: () => end(finish(toOutcome(status), { status })),
            onFailure({ kind, nothingSent, detail }) {
              if (status === 0) end(finish(kind, { isSent: !nothingSent, detail }));
              else end(finish(toOutcome(status), { status }));
            },
          },
        );
      });
    },
    retain: (endpoints) => other.retain(endpoints),
    close: () => other.close(),
  };
}
