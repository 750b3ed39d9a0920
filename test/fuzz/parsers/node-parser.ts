/** Node's own HTTP parser, llhttp, as the second opinion on a message. */
import { createRequire } from 'node:module';

/** A message as llhttp reads it. */
export interface NodeMessage {
  /** Such as 1.1. */
  readonly version: string;
  readonly method: number | undefined;
  readonly url: string | undefined;
  readonly status: number | undefined;
  /** Name, value, name, value, …; the trailers are separate. */
  readonly headers: readonly string[];
  readonly trailers: readonly string[];
  readonly body: string;
  readonly isComplete: boolean;
}

/** What it read until the end of the bytes, or until its error. */
export interface NodeReading {
  readonly messages: readonly NodeMessage[];
  readonly error: string | undefined;
}

interface Parser {
  initialize(type: number, resource: object, maxHeaderSize: number, lenient: number): void;
  execute(bytes: Buffer): number | (Error & { readonly code: string });
  [callback: number]: (...args: never[]) => number | undefined;
}
type HeadArguments = [number, number, string[] | undefined, number | undefined, string | undefined, number | undefined];
interface ParserClass {
  new (): Parser;
  readonly REQUEST: number;
  readonly RESPONSE: number;
  readonly kOnHeaders: number;
  readonly kOnHeadersComplete: number;
  readonly kOnBody: number;
  readonly kOnMessageComplete: number;
}

const MAX_HEADER_BYTES = 65_536;
const { HTTPParser } = createRequire(import.meta.url)('_http_common') as { readonly HTTPParser: ParserClass };

/** Reads the messages of a connection. */
export function readByNode(bytes: Buffer, kind: 'REQUEST' | 'RESPONSE'): NodeReading {
  const messages: { -readonly [Key in keyof NodeMessage]: NodeMessage[Key] }[] = [];
  let pending: string[] = [];
  const parser = new HTTPParser();
  parser.initialize(HTTPParser[kind], {}, MAX_HEADER_BYTES, 0);
  parser[HTTPParser.kOnHeaders] = (fields: string[]) => void pending.push(...fields);
  parser[HTTPParser.kOnHeadersComplete] = (...[major, minor, fields = [], method, url, status]: HeadArguments) => {
    const headers = [...pending, ...fields];
    messages.push({ version: `${major}.${minor}`, method, url, status, headers, trailers: [], body: '', isComplete: false });
    pending = [];
    return 0;
  };
  parser[HTTPParser.kOnBody] = (chunk: Buffer) => {
    const message = messages.at(-1);
    if (message !== undefined) message.body += chunk.toString('latin1');
    return undefined;
  };
  parser[HTTPParser.kOnMessageComplete] = () => {
    const message = messages.at(-1);
    if (message !== undefined) Object.assign(message, { trailers: pending, isComplete: true });
    pending = [];
    return undefined;
  };
  const result = parser.execute(bytes);
  return { messages, error: typeof result === 'number' ? undefined : result.code };
}
