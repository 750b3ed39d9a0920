/** A simulated TCP socket: a stream whose other end is a socket of another simulated process. */
import type { OnReadOpts, Socket } from 'node:net';
import { Duplex } from 'node:stream';
import type { Owner, ScheduledEvent } from './scheduler.ts';

/** What a socket asks of the network. */
export interface Wire {
  /** Sends bytes to the peer; `onTaken`: the sender may write more. */
  transmit(from: SimulatedSocket, bytes: Buffer, onTaken: () => void): void;
  /** The sender ends its side. */
  finish(from: SimulatedSocket): void;
  /** The socket was closed. */
  release(socket: SimulatedSocket): void;
  startTimer(delay: number, owner: Owner, run: () => void): ScheduledEvent;
  stopTimer(timer: ScheduledEvent): void;
}

/** The address of one end. */
export interface Address {
  readonly address: string;
  readonly port: number;
}

export interface SocketOptions {
  readonly wire: Wire;
  readonly owner: Owner;
  readonly local: Address;
  readonly remote: Address;
  readonly allowHalfOpen: boolean;
  readonly onread?: OnReadOpts | undefined;
}

export class SimulatedSocket extends Duplex {
  readonly owner: Owner;
  readonly localAddress: string;
  readonly localPort: number;
  readonly remoteAddress: string;
  readonly remotePort: number;
  readonly remoteFamily = 'IPv4';
  peer: SimulatedSocket | undefined;
  connecting = false;
  /** When the last bytes that were sent to the peer arrive: they keep their order. */
  lastArrival = 0;
  /** The network lost the connection: nothing arrives any more. */
  isCut = false;
  readonly #wire: Wire;
  readonly #onread: OnReadOpts | undefined;
  readonly #waiting: Buffer[] = [];
  #isHeld = false;
  #hasEnded = false;
  #idleTimer: ScheduledEvent | undefined;
  #idleTimeout = 0;
  #pendingConnect: (() => void)[] = [];

  constructor({ wire, owner, local, remote, allowHalfOpen, onread }: SocketOptions) {
    super({ allowHalfOpen, autoDestroy: true, emitClose: true });
    this.#wire = wire;
    this.owner = owner;
    this.localAddress = local.address;
    this.localPort = local.port;
    this.remoteAddress = remote.address;
    this.remotePort = remote.port;
    this.#onread = onread;
  }

  /** The connection is established. */
  open(peer: SimulatedSocket): void {
    this.peer = peer;
    this.connecting = false;
    for (const proceed of this.#pendingConnect.splice(0)) proceed();
  }

  /** Bytes arrived. */
  receive(bytes: Buffer): void {
    if (this.destroyed) return;
    this.#touch();
    if (this.#onread === undefined) this.push(bytes);
    else if (this.#isHeld) this.#waiting.push(bytes);
    else this.#read(bytes, this.#onread);
  }

  /** The peer ended its side. */
  receiveEnd(): void {
    if (this.destroyed || this.#hasEnded) return;
    this.#hasEnded = true;
    this.push(null);
    if (this.#onread !== undefined) this.read(0);
  }

  override _read(): void {
    // Bytes are pushed as they arrive.
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#whenConnected(() => {
      this.#touch();
      // The sender may reuse its buffer.
      this.#wire.transmit(this, Buffer.from(chunk), () => done());
    });
  }

  override _writev(chunks: { readonly chunk: Buffer }[], done: (error?: Error | null) => void): void {
    this.#whenConnected(() => {
      this.#touch();
      this.#wire.transmit(this, Buffer.concat(chunks.map(({ chunk }) => chunk)), () => done());
    });
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#whenConnected(() => {
      this.#wire.finish(this);
      done();
    });
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#stopIdleTimer();
    this.#pendingConnect = [];
    this.connecting = false;
    this.#wire.release(this);
    done(error);
  }

  override pause(): this {
    this.#isHeld = true;
    return super.pause();
  }

  override resume(): this {
    this.#isHeld = false;
    while (this.#onread !== undefined && !this.#isHeld && !this.destroyed) {
      const next = this.#waiting.shift();
      if (next === undefined) break;
      this.#read(next, this.#onread);
    }
    return super.resume();
  }

  setTimeout(timeout: number, callback?: () => void): this {
    this.#idleTimeout = timeout;
    this.#stopIdleTimer();
    if (callback !== undefined && timeout > 0) this.once('timeout', callback);
    this.#startIdleTimer(timeout);
    return this;
  }

  get timeout(): number {
    return this.#idleTimeout;
  }

  destroySoon(): void {
    if (this.writable) this.end();
    if (this.writableFinished) this.destroy();
    else this.once('finish', () => this.destroy());
  }

  setNoDelay(): this {
    return this;
  }

  setKeepAlive(): this {
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  address(): Address {
    return { address: this.localAddress, port: this.localPort };
  }

  /** As the code under test sees it. */
  toSocket(): Socket {
    return this as unknown as Socket;
  }

  /** Into the reader's buffer, as libuv does. */
  #read(bytes: Buffer, { buffer, callback }: OnReadOpts): void {
    let rest = bytes;
    while (rest.length > 0 && !this.destroyed) {
      const target = typeof buffer === 'function' ? buffer() : buffer;
      const length = Math.min(rest.length, target.length);
      if (length === 0) {
        this.destroy();
        return;
      }
      target.set(rest.subarray(0, length));
      rest = rest.subarray(length);
      if (!callback(length, target) || this.#isHeld) {
        this.#isHeld = true;
        if (rest.length > 0) this.#waiting.unshift(rest);
        return;
      }
    }
  }

  #whenConnected(proceed: () => void): void {
    if (this.connecting) this.#pendingConnect.push(proceed);
    else proceed();
  }

  #touch(): void {
    if (this.#idleTimeout === 0) return;
    this.#stopIdleTimer();
    this.#startIdleTimer(this.#idleTimeout);
  }

  #startIdleTimer(timeout: number): void {
    if (timeout > 0 && !this.destroyed)
      this.#idleTimer = this.#wire.startTimer(timeout, this.owner, () => {
        this.#idleTimer = undefined;
        this.emit('timeout');
      });
  }

  #stopIdleTimer(): void {
    if (this.#idleTimer !== undefined) this.#wire.stopTimer(this.#idleTimer);
    this.#idleTimer = undefined;
  }
}
