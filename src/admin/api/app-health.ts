/** Answers the kubelet's probes for an app that listens on loopback: each probe has one path here and requests one URL of the app. */
import type { IncomingMessage } from 'node:http';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { offEvent, onceEvent, runDetached } from '../../core/safe-events.ts';
import { type AdminResponse, toPlain } from '../response.ts';
import type { AdminEndpoint } from '../router.ts';
import { type AppProbeReply, type AppProbeRequest, probeApp } from './probe-app.ts';

/** One probe of the app. */
interface AppProbe {
  readonly container: string;
  readonly kind: string;
  readonly url: string;
  readonly headers: AppProbeRequest['headers'];
}

/** Longer than the `timeoutSeconds` of any probe, which the kubelet enforces itself. */
const PROBE_TIMEOUT_MS: Milliseconds = 60_000;
/** Concurrent requests of one probe to the app, however many callers wait for them. */
const MAX_CONCURRENT = 16;
/** A caller shares a request to the app that began less than this ago, because its result is still current. */
const MAX_SHARED_AGE_MS: Milliseconds = 1_000;
/** Responses with these statuses have no body (RFC 9110 §15.3.5, §15.3.6, §15.4.5). */
const STATUSES_WITHOUT_BODY: ReadonlySet<number> = new Set([204, 205, 304]);

/** The endpoints are public, because the kubelet connects from the node and has no token. */
export function createAppHealthEndpoints(probes: readonly AppProbe[], clock: Clock): AdminEndpoint[] {
  return probes.map(({ container, kind, url, headers }) => {
    const shared = new SharedProbe({ url: new URL(url), headers, timeout: PROBE_TIMEOUT_MS }, clock);
    return {
      path: `/app-health/${container}/${kind}`,
      method: 'GET',
      isOpen: true,
      respond: async ({ request }) => toResponse(await shared.send(request)),
    };
  });
}

interface PendingProbe {
  readonly startedAt: Milliseconds;
  readonly reply: Promise<AppProbeReply>;
  waiting: number;
  abandon: () => void;
}

/** Shares requests to the app between callers, so that a flood from one caller never delays the kubelet (which would restart the container). */
class SharedProbe {
  readonly #request: AppProbeRequest;
  readonly #clock: Clock;
  readonly #pending = new Set<PendingProbe>();
  #latest: PendingProbe | undefined;

  constructor(request: AppProbeRequest, clock: Clock) {
    this.#request = request;
    this.#clock = clock;
  }

  /** Joins a request to the app, or starts one. */
  async send({ socket }: IncomingMessage): Promise<AppProbeReply> {
    const joined = this.#findShared() ?? this.#start();
    joined.waiting++;
    const onClose = onceEvent(socket, 'close', () => {
      joined.waiting--;
      if (joined.waiting === 0) joined.abandon();
    });
    const reply = await joined.reply;
    offEvent(socket, 'close', onClose);
    return reply;
  }

  #findShared(): PendingProbe | undefined {
    const latest = this.#latest;
    if (latest === undefined || latest.waiting === 0) return undefined;
    const isFresh = this.#clock.monotonic() - latest.startedAt < MAX_SHARED_AGE_MS;
    return isFresh || this.#pending.size >= MAX_CONCURRENT ? latest : undefined;
  }

  #start(): PendingProbe {
    const abandoned = new AbortController();
    const reply = probeApp(this.#request, this.#clock, abandoned.signal);
    const startedAt = this.#clock.monotonic();
    const started: PendingProbe = { startedAt, reply, waiting: 0, abandon: () => abandoned.abort() };
    this.#pending.add(started);
    this.#latest = started;
    runDetached(
      reply.then(() => {
        this.#pending.delete(started);
        if (this.#latest === started) this.#latest = undefined;
      }),
    );
    return started;
  }
}

function toResponse({ status, line }: AppProbeReply): AdminResponse {
  const response = toPlain(status, line);
  return STATUSES_WITHOUT_BODY.has(status) ? { ...response, text: '' } : response;
}
