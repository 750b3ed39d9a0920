/** Limits the TLS records without content that a peer sends, such as KeyUpdate (RFC 8446 §4.6.3). */
import type { TLSSocket } from 'node:tls';
import { guardDecision } from './safe-events.ts';

/** Node reads a connection with it. It is not documented; if a later version has none, there is no limit. */
interface StreamHandle {
  readonly bytesRead: number;
  /** Called for each read, and for the end and errors. */
  onread?: (data: unknown) => void;
  /** From now on, what is read is in this buffer when `onread` is called. */
  useUserBuffer?(buffer: Buffer): void;
}

interface TlsHandle extends StreamHandle {
  /** The connection below. */
  readonly _parent?: StreamHandle;
  /** Passes bytes to OpenSSL, and their content to the reader, before it returns. */
  receive?(bytes: Buffer): void;
}

/** At once, as in OpenSSL for empty fragments: a server sends some session tickets, and keys change after millions of records. */
const MAX_EMPTY_RECORDS = 32;
/** One more for so many records with content. */
const RECORDS_PER_EMPTY = 1_000;
/** Type and version; a length of two bytes follows. TLS 1.3 encrypts all records as application data. */
const RECORD_START = Buffer.from([23, 3, 3]);
const TAIL_BYTES = RECORD_START.length - 1;
const NO_BYTES = Buffer.alloc(0);
/** The high byte of the largest length. With it, what looks like a start is within a record of 16 KiB once in 4,000. */
const MAX_LENGTH = 0x41;
/**
 * Of all connections: OpenSSL has taken its bytes before the next read. Node runs what events have scheduled only after each read, so it has no
 * more than the longest record.
 */
const readBuffer = Buffer.allocUnsafeSlow(16 * 1024);

/**
 * Calls `onExceeded` if a peer sends too many, from the end of the handshake on. OpenSSL works on a KeyUpdate of 27 bytes as long as on some KiB
 * of content, handles all that Node has read before JavaScript runs, and keeps a reply to each that the peer need not read. So it gets each
 * record on its own.
 */
export function limitEmptyRecords(socket: TLSSocket, onExceeded: () => void): void {
  const { _handle: handle } = socket as TLSSocket & { readonly _handle: TlsHandle | null };
  const source = handle?._parent;
  if (handle?.receive === undefined || source?.useUserBuffer === undefined) return;
  const counter = new EmptyRecords();
  let received = source.bytesRead;
  let tail = NO_BYTES;
  const take = (data: unknown): void => {
    const bytes = readBuffer.subarray(0, source.bytesRead - received);
    received += bytes.length;
    // Node knows whether it is the end, or an error.
    if (bytes.length === 0) handle.onread?.(data);
    // The start of a record may be split between two reads.
    const split = Buffer.concat([tail, bytes.subarray(0, TAIL_BYTES)]);
    if (split.includes(RECORD_START) && counter.isExceeded(handle.bytesRead)) return onExceeded();
    tail = Buffer.concat([tail, bytes.subarray(-TAIL_BYTES)]).subarray(-TAIL_BYTES);
    for (let at = 0; at < bytes.length && !socket.destroyed; ) {
      if (findStart(bytes, at) === at && counter.isExceeded(handle.bytesRead)) return onExceeded();
      const end = findStart(bytes, at + 1);
      handle.receive?.(bytes.subarray(at, end));
      at = end;
    }
  };
  source.useUserBuffer(readBuffer);
  const guarded = guardDecision(take, undefined, () => socket.destroy());
  // Node would take any result for the next buffer, and abort the process if it is none.
  source.onread = (data) => {
    guarded(data);
  };
}

/** Where the next record starts whose type and version have arrived, or the end. */
function findStart(bytes: Buffer, from: number): number {
  let at = bytes.indexOf(RECORD_START, from);
  while (at !== -1 && (bytes[at + RECORD_START.length] ?? 0) > MAX_LENGTH) at = bytes.indexOf(RECORD_START, at + 1);
  return at === -1 ? bytes.length : at;
}

/** Counts the records of a connection that have no content. */
class EmptyRecords {
  #left = MAX_EMPTY_RECORDS;
  #content = 0;

  /** Call it where a record starts, with the bytes of content before it. */
  isExceeded(content: number): boolean {
    this.#left = content > this.#content ? Math.min(this.#left + 1 / RECORDS_PER_EMPTY, MAX_EMPTY_RECORDS) : this.#left - 1;
    this.#content = content;
    return this.#left < 0;
  }
}
