/** Answers the kubelet in the place of an app that listens on loopback: each probe has one path here, and asks one URL. */
import type { IncomingMessage } from 'node:http';
import type { CancelTimer, Clock, Milliseconds } from '../core/clock.ts';
import { onceEvent } from '../core/safe-events.ts';
import { type Answer, toPlain } from './answer.ts';
import { type AppQuestion, type AppReply, askApp } from './ask-app.ts';
import type { Endpoint } from './router.ts';

/** One probe of the app. */
export interface AppProbe {
  readonly container: string;
  readonly kind: string;
  readonly url: string;
  readonly headers: AppQuestion['headers'];
}

/** Above what probes are given (`timeoutSeconds`), which the kubelet counts itself. */
const AT_MOST_MS: Milliseconds = 60_000;
/** Questions of one probe under way at once, where the kubelet has one: pipelined ones must not add up, nor take the place of other probes. */
const MOST_AT_ONCE = 16;
/** No answer with one of these has content (RFC 9110 §15.3.5, §15.3.6, §15.4.5). */
const WITHOUT_CONTENT: ReadonlySet<number> = new Set([204, 205, 304]);

/** Open to everybody who reaches the port, as the kubelet comes from the node and has no token. */
export function createAppHealthEndpoints(probes: readonly AppProbe[], clock: Clock): Endpoint[] {
  return probes.map(({ container, kind, url, headers }) => {
    const question: AppQuestion = { url: new URL(url), headers, atMost: AT_MOST_MS };
    let underWay = 0;
    return {
      path: `/app-health/${container}/${kind}`,
      method: 'GET',
      isOpen: true,
      async answer({ request }) {
        if (underWay >= MOST_AT_ONCE) return toPlain(503, 'too many questions to the app are under way');
        underWay++;
        const reply = await askApp(question, clock, (action) => onGone(request, action));
        underWay--;
        return toAnswer(reply);
      },
    };
  });
}

function onGone({ socket }: IncomingMessage, action: () => void): CancelTimer {
  onceEvent(socket, 'close', action);
  return () => socket.off('close', action);
}

function toAnswer({ status, line }: AppReply): Answer {
  const answer = toPlain(status, line);
  return WITHOUT_CONTENT.has(status) ? { ...answer, text: '' } : answer;
}
