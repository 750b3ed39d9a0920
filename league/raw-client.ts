/** Sends exact bytes and tells what was answered and whether the connection was closed. */
import { connect } from 'node:net';

/** An answer. */
export interface Answer {
  readonly status: number;
  /** Status line and fields, latin1. */
  readonly head: string;
  /** All that came behind the head, with its framing. */
  readonly rest: string;
  /** Whether the server closed the connection of itself. */
  readonly isClosed: boolean;
}

/** A server that closes does so at once; one that does not by then keeps the connection. */
const CLOSES_WITHIN_MS = 1_000;
const ANSWERS_WITHIN_MS = 5_000;

/** Sends a request on a connection of its own; undefined where no whole head came back. */
export async function sendBytes(port: number, request: string): Promise<Answer | undefined> {
  const { text, isClosed } = await converse(port, request);
  const end = text.indexOf('\r\n\r\n');
  const status = /^HTTP\/1\.[01] (\d{3})/.exec(text)?.[1];
  if (end === -1 || status === undefined) return undefined;
  return { status: Number(status), head: text.slice(0, end), rest: text.slice(end + 4), isClosed };
}

function converse(port: number, request: string): Promise<{ text: string; isClosed: boolean }> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    let text = '';
    let timer = setTimeout(() => finish(false), ANSWERS_WITHIN_MS);
    const finish = (isClosed: boolean): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve({ text, isClosed });
    };
    socket.setEncoding('latin1');
    socket.on('data', (chunk: string) => {
      text += chunk;
      clearTimeout(timer);
      timer = setTimeout(() => finish(false), CLOSES_WITHIN_MS);
    });
    socket.on('end', () => finish(true));
    // A reset is a close, too; what came before it counts.
    socket.on('error', () => finish(true));
    socket.write(request, 'latin1');
  });
}

/** The values of a field in a head, by name in any case, in their order. */
export function readField(head: string, name: string): string[] {
  const lines = head.split('\r\n').slice(1);
  return lines.flatMap((line) => {
    const colon = line.indexOf(':');
    return line.slice(0, colon).toLowerCase() === name.toLowerCase() ? [line.slice(colon + 1).trim()] : [];
  });
}
