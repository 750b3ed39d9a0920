/** Asks the app one question as the kubelet would: what it answers, in one status, and never what it says beside. */
import { type ClientRequest, request as openHttp, type RequestOptions } from 'node:http';
import { request as openHttps } from 'node:https';
import { connect } from 'node:net';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { onceEvent, onEvent } from '../../core/safe-events.ts';

/** What is asked; parsed once. */
export interface AppQuestion {
  /** http:, https: or tcp: */
  readonly url: URL;
  /** In order; a name may come twice. */
  readonly headers: readonly { readonly name: string; readonly value: string }[];
  readonly atMost: Milliseconds;
}

/** What came of it. */
export interface AppReply {
  readonly status: number;
  /** For people who look; nothing of the app's own words. */
  readonly line: string;
}

/** As much of the content as the kubelet reads; more is left to the app. */
const MOST_CONTENT = 10 * 1024;
const BAD_GATEWAY = 502;
const GATEWAY_TIMEOUT = 504;
/** As the kubelet calls itself, so that apps which leave its questions out of their logs do so still. */
const USUAL_FIELDS = { 'user-agent': ['User-Agent', 'kube-probe/1.0'], accept: ['Accept', '*/*'] } as const;

/** Asks; never rejects. `onGone` hears whoever asked for it leave, and gives back how to stop listening. */
export function askApp(question: AppQuestion, clock: Clock, onGone: (action: () => void) => CancelTimer): Promise<AppReply> {
  return new Promise((resolve) => {
    const ask = question.url.protocol === 'tcp:' ? openConnection : openRequest;
    let end = (): void => undefined;
    const finish = (reply: AppReply): void => {
      cancelTimer();
      forgetGone();
      end();
      resolve(reply);
    };
    const cancelTimer = clock.after(question.atMost, () =>
      finish({ status: GATEWAY_TIMEOUT, line: `the app did not answer within ${question.atMost / 1_000} s` }),
    );
    const forgetGone = onGone(() => finish({ status: GATEWAY_TIMEOUT, line: 'nobody waits for the answer any more' }));
    end = ask(question, finish);
  });
}

/** Gives back how to end it; ended, it tells nothing more. */
type Ask = (question: AppQuestion, tell: (reply: AppReply) => void) => () => void;

const openConnection: Ask = ({ url }, tell) => {
  const socket = connect(Number(url.port), toHost(url));
  onceEvent(socket, 'connect', () => tell({ status: 200, line: 'the app takes connections' }));
  onEvent(socket, 'error', (error) => tell(toFailure(error)));
  return () => socket.destroy();
};

const openRequest: Ask = ({ url, headers }, tell) => {
  const isTls = url.protocol === 'https:';
  const options: RequestOptions = {
    host: toHost(url),
    port: url.port === '' ? (isTls ? 443 : 80) : url.port,
    path: `${url.pathname}${url.search}`,
    method: 'GET',
    headers: toFields(url, headers),
    setDefaultHeaders: false,
    agent: false,
  };
  // The app's certificate is for the names that others know it by, if for any: the kubelet does not look at it either.
  const outgoing: ClientRequest = isTls ? openHttps({ ...options, rejectUnauthorized: false }) : openHttp(options);
  onEvent(outgoing, 'error', (error) => tell(toFailure(error)));
  onEvent(outgoing, 'response', (incoming) => {
    const status = incoming.statusCode ?? BAD_GATEWAY;
    const done = (): void => tell({ status, line: `the app answered ${status}` });
    let read = 0;
    onEvent(incoming, 'data', (chunk: Buffer) => {
      read += chunk.length;
      if (read > MOST_CONTENT) done();
    });
    onEvent(incoming, 'end', done);
    onEvent(incoming, 'error', (error) => tell(toFailure(error)));
  });
  outgoing.end();
  return () => outgoing.destroy();
};

/** Raw, so that Host and repeated names go out as they were given; an empty Accept or User-Agent is left out, as by the kubelet. */
function toFields(url: URL, given: AppQuestion['headers']): string[] {
  const has = (wanted: string): boolean => given.some(({ name }) => name.toLowerCase() === wanted);
  const fields = has('host') ? [] : ['Host', url.host];
  for (const [key, [name, value]] of Object.entries(USUAL_FIELDS)) if (!has(key)) fields.push(name, value);
  for (const { name, value } of given) if (value !== '' || !(name.toLowerCase() in USUAL_FIELDS)) fields.push(name, value);
  fields.push('Connection', 'close');
  return fields;
}

function toHost({ hostname }: URL): string {
  return hostname.startsWith('[') ? hostname.slice(1, -1) : hostname;
}

function toFailure(error: NodeJS.ErrnoException): AppReply {
  return { status: BAD_GATEWAY, line: `the app cannot be asked: ${error.code ?? 'the connection failed'}` };
}
