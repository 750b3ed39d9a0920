/** Answers the kubelet in the place of an app that listens on loopback: each probe has one path here, and asks one URL. */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { offEvent, onceEvent, runDetached } from '../../core/safe-events.ts';
import { type Answer, toPlain } from '../answer.ts';
import type { Endpoint } from '../router.ts';
import { type AppQuestion, type AppReply, askApp } from './ask-app.ts';

/** One probe of the app. */
export interface AppProbe {
  readonly container: string;
  readonly kind: string;
  readonly url: string;
  readonly headers: AppQuestion['headers'];
}

/** Above what probes are given (`timeoutSeconds`), which the kubelet counts itself. */
const AT_MOST_MS: Milliseconds = 60_000;
/** Requests of one probe to the app at once, however many callers wait for them. */
const MAX_AT_ONCE = 16;
/** Requests that wait on one connection, where the kubelet has one: pipelined ones must not add up. */
const MAX_WAITING_PER_CONNECTION = 4;
/** A caller shares a request to the app that began less than this ago: its result is as good as that of a new one. */
const MAX_SHARED_AGE_MS: Milliseconds = 1_000;
/** No answer with one of these has content (RFC 9110 §15.3.5, §15.3.6, §15.4.5). */
const WITHOUT_CONTENT: ReadonlySet<number> = new Set([204, 205, 304]);

/** Open to everybody who reaches the port, as the kubelet comes from the node and has no token. */
export function createAppHealthEndpoints(probes: readonly AppProbe[], clock: Clock): Endpoint[] {
  return probes.map(({ container, kind, url, headers }) => {
    const shared = new SharedQuestion({ url: new URL(url), headers, atMost: AT_MOST_MS }, clock);
    return {
      path: `/app-health/${container}/${kind}`,
      method: 'GET',
      isOpen: true,
      async answer({ request }) {
        const reply = await shared.ask(request);
        return reply === undefined ? toPlain(503, 'too many requests wait on this connection') : toAnswer(reply);
      },
    };
  });
}

interface UnderWay {
  readonly startedAt: Milliseconds;
  readonly reply: Promise<AppReply>;
  waiting: number;
  abandon: () => void;
}

/** Asks the app for many callers at once, so that one caller's flood never costs another caller its answer (the kubelet ends the container). */
class SharedQuestion {
  readonly #question: AppQuestion;
  readonly #clock: Clock;
  readonly #underWay = new Set<UnderWay>();
  readonly #waiting = new WeakMap<Socket, number>();
  #latest: UnderWay | undefined;

  constructor(question: AppQuestion, clock: Clock) {
    this.#question = question;
    this.#clock = clock;
  }

  /** Undefined where the caller has too many requests waiting. */
  async ask({ socket }: IncomingMessage): Promise<AppReply | undefined> {
    const waiting = this.#waiting.get(socket) ?? 0;
    if (waiting >= MAX_WAITING_PER_CONNECTION) return undefined;
    this.#waiting.set(socket, waiting + 1);
    const joined = this.#findShared() ?? this.#start();
    joined.waiting++;
    const onClose = onceEvent(socket, 'close', () => {
      joined.waiting--;
      if (joined.waiting === 0) joined.abandon();
    });
    const reply = await joined.reply;
    offEvent(socket, 'close', onClose);
    this.#waiting.set(socket, (this.#waiting.get(socket) ?? 1) - 1);
    return reply;
  }

  #findShared(): UnderWay | undefined {
    const latest = this.#latest;
    if (latest === undefined || latest.waiting === 0) return undefined;
    const isFresh = this.#clock.monotonic() - latest.startedAt < MAX_SHARED_AGE_MS;
    return isFresh || this.#underWay.size >= MAX_AT_ONCE ? latest : undefined;
  }

  #start(): UnderWay {
    let abandon = (): void => undefined;
    const reply = askApp(this.#question, this.#clock, (action) => {
      abandon = action;
      return () => undefined;
    });
    const started: UnderWay = { startedAt: this.#clock.monotonic(), reply, waiting: 0, abandon: () => abandon() };
    this.#underWay.add(started);
    this.#latest = started;
    runDetached(
      reply.then(() => {
        this.#underWay.delete(started);
        if (this.#latest === started) this.#latest = undefined;
      }),
    );
    return started;
  }
}

function toAnswer({ status, line }: AppReply): Answer {
  const answer = toPlain(status, line);
  return WITHOUT_CONTENT.has(status) ? { ...answer, text: '' } : answer;
}
