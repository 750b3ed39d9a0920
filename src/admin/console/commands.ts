/** Commands for a shell that repeat or explain a delivery. Every value that a client wrote is quoted. */

/** A header field; `value` is null if it is hidden. */
export interface ShownHeader {
  readonly name: string;
  readonly value: string | null;
}

/** The request of a command. */
export interface CommandRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: readonly ShownHeader[];
  readonly hasBody: boolean;
  /** Where this machine listens for requests; undefined if that is not known. */
  readonly address: string | undefined;
}

const SINGLE_QUOTE = /'/g;
const GLOB = /[[\]{}]/;
/** curl sets these itself. */
const OWN_HEADERS: ReadonlySet<string> = new Set(['host', 'content-length', 'transfer-encoding', 'connection', 'expect']);

/** One argument of a POSIX shell. */
export function quote(text: string): string {
  return `'${text.replace(SINGLE_QUOTE, `'\\''`)}'`;
}

/**
 * Repeats the request; the body is read from the file `body`, as no body is stored. Hidden headers are left to the reader. The client chose the
 * Host, so the command connects to this machine, and not to the host that the client named.
 */
export function toCurl({ method, path, headers, hasBody, address }: CommandRequest): string {
  const host = headers.find(({ name }) => name === 'host')?.value ?? 'localhost:8080';
  const shown = headers.flatMap(({ name, value }) =>
    value === null || OWN_HEADERS.has(name) ? [] : ['--header', quote(`${name}: ${value}`)],
  );
  const body = hasBody ? ['--data-binary', '@body'] : [];
  const url = `http://${host}${path}`;
  const options = [
    ...(address === undefined ? [] : ['--connect-to', quote(`::${address}`)]),
    // A path with [1-100000] would be as many requests.
    ...(GLOB.test(url) ? ['--globoff'] : []),
  ];
  return ['curl', '--request', quote(method), ...options, ...shown, ...body, quote(url)].join(' ');
}

/** Explains a captured delivery with the keys of the config. */
export function toExplain(requestId: string, route: string, origin: string): string {
  return `curl ${quote(`${origin}/captures/${requestId}`)} | sidegate explain --config gate.yaml --route ${quote(route)} -`;
}
