/** The endpoints that the kubelet of an injected pod uses: the probes of an app that listens on loopback, and the `preStop` hook. */

import type { IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { toClientNetwork } from '../../core/ip-address.ts';
import { offEvent, onAbort, onceEvent, runDetached } from '../../core/safe-events.ts';
import { requestOnce, toHost } from '../../http/client/request-once.ts';
import { DialFailure, Opening, whenReady } from '../../http/dial/dial.ts';
import { lookUpForConnect } from '../../http/dial/resolve.ts';
import { type AdminEndpoint, type AdminResponse, toPlain } from '../router.ts';

// The probes: each has one path here, and requests one URL of the app.

/** One probe of the app. */
interface AppProbe {
  readonly container: string;
  readonly kind: string;
  readonly url: string;
  readonly headers: AppProbeRequest['headers'];
}

/** Longer than the `timeoutSeconds` of any probe, which the kubelet enforces itself. */
const PROBE_TIMEOUT_MS: Milliseconds = 60_000;
/**
 * Callers of all probes that may wait, and so requests to the app: a connection whose request waits is not replaced, and the kubelet needs connections.
 * It may be in the network of the client that floods, which has 32 connections, and scrapes may wait on some of these.
 */
const MAX_WAITING = 16;
/** Beyond them, so many may wait that are the first ones of their clients, as the kubelet is. */
const MAX_FIRST = 16;
/** A caller shares a request to the app that began less than this ago, because its result is still current. */
const MAX_SHARED_AGE_MS: Milliseconds = 1_000;
/** A caller that may not wait gets the last result, if its request to the app began less than this ago: longer than the kubelet's period of 10 s. */
const MAX_RESULT_AGE_MS: Milliseconds = 15_000;
const BUSY: AppProbeReply = { status: 503, line: 'too many callers wait for the app' };
/** Responses with these statuses have no body (RFC 9110 §15.3.5, §15.3.6, §15.4.5). */
const STATUSES_WITHOUT_BODY: ReadonlySet<number> = new Set([204, 205, 304]);

/** The endpoints are public, because the kubelet connects from the node and has no token. */
export function createAppHealthEndpoints(probes: readonly AppProbe[], clock: Clock): AdminEndpoint[] {
  const waiting = new Set<Caller>();
  return probes.map(({ container, kind, url, headers }) => {
    const shared = new SharedProbe({ url: new URL(url), headers, timeout: PROBE_TIMEOUT_MS }, clock, waiting);
    return {
      path: `/app-health/${container}/${kind}`,
      method: 'GET',
      isOpen: true,
      respond: async ({ request }) => toResponse(await shared.send(request)),
    };
  });
}

/** A caller that waits for the app. */
interface Caller {
  readonly client: string;
  readonly end: (reply?: AppProbeReply) => void;
}

interface PendingProbe {
  readonly startedAt: Milliseconds;
  readonly callers: Set<Caller>;
  readonly abandon: () => void;
}

/** Shares requests to the app between callers, so that a flood from one caller never delays the kubelet (which would restart the container). */
class SharedProbe {
  readonly #request: AppProbeRequest;
  readonly #clock: Clock;
  /** The callers of all probes. */
  readonly #waiting: Set<Caller>;
  #latest: PendingProbe | undefined;
  #last: { readonly reply: AppProbeReply; readonly startedAt: Milliseconds } | undefined;

  constructor(request: AppProbeRequest, clock: Clock, waiting: Set<Caller>) {
    this.#request = request;
    this.#clock = clock;
    this.#waiting = waiting;
  }

  /** Joins a request to the app, or starts one. */
  async send({ socket }: IncomingMessage): Promise<AppProbeReply> {
    const client = toClientNetwork(socket.remoteAddress ?? '');
    if (!makeRoom(this.#waiting, client)) return this.#toRecent();
    const { callers, abandon } = this.#findShared() ?? this.#start();
    return new Promise((resolve) => {
      const end = (reply = this.#toRecent()): void => {
        offEvent(socket, 'close', onClose);
        callers.delete(caller);
        this.#waiting.delete(caller);
        resolve(reply);
        if (callers.size === 0) abandon();
      };
      const onClose = onceEvent(socket, 'close', () => end());
      const caller = { client, end };
      callers.add(caller);
      this.#waiting.add(caller);
    });
  }

  #toRecent(): AppProbeReply {
    return this.#last !== undefined && this.#isWithin(MAX_RESULT_AGE_MS, this.#last) ? this.#last.reply : BUSY;
  }

  #isWithin(age: Milliseconds, { startedAt }: { readonly startedAt: Milliseconds }): boolean {
    return this.#clock.monotonic() - startedAt < age;
  }

  #findShared(): PendingProbe | undefined {
    const latest = this.#latest;
    return latest !== undefined && latest.callers.size > 0 && this.#isWithin(MAX_SHARED_AGE_MS, latest) ? latest : undefined;
  }

  #start(): PendingProbe {
    const abandoned = new AbortController();
    const startedAt = this.#clock.monotonic();
    const callers = new Set<Caller>();
    const started: PendingProbe = { startedAt, callers, abandon: () => abandoned.abort() };
    this.#latest = started;
    runDetached(
      probeApp(this.#request, this.#clock, abandoned.signal).then((reply) => {
        if (this.#latest === started) this.#latest = undefined;
        if (callers.size > 0 && startedAt >= (this.#last?.startedAt ?? 0)) this.#last = { reply, startedAt };
        for (const { end } of callers) end(reply);
      }),
    );
    return started;
  }
}

/** Whether another caller of this client may wait. If too many do, one of the client that has most gets its response instead. */
function makeRoom(waiting: ReadonlySet<Caller>, client: string): boolean {
  if (waiting.size < MAX_WAITING) return true;
  const byClient = Map.groupBy(waiting, (each) => each.client);
  const own = byClient.get(client)?.length ?? 0;
  const [most = []] = [...byClient.values()].sort((a, b) => b.length - a.length);
  // Otherwise two clients would replace each other's callers in turns.
  if (own + 1 >= most.length) return own === 0 && waiting.size < MAX_WAITING + MAX_FIRST;
  most[0]?.end();
  return true;
}

function toResponse({ status, line }: AppProbeReply): AdminResponse {
  const response = toPlain(status, line);
  return STATUSES_WITHOUT_BODY.has(status) ? { ...response, text: '' } : response;
}

// One request to the app.

/** A probe request; parsed once. */
interface AppProbeRequest {
  /** http:, https: or tcp: */
  readonly url: URL;
  /** In order; names may repeat. */
  readonly headers: readonly { readonly name: string; readonly value: string }[];
  readonly timeout: Milliseconds;
}

/** The result of a probe. */
interface AppProbeReply {
  readonly status: number;
  /** A line for people; never text from the app. */
  readonly line: string;
}

/** The kubelet reads no more of the body either. */
const MAX_BODY_BYTES = 10 * 1024;
const BAD_GATEWAY = 502;
const GATEWAY_TIMEOUT = 504;
/** The kubelet's own fields, so that apps that filter its probes out of their logs still do. */
const DEFAULT_FIELDS = { 'user-agent': ['User-Agent', 'kube-probe/1.0'], accept: ['Accept', '*/*'] } as const;

/** Sends the app one probe, as the kubelet would, and returns only its status, never its body. Never rejects. `signal`: no caller waits any more. */
async function probeApp(request: AppProbeRequest, clock: Clock, signal: AbortSignal): Promise<AppProbeReply> {
  const { url, headers, timeout } = request;
  try {
    if (url.protocol === 'tcp:') return await connectToApp(request, clock, signal);
    // Like the kubelet, this does not verify the app's certificate, which is seldom issued for a loopback address.
    const target = { isUnverified: true };
    const fields = toFields(url, headers);
    const limits = { timeout, maxBytes: MAX_BODY_BYTES };
    const { status } = await requestOnce({ url, method: 'GET', headers: fields, ...limits, target, signal }, clock);
    return { status, line: `the app responded ${status}` };
  } catch (thrown) {
    const kind = thrown instanceof DialFailure ? thrown.kind : undefined;
    if (kind === 'aborted') return { status: GATEWAY_TIMEOUT, line: 'all callers disconnected' };
    if (kind === 'timeout') return { status: GATEWAY_TIMEOUT, line: `the app did not respond within ${timeout / 1_000} s` };
    return { status: BAD_GATEWAY, line: `cannot reach the app: ${toErrorText(thrown)}` };
  }
}

/** Only opens a connection. */
async function connectToApp({ url, timeout }: AppProbeRequest, clock: Clock, signal: AbortSignal): Promise<AppProbeReply> {
  const opening = new Opening(timeout);
  opening.phase = 'connect';
  const stopListening = onAbort(signal, () => opening.cancel());
  try {
    const socket = connect({ port: Number(url.port), host: toHost(url), lookup: lookUpForConnect });
    (await whenReady(socket, opening, clock, timeout)).destroy();
    return { status: 200, line: 'the app accepts connections' };
  } finally {
    stopListening();
  }
}

/** A raw list keeps the given Host and repeated names; like the kubelet, it omits an empty Accept or User-Agent. */
function toFields(url: URL, given: AppProbeRequest['headers']): string[] {
  const has = (folded: string): boolean => given.some(({ name }) => name.toLowerCase() === folded);
  const fields = has('host') ? [] : ['Host', url.host];
  for (const [key, [name, value]] of Object.entries(DEFAULT_FIELDS)) if (!has(key)) fields.push(name, value);
  for (const { name, value } of given) if (value !== '' || !(name.toLowerCase() in DEFAULT_FIELDS)) fields.push(name, value);
  return fields;
}

// `GET /prestop`: announces that the pod is about to stop, long before SIGTERM reaches a native sidecar, which stops after its app.

const MAX_PAUSE_S = 600;
/** The hook sends one request; each held request occupies one of the admin port's few connections. */
const MAX_HELD = 4;
const LEAVING = toPlain(200, 'connections will be closed after their next response');
const SECONDS = /^\d{1,3}$/;

/**
 * Only for clients on loopback, with or without an admin token: the injected `preStop` hook is an `exec`, so it runs inside the pod.
 * Other clients could otherwise make the gate close its connections for 15 minutes, and hold requests open. `?pause=` delays the
 * response by that many seconds, and thus the SIGTERM.
 */
export function createLeaveEndpoint({
  clock,
  leave,
}: {
  readonly clock: Clock;
  /** The app ends after the pause: connections are closed before, so that clients reconnect to another pod. */
  readonly leave: (pause: Milliseconds) => void;
}): AdminEndpoint {
  let held = 0;
  const hold = async (pause: Milliseconds, socket: Socket): Promise<AdminResponse> => {
    if (pause === 0) return LEAVING;
    if (held >= MAX_HELD) return toPlain(503, `${MAX_HELD} requests are already waiting for the end of their pause`);
    held++;
    await pauseWhileOpen(pause, socket, clock);
    held--;
    return LEAVING;
  };
  return {
    path: '/prestop',
    method: 'GET',
    isOpen: 'loopback',
    respond({ request, query }) {
      const written = query.get('pause') ?? '0';
      if (!SECONDS.test(written) || Number(written) > MAX_PAUSE_S)
        return toPlain(400, `pause must be an integer from 0 to ${MAX_PAUSE_S} (seconds)`);
      // HEAD is safe: it changes nothing (RFC 9110 §9.2.1).
      if (request.method !== 'GET') return LEAVING;
      const pause = Number(written) * 1_000;
      leave(pause);
      return hold(pause, request.socket);
    },
  };
}

function pauseWhileOpen(duration: number, socket: Socket, clock: Clock): Promise<void> {
  return new Promise((resolve) => {
    let cancel: CancelTimer = () => undefined;
    const onClose = onceEvent(socket, 'close', () => {
      cancel();
      resolve();
    });
    cancel = clock.after(duration, () => {
      offEvent(socket, 'close', onClose);
      resolve();
    });
  });
}
