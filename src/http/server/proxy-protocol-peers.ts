/** Removes the PROXY protocol header from connections of balancers that send one, before HTTP or TLS reads a byte. */
import type { Socket } from 'node:net';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { type IpRanges, toPlainAddress } from '../../core/ip-address.ts';
import { handOver } from '../../core/read-pause.ts';
import { offEvent, onceEvent, onEvent } from '../../core/safe-events.ts';
import { type ProxyHeaderResult, parseProxyHeader } from './proxy-protocol.ts';

/** The settings of the port. */
export interface ProxyProtocolOptions {
  /** The balancers whose connections start with the header; all other connections are direct. */
  readonly from: IpRanges;
  /** TLS follows the header. */
  readonly isTls: boolean;
  /** The time limit for the whole header. */
  readonly timeout: Milliseconds;
  readonly clock: Clock;
}

/** The callbacks for a connection. */
export interface ProxyHeaderHandler {
  /** The remaining bytes are HTTP or TLS. */
  onReady(): void;
  /** The header is invalid, so nothing on the connection can be trusted. */
  onInvalid(detail: string): void;
}

const EMPTY = Buffer.alloc(0);

/** The listener keeps nothing else alive. */
function destroyOnError(socket: Socket): void {
  onEvent(socket, 'error', () => socket.destroy());
}

/** The clients of connections that come from balancers. */
export class ProxyProtocolPeers {
  readonly #from: IpRanges;
  readonly #isTls: boolean;
  readonly #timeout: Milliseconds;
  readonly #clock: Clock;
  readonly #bySocket = new WeakMap<Socket, string>();
  /** By connection key while the connection is open: TLS wraps the socket, and the wrapper has the same key. */
  readonly #byKey = new Map<string, string>();

  constructor({ from, isTls, timeout, clock }: ProxyProtocolOptions) {
    this.#from = from;
    this.#isTls = isTls;
    this.#timeout = timeout;
    this.#clock = clock;
  }

  /** Reads the header of a connection, if its peer must send one. */
  take(socket: Socket, handler: ProxyHeaderHandler): void {
    if (!this.#from.has(toPlainAddress(socket.remoteAddress ?? ''))) return handler.onReady();
    // For as long as the socket exists: after an invalid header, neither node:http nor TLS ever listens for its errors.
    destroyOnError(socket);
    let bytes: Buffer = EMPTY;
    const finish = (next: () => void): void => {
      cancel();
      offEvent(socket, 'data', onData);
      offEvent(socket, 'end', onEnd);
      handOver(socket, next);
    };
    const fail = (detail: string): void => finish(() => handler.onInvalid(detail));
    const onData = onEvent(socket, 'data', (chunk: Buffer) => {
      bytes = bytes.length === 0 ? chunk : Buffer.concat([bytes, chunk]);
      const result = parseProxyHeader(bytes);
      if (result.kind === 'incomplete') return;
      if (result.kind === 'invalid') return fail(result.detail);
      finish(() => {
        this.#remember(socket, result);
        if (bytes.length > result.length) socket.unshift(bytes.subarray(result.length));
        handler.onReady();
        // TLS reads the remaining bytes itself; a flowing socket would take them away.
        if (!this.#isTls) socket.resume();
      });
    });
    const onEnd = onEvent(socket, 'end', () => fail('the connection ended within the header'));
    const cancel = this.#clock.after(this.#timeout, () => fail('the header took too long'));
    onceEvent(socket, 'close', cancel);
  }

  /** Assigns the client of a connection to the TLS socket that wraps it. Returns false if the client is unknown. */
  adopt(wrapped: Socket): boolean {
    const client = this.#byKey.get(toConnectionKey(wrapped));
    if (client !== undefined) this.#bySocket.set(wrapped, client);
    return client !== undefined || !this.#from.has(toPlainAddress(wrapped.remoteAddress ?? ''));
  }

  /** Returns the address of the client; undefined if the peer of the socket is the client. */
  find(socket: Socket): string | undefined {
    return this.#bySocket.get(socket);
  }

  #remember(socket: Socket, { source }: Extract<ProxyHeaderResult, { kind: 'parsed' }>): void {
    const client = source ?? socket.remoteAddress ?? 'unknown';
    const key = toConnectionKey(socket);
    this.#bySocket.set(socket, client);
    this.#byKey.set(key, client);
    onceEvent(socket, 'close', () => this.#byKey.delete(key));
  }
}

/** Identifies a connection by both ends: the same remote end may connect to another local address. */
export function toConnectionKey({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`;
}
