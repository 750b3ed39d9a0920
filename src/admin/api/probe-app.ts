/** Sends the app one probe, as the kubelet would. Only the status of its response is returned, never its body. */
import { type ClientRequest, request as openHttp, type RequestOptions } from 'node:http';
import { request as openHttps } from 'node:https';
import { connect } from 'node:net';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { lookUpForConnect } from '../../core/name-lookup.ts';
import { onceEvent, onEvent } from '../../core/safe-events.ts';

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

/** Never rejects. `onAbandoned` registers what to do when no caller waits any more, and returns a function that unregisters it. */
export function probeApp(
  request: AppProbeRequest,
  clock: Clock,
  onAbandoned: (action: () => void) => CancelTimer,
): Promise<AppProbeReply> {
  return new Promise((resolve) => {
    const send = request.url.protocol === 'tcp:' ? openConnection : sendRequest;
    let end = (): void => undefined;
    const finish = (reply: AppProbeReply): void => {
      cancelTimer();
      unregister();
      end();
      resolve(reply);
    };
    const cancelTimer = clock.after(request.timeout, () =>
      finish({ status: GATEWAY_TIMEOUT, line: `the app did not respond within ${request.timeout / 1_000} s` }),
    );
    const unregister = onAbandoned(() => finish({ status: GATEWAY_TIMEOUT, line: 'all callers disconnected' }));
    end = send(request, finish);
  });
}

/** Returns a function that aborts the probe; after that, `onReply` is not called. */
type SendProbe = (request: AppProbeRequest, onReply: (reply: AppProbeReply) => void) => () => void;

const openConnection: SendProbe = ({ url }, onReply) => {
  const socket = connect({ port: Number(url.port), host: toHost(url), lookup: lookUpForConnect });
  onceEvent(socket, 'connect', () => onReply({ status: 200, line: 'the app accepts connections' }));
  onEvent(socket, 'error', (error) => onReply(toFailure(error)));
  return () => socket.destroy();
};

const sendRequest: SendProbe = ({ url, headers }, onReply) => {
  const isTls = url.protocol === 'https:';
  const options: RequestOptions = {
    host: toHost(url),
    lookup: lookUpForConnect,
    port: url.port === '' ? (isTls ? 443 : 80) : url.port,
    path: `${url.pathname}${url.search}`,
    method: 'GET',
    headers: toFields(url, headers),
    setDefaultHeaders: false,
    agent: false,
  };
  // Like the kubelet, this does not verify the app's certificate, which is seldom issued for a loopback address.
  const outgoing: ClientRequest = isTls ? openHttps({ ...options, rejectUnauthorized: false }) : openHttp(options);
  onEvent(outgoing, 'error', (error) => onReply(toFailure(error)));
  onEvent(outgoing, 'response', (incoming) => {
    const status = incoming.statusCode ?? BAD_GATEWAY;
    const done = (): void => onReply({ status, line: `the app responded ${status}` });
    let read = 0;
    onEvent(incoming, 'data', (chunk: Buffer) => {
      read += chunk.length;
      if (read > MAX_BODY_BYTES) done();
    });
    onEvent(incoming, 'end', done);
    onEvent(incoming, 'error', (error) => onReply(toFailure(error)));
  });
  outgoing.end();
  return () => outgoing.destroy();
};

/** A raw list keeps the given Host and repeated names; like the kubelet, it omits an empty Accept or User-Agent. */
function toFields(url: URL, given: AppProbeRequest['headers']): string[] {
  const has = (folded: string): boolean => given.some(({ name }) => name.toLowerCase() === folded);
  const fields = has('host') ? [] : ['Host', url.host];
  for (const [key, [name, value]] of Object.entries(DEFAULT_FIELDS)) if (!has(key)) fields.push(name, value);
  for (const { name, value } of given) if (value !== '' || !(name.toLowerCase() in DEFAULT_FIELDS)) fields.push(name, value);
  fields.push('Connection', 'close');
  return fields;
}

function toHost({ hostname }: URL): string {
  return hostname.startsWith('[') ? hostname.slice(1, -1) : hostname;
}

function toFailure(error: NodeJS.ErrnoException): AppProbeReply {
  return { status: BAD_GATEWAY, line: `cannot reach the app: ${error.code ?? 'the connection failed'}` };
}
