/** Takes the PROXY protocol's header off connections of the balancers that send one, before HTTP or TLS sees a byte. */
import type { Socket } from 'node:net';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { type IpRanges, toPlainAddress } from '../../core/ip-address.ts';
import { offEvent, onceEvent, onEvent } from '../../core/safe-events.ts';
import { type ProxyHeaderResult, parseProxyHeader } from './proxy-protocol.ts';

/** What holds for the port. */
export interface ProxyProtocolOptions {
  /** Whose connections begin with the header; all others are what they seem. */
  readonly from: IpRanges;
  /** TLS follows the header. */
  readonly isTls: boolean;
  /** For the whole header. */
  readonly timeout: Milliseconds;
  readonly clock: Clock;
}

/** What is done with a connection. */
export interface ProxyHeaderHandler {
  /** The rest is HTTP or TLS. */
  onReady(): void;
  /** It is not what the balancer was configured to send: nothing on it can be believed. */
  onInvalid(detail: string): void;
}

const EMPTY = Buffer.alloc(0);

/** Who the clients of the balancers' connections are. */
export class ProxyProtocolPeers {
  readonly #from: IpRanges;
  readonly #isTls: boolean;
  readonly #timeout: Milliseconds;
  readonly #clock: Clock;
  readonly #bySocket = new WeakMap<Socket, string>();
  /** By the connection's ends, for as long as it is open: TLS wraps a socket, and shows only those of it. */
  readonly #byKey = new Map<string, string>();

  constructor({ from, isTls, timeout, clock }: ProxyProtocolOptions) {
    this.#from = from;
    this.#isTls = isTls;
    this.#timeout = timeout;
    this.#clock = clock;
  }

  /** Reads the header of a connection that must have one. */
  take(socket: Socket, handler: ProxyHeaderHandler): void {
    if (!this.#from.has(toPlainAddress(socket.remoteAddress ?? ''))) return handler.onReady();
    let bytes: Buffer = EMPTY;
    const finish = (): void => {
      cancel();
      socket.pause();
      offEvent(socket, 'data', onData);
      offEvent(socket, 'error', onError);
    };
    const onData = onEvent(socket, 'data', (chunk: Buffer) => {
      bytes = bytes.length === 0 ? chunk : Buffer.concat([bytes, chunk]);
      const result = parseProxyHeader(bytes);
      if (result.kind === 'incomplete') return;
      finish();
      if (result.kind === 'invalid') return handler.onInvalid(result.detail);
      this.#remember(socket, result);
      if (bytes.length > result.length) socket.unshift(bytes.subarray(result.length));
      handler.onReady();
      // TLS reads what is left by itself; a socket that flows would take it away from there.
      if (!this.#isTls) socket.resume();
    });
    const onError = onEvent(socket, 'error', () => socket.destroy());
    const cancel = this.#clock.after(this.#timeout, () => {
      finish();
      handler.onInvalid('the header took too long');
    });
    onceEvent(socket, 'close', cancel);
  }

  /** TLS begins on a connection whose header was read: what was said of it holds for the wrapped socket. False where that was lost. */
  adopt(wrapped: Socket): boolean {
    const client = this.#byKey.get(toConnectionKey(wrapped));
    if (client !== undefined) this.#bySocket.set(wrapped, client);
    return client !== undefined || !this.#from.has(toPlainAddress(wrapped.remoteAddress ?? ''));
  }

  /** The client's address; undefined where the socket's own other key is the client. */
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

/** Both ends: on another address of this machine, another connection may have the same far one. */
export function toConnectionKey({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`;
}
