/** Sends the app one probe, as the kubelet would. Only the status of its response is returned, never its body. */
import { connect } from 'node:net';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { lookUpForConnect } from '../../core/name-lookup.ts';
import { onAbort } from '../../core/safe-events.ts';
import { requestOnce, toHost } from '../../http/client/request-once.ts';
import { DialFailure, Opening, whenReady } from '../../http/dial/dial.ts';

/** A probe request; parsed once. */
export interface AppProbeRequest {
  /** http:, https: or tcp: */
  readonly url: URL;
  /** In order; names may repeat. */
  readonly headers: readonly { readonly name: string; readonly value: string }[];
  readonly timeout: Milliseconds;
}

/** The result of a probe. */
export interface AppProbeReply {
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

/** Never rejects. `signal`: no caller waits any more. */
export async function probeApp(request: AppProbeRequest, clock: Clock, signal: AbortSignal): Promise<AppProbeReply> {
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
